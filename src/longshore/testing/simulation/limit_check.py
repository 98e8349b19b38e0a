"""Limits, counted anew after every commit: never above, and no room stays empty while jobs wait.

It keeps to what users are promised, and shares no code with what decides: it counts the jobs that a
worker owns, and it writes down when each job of a key began. Of a rate it knows this much: in any
time t at most `burst + t * units / per_s` units begin. A rule for a kind or a queue is about all of
its jobs. And when a worker is lost, a store that is asked who holds the keys of its jobs names just
those jobs that have an owner.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate
from typing import Final
from uuid import UUID

from msgspec import Struct, structs

from longshore.core.lifecycle import OWNED
from longshore.model.group import NOT_RUN, GroupPart
from longshore.model.job import Job, JobState
from longshore.model.limits import JobLimit, LimitRule, Rate
from longshore.testing.simulation.database import Committed, Removed
from longshore.testing.simulation.promises import BrokenPromise, Promise
from longshore.testing.simulation.snapshots import Snapshot

_ROUNDING_US: Final = 2
"""By so much per unit a rate may be off: a store counts whole microseconds."""
_CARRIED_US: Final = 30_000_000
"""For so long what began under other bounds may still use up a rate."""


class Bounds(Struct, frozen=True):
    """What limits a key now."""

    concurrency: int | None
    rate: Rate | None


class Began(Struct, frozen=True):
    """Units of a key that began, and when, in microseconds."""

    at: int
    units: int


class LimitCheck:
    """Knows the rules and what began; `now` is the store's clock, `job` reads a job."""

    def __init__(self, now: Callable[[], int], job: Callable[[UUID], Job]) -> None:
        self._now = now
        self._job = job
        self._limits: dict[UUID, tuple[JobLimit, ...]] = {}
        self._lanes: dict[UUID, tuple[str, str]] = {}
        """The keys of a job's kind and queue."""
        self._rules: dict[str, LimitRule] = {}
        self._groups: dict[UUID, JobLimit | None] = {}
        self._began: dict[tuple[str, Bounds], list[Began]] = {}
        self._bounds: dict[str, Bounds] = {}
        self._since: dict[str, int] = {}

    def check(
        self, commit: Committed, begun: Iterable[UUID], shots: Mapping[UUID, Snapshot]
    ) -> None:
        """What one commit began, beside what ran and what began before."""
        self._note_rule(commit)
        limited = [job for job in begun if self.limits(job)]
        for job in limited:
            for limit in self.limits(job):
                self._check_count(job, limit, shots)
                self._check_rate(job, limit)

    def limits(self, job: UUID) -> tuple[JobLimit, ...]:
        """The keys of a job, with what it brings for them."""
        if job not in self._limits:
            found = self._job(job)
            self._limits[job] = found.options.limits
            self._lanes[job] = (f"kind={found.kind}", f"queue={found.queue}")
            if (of_group := self._of_group(found)) is not None:
                named = [one for one in self._limits[job] if one.key != of_group.key]
                self._limits[job] = (*named, of_group)
        own = self._limits[job]
        of_lane = (key for key in self._lanes[job] if self._rule_of(key) is not None)
        return (*own, *(JobLimit(key) for key in of_lane if all(one.key != key for one in own)))

    def _of_group(self, job: Job) -> JobLimit | None:
        """The limit of its group, whatever the store has written into the job."""
        limit = None if job.group is None else self._groups.get(job.group)
        if limit is None or job.kind in NOT_RUN:
            return None
        return structs.replace(limit, key=f"group={job.group}")

    def check_slots(
        self, lost: Iterable[UUID], shots: Mapping[UUID, Snapshot], held_of: Callable[[str], int]
    ) -> None:
        """These jobs lost their worker: nobody holds their keys but jobs that have an owner."""
        keys = {limit.key: job for job in lost for limit in self.limits(job)}
        for key, job in sorted(keys.items()):
            held, owned = held_of(key), self.held(key, shots)
            if held != owned:
                text = f"its worker is lost, and {held} slots of {key} are held by {owned} jobs"
                raise BrokenPromise(Promise.SLOTS, text, job)

    def has_room(self, job: UUID, shots: Mapping[UUID, Snapshot]) -> bool:
        """Whether every key of a job has room for it now."""
        return all(self._has_room(limit, shots) for limit in self.limits(job))

    def waiting(self, shots: Mapping[UUID, Snapshot]) -> list[UUID]:
        """The ready jobs with limits."""
        ready = (job for job, shot in shots.items() if shot.state is JobState.READY)
        return [job for job in ready if self.limits(job)]

    def _note_rule(self, commit: Committed) -> None:
        match commit.about:
            case LimitRule() as rule:
                self._rules[rule.pattern] = rule
            case Removed(pattern):
                self._rules.pop(pattern, None)
            case GroupPart(head=head):
                self._groups[head.id] = head.limit

    def _bounds_of(self, limit: JobLimit) -> Bounds:
        """The rule of the key itself, or else of its longest pattern, or else the job's own."""
        rule = self._rule_of(limit.key)
        if rule is not None:
            return Bounds(rule.concurrency, rule.rate)
        return Bounds(limit.concurrency, limit.rate)

    def _rule_of(self, key: str) -> LimitRule | None:
        patterns = [one for one in self._rules if one.endswith("*")]
        longest_first = sorted(patterns, key=len, reverse=True)
        for pattern in (key, *(p for p in longest_first if key.startswith(p[:-1]))):
            if rule := self._rules.get(pattern):
                return rule
        return None

    def held(self, key: str, shots: Mapping[UUID, Snapshot]) -> int:
        """How many jobs hold a slot of a key."""
        owned = (job for job, shot in shots.items() if shot.state in OWNED)
        return sum(any(limit.key == key for limit in self.limits(job)) for job in owned)

    def _check_count(self, job: UUID, limit: JobLimit, shots: Mapping[UUID, Snapshot]) -> None:
        most, held = self._bounds_of(limit).concurrency, self.held(limit.key, shots)
        if most is not None and held > most:
            text = f"it began as one of {held} of {limit.key}, of which {most} may run at once"
            raise BrokenPromise(Promise.LIMITS, text, job)

    def _check_rate(self, job: UUID, limit: JobLimit) -> None:
        bounds = self._bounds_of(limit)
        began = self._log(limit.key, bounds)
        if bounds.rate is None:
            return
        began.append(Began(self._now(), limit.units))
        if not _keeps_to(bounds.rate, began):
            text = f"it began, and {limit.key} then had more than {_words(bounds.rate)}"
            raise BrokenPromise(Promise.LIMITS, text, job)

    def _log(self, key: str, bounds: Bounds) -> list[Began]:
        """What began under these bounds: other bounds begin with a clean sheet."""
        if self._bounds.get(key) != bounds:
            self._bounds[key], self._since[key] = bounds, self._now()
            self._began[key, bounds] = []
        return self._began[key, bounds]

    def has_slots(self, job: UUID, shots: Mapping[UUID, Snapshot]) -> bool:
        """Whether one more of each of its keys may run, whatever their rates say."""
        return all(self._has_slot(limit, shots) for limit in self.limits(job))

    def _has_slot(self, limit: JobLimit, shots: Mapping[UUID, Snapshot]) -> bool:
        most = self._bounds_of(limit).concurrency
        return most is None or self.held(limit.key, shots) < most

    def _has_room(self, limit: JobLimit, shots: Mapping[UUID, Snapshot]) -> bool:
        bounds = self._bounds_of(limit)
        if not self._has_slot(limit, shots):
            return False
        if bounds.rate is None:
            return True
        began, now = self._log(limit.key, bounds), self._now()
        if now - self._since[limit.key] < _CARRIED_US:
            return False
        return _keeps_to(bounds.rate, [*began, Began(now, limit.units)])


def _keeps_to(rate: Rate, began: Sequence[Began]) -> bool:
    """Whether the last of these keeps to the rate, over every time that ends with it."""
    unit_us = rate.per_s * 1e6 / rate.units
    last = began[-1].at
    totals = accumulate(one.units for one in reversed(began))
    return all(
        (total - rate.burst) * unit_us <= last - one.at + total * _ROUNDING_US
        for total, one in zip(totals, reversed(began), strict=True)
    )


def _words(rate: Rate) -> str:
    return f"{rate.units} units in {rate.per_s:g} s, {rate.burst} at once"
