"""What a rehearsal says of each key and of each rule: who waited, how long, how full it was."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from math import ceil
from typing import Final

from msgspec import Struct

from longshore.core.key_limits import Bounds, bounds_of
from longshore.model.limits import JobLimit, LimitRule
from longshore.model.waited import WaitCause, Waited
from longshore.testing.rehearsal import Rehearsed

WAITED_S: Final = 0.001
"""A job that waited for less did not wait."""


class Waits(Struct, frozen=True):
    """How long some jobs waited: how many they are, the share that did, and for how long.

    The percentiles are of all these jobs, also of those that did not wait.
    """

    jobs: int
    share: float
    p50_s: float
    p95_s: float
    max_s: float


class KeyTrial(Struct, frozen=True):
    """What became of the jobs of a key. `rule` is the pattern of what limits it, if a rule does.

    `used` is the share of what its limit allows from the first job to the last end; None without a
    limit. `longest` is the most jobs that waited for it at once, `never` those that did to the end.
    """

    key: str
    rule: str
    waits: Waits
    used: float | None
    longest: int
    never: int


class RuleTrial(Struct, frozen=True):
    """What became of the jobs of a rule's keys. `used` and `longest` are those of its worst key."""

    rule: str
    keys: int
    waits: Waits
    used: float | None
    longest: int
    never: int


class Trial(Struct, frozen=True):
    """What a rehearsal says. `slots` is how long jobs waited for free slots, of whatever key."""

    jobs: int
    never: int
    took_s: float
    slots: Waits
    rules: tuple[RuleTrial, ...]
    keys: tuple[KeyTrial, ...]


def trial_of(done: Rehearsed, rules: Sequence[LimitRule]) -> Trial:
    """Adds up what became of the jobs, those keys first for which jobs waited longest."""
    limits: defaultdict[str, list[tuple[JobLimit, float]]] = defaultdict(list)
    for arrival in done.arrivals:
        for limit in arrival.limits:
            limits[limit.key].append((limit, arrival.run_s))
    waits: defaultdict[str, list[float]] = defaultdict(list)
    for job in done.jobs:
        of_keys = {one.key: one.s for one in job.waited if one.cause is WaitCause.LIMIT}
        for limit in done.arrivals[job.number - 1].limits:
            waits[limit.key].append(of_keys.get(limit.key, 0.0))
    first_s = done.arrivals[0].at_s if done.arrivals else 0.0
    took_s = max(0.0, done.end_s - first_s)
    keys = []
    for key, jobs in limits.items():
        bounds = bounds_of(jobs[0][0], rules)
        of_key = _waits(waits[key], len(jobs))
        used = _used(bounds, jobs, took_s)
        longest, never = done.longest.get(key, 0), done.behind.get(key, 0)
        keys.append(KeyTrial(key, bounds.pattern, of_key, used, longest, never))
    slots = _waits([_for_slots(job.waited) for job in done.jobs], len(done.arrivals))
    of_rules = tuple(_of_rule(rule.pattern, keys, waits) for rule in rules)
    in_order = sorted(keys, key=lambda one: (-one.never, -one.waits.max_s, one.key))
    return Trial(len(done.arrivals), done.never, took_s, slots, of_rules, tuple(in_order))


def _of_rule(pattern: str, keys: Iterable[KeyTrial], waits: dict[str, list[float]]) -> RuleTrial:
    mine = [one for one in keys if one.rule == pattern]
    jobs = sum(one.waits.jobs for one in mine)
    every = [wait for one in mine for wait in waits[one.key]]
    used = max((one.used for one in mine if one.used is not None), default=None)
    longest = max((one.longest for one in mine), default=0)
    never = sum(one.never for one in mine)
    return RuleTrial(pattern, len(mine), _waits(every, jobs), used, longest, never)


def _for_slots(parts: Iterable[Waited]) -> float:
    return sum(one.s for one in parts if one.cause is WaitCause.SLOT)


def _waits(each: Iterable[float], jobs: int) -> Waits:
    """Of so many jobs, of which those that began waited so long for it."""
    ordered = sorted(each)
    waited = sum(one >= WAITED_S for one in ordered) + jobs - len(ordered)
    share = waited / jobs if jobs else 0.0
    return Waits(jobs, share, _at(ordered, 0.5), _at(ordered, 0.95), _at(ordered, 1.0))


def _at(ordered: Sequence[float], part: float) -> float:
    """The least value that so large a part of them is not above."""
    return ordered[ceil(part * len(ordered)) - 1] if ordered else 0.0


def _used(bounds: Bounds, jobs: Iterable[tuple[JobLimit, float]], took_s: float) -> float | None:
    """The share of what a limit allows that these jobs would use; of two limits the fuller one."""
    jobs = list(jobs)
    shares = []
    if bounds.concurrency and took_s:
        shares.append(sum(run_s for _, run_s in jobs) / (bounds.concurrency * took_s))
    if bounds.rate is not None and took_s:
        units = sum(limit.units for limit, _ in jobs)
        shares.append(units * bounds.rate.per_s / (bounds.rate.units * took_s))
    return max(shares, default=None)
