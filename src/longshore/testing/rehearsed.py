"""What a rehearsal says of each key and of each rule: who waited, how long, how full it was."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from math import ceil
from typing import Final

from msgspec import Struct

from longshore.core.fairness import weighing, weight_of
from longshore.core.key_limits import Bounds, bounds_of
from longshore.core.lane_rules import lane_keys
from longshore.model.job import Job
from longshore.model.limits import JobLimit, LimitRule
from longshore.model.waited import WaitCause
from longshore.testing.rehearsal import Arrival, Rehearsed

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


class FairTrial(Struct, frozen=True):
    """How long the jobs of a fair key waited for free slots; `rule` is the one with its weight."""

    key: str
    rule: str
    weight: float
    waits: Waits


class Trial(Struct, frozen=True):
    """What a rehearsal says. `slots` is how long jobs waited for free slots, of whatever key."""

    jobs: int
    never: int
    took_s: float
    slots: Waits
    rules: tuple[RuleTrial, ...]
    keys: tuple[KeyTrial, ...]
    fair: tuple[FairTrial, ...] = ()


def trial_of(done: Rehearsed, rules: Sequence[LimitRule]) -> Trial:
    """Adds up what became of the jobs, those keys first for which jobs waited longest."""
    limits: defaultdict[str, list[tuple[JobLimit, float]]] = defaultdict(list)
    for arrival in done.arrivals:
        for limit in _limits_of(arrival, rules):
            limits[limit.key].append((limit, arrival.run_s))
    waits: defaultdict[str, list[float]] = defaultdict(list)
    for job in done.jobs:
        of_keys = {one.key: one.s for one in job.waited if one.cause is WaitCause.LIMIT}
        of_keys |= done.of_lanes.get(job.number, {})
        for limit in _limits_of(done.arrivals[job.number - 1], rules):
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
    slots = _waits([_for_slots(done, job) for job in done.jobs], len(done.arrivals))
    limiting = [rule for rule in rules if rule.concurrency is not None or rule.rate is not None]
    of_rules = tuple(_of_rule(rule.pattern, keys, waits) for rule in limiting)
    in_order = sorted(keys, key=lambda one: (-one.never, -one.waits.max_s, one.key))
    found = (slots, of_rules, tuple(in_order), _fair(done, rules))
    return Trial(len(done.arrivals), done.never, took_s, *found)


def _limits_of(arrival: Arrival, rules: Sequence[LimitRule]) -> list[JobLimit]:
    """All that a job counts for: its own keys, and those of its kind and queue that have rules."""
    own = {limit.key for limit in arrival.limits}
    of_lane = lane_keys(arrival.queue, arrival.kind, rules)
    return [*arrival.limits, *(JobLimit(key) for key in of_lane if key not in own)]


def _fair(done: Rehearsed, rules: Sequence[LimitRule]) -> tuple[FairTrial, ...]:
    """What became of the jobs of each fair key, those first that waited longest."""
    waits: defaultdict[str, list[float]] = defaultdict(list)
    for job in done.jobs:
        waits[done.arrivals[job.number - 1].fair].append(_for_slots(done, job))
    jobs = Counter(arrival.fair for arrival in done.arrivals if arrival.fair)
    found = []
    for key, count in jobs.items():
        rule = weighing(key, rules)
        weight, pattern = weight_of(key, rules), "" if rule is None else rule.pattern
        found.append(FairTrial(key, pattern, weight, _waits(waits[key], count)))
    return tuple(sorted(found, key=lambda one: (-one.waits.max_s, one.key)))


def _of_rule(pattern: str, keys: Iterable[KeyTrial], waits: dict[str, list[float]]) -> RuleTrial:
    mine = [one for one in keys if one.rule == pattern]
    jobs = sum(one.waits.jobs for one in mine)
    every = [wait for one in mine for wait in waits[one.key]]
    used = max((one.used for one in mine if one.used is not None), default=None)
    longest = max((one.longest for one in mine), default=0)
    never = sum(one.never for one in mine)
    return RuleTrial(pattern, len(mine), _waits(every, jobs), used, longest, never)


def _for_slots(done: Rehearsed, job: Job) -> float:
    """How long a job waited for a free slot, and for nothing else."""
    ready_s = sum(one.s for one in job.waited if one.cause is WaitCause.SLOT)
    return max(0.0, ready_s - sum(done.of_lanes.get(job.number, {}).values()))


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
