"""What a dispatcher does because time passed, not because anybody spoke: one duty, one file.

A duty is told what it needs when it is made, and does one piece of work when it is called. It knows
no interval and survives no outage: both are the keeper's business (`keeper.py`).
"""
