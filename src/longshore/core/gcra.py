"""Rates, exactly: the generic cell rate algorithm.

Theory. A key has one number, the time at which all that it let through would have been through at
an even pace. A unit moves that time on by `per_s / units`. What would move it further than `burst`
units ahead of now has to wait. So within any time t at most `burst + t * units / per_s` units are
let through, which is the rate's units and its burst if t is `per_s`. Times are whole microseconds;
what a unit takes is rounded up, so that nothing is ever let through too early.
"""

from __future__ import annotations

from math import ceil
from typing import NamedTuple

from longshore.model.limits import Rate


class Passed(NamedTuple):
    """It may begin; `even_at` is the time to keep."""

    even_at: int


class Wait(NamedTuple):
    """It may not begin before this time; None if the rate never lets so much through at once."""

    until: int | None


def pass_units(rate: Rate, units: int, even_at: int, now: int) -> Passed | Wait:
    """Whether so many units may begin now."""
    if units > rate.burst:
        return Wait(None)
    after = max(even_at, now) + _taken(rate, units)
    if after <= now + _ahead(rate):
        return Passed(after)
    return Wait(after - _ahead(rate))


def free_units(rate: Rate, even_at: int, now: int) -> int:
    """About how many units may begin now, never more than `pass_units` lets through."""
    left = now + _ahead(rate) - max(even_at, now)
    return max(0, left // _taken(rate, 1))


def _taken(rate: Rate, units: int) -> int:
    return ceil(units * rate.per_s * 1e6 / rate.units)


def _ahead(rate: Rate) -> int:
    # Down to whole microseconds, unless that would leave less room than one unit takes.
    return max(int(rate.burst * rate.per_s * 1e6 / rate.units), _taken(rate, rate.burst))
