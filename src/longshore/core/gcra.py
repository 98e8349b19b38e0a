"""Rates, exactly: the generic cell rate algorithm.

Theory. A key has one number, the time at which all that it let through would have been through at
an even pace. A unit moves that time on by `per_s / units`. What would move it further than `burst`
units ahead of now has to wait. So within any time t at most `burst + t * units / per_s` units are
let through, which is the rate's units and its burst if t is `per_s`. Times are whole microseconds;
what a unit takes is rounded up, so that nothing is ever let through too early.

That time is never further ahead than the burst. If it is, by more than clocks are read apart, it is
of another clock or of another rate: the clock went back, or a rule was changed. Then the next job
may begin, and from there on the rate counts. Otherwise a key would be wedged for as long as a clock
was wrong.
"""

from __future__ import annotations

from math import ceil
from typing import Final, NamedTuple

from longshore.model.limits import Rate

SLACK_US: Final = 1_000_000
"""So far apart at most two transactions read one clock."""


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
    after = _even(rate, units, even_at, now) + _taken(rate, units)
    if after <= now + _ahead(rate):
        return Passed(after)
    return Wait(after - _ahead(rate))


def free_units(rate: Rate, even_at: int, now: int, units: int = 1) -> int:
    """About how many units may begin now, never more than `pass_units` lets through.

    It is asked of jobs that take so many `units` each.
    """
    left = now + _ahead(rate) - _even(rate, units, even_at, now)
    return max(0, left // _taken(rate, 1))


def _even(rate: Rate, units: int, even_at: int, now: int) -> int:
    """The time to go on from; if that which was kept cannot be, one with room for these units."""
    latest = now + _ahead(rate)
    if even_at > latest + SLACK_US:
        return max(now, latest - max(_taken(rate, units), units * _taken(rate, 1)))
    return max(even_at, now)


def _taken(rate: Rate, units: int) -> int:
    return ceil(units * rate.per_s * 1e6 / rate.units)


def _ahead(rate: Rate) -> int:
    # Down to whole microseconds, unless that would leave less room than one unit takes.
    return max(int(rate.burst * rate.per_s * 1e6 / rate.units), _taken(rate, rate.burst))
