"""What a dispatcher does because time passed, not because anybody spoke: one duty, one file.

A duty is given what it needs and does one piece of work; it is a class only if it remembers
something. It knows no interval and survives no outage: both are the business of `duty_runner.py`.
"""
