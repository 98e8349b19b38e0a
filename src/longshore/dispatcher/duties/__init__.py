"""What a dispatcher does because time passed: one file for each duty.

A duty does one piece of work with what it is given; it is a class only if it remembers something.
Intervals and outages of the store are the business of `duty_runner.py`.
"""
