"""Judges a history: what was broken, what was found, and how long it took. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import pairwise

from msgspec import Struct

from longshore.testing.chaos import overlaps
from longshore.testing.chaos.facts import Facts, Struck
from longshore.testing.chaos.history import AnyEvent
from longshore.testing.chaos.outages import stalls
from longshore.testing.chaos.rules import RULES, Broken, broken_rules

MOST_SHOWN = 20
"""How many breaks of one rule are kept."""


class Recovery(Struct, frozen=True):
    """A fault, and how long after it was over the next outcome was heard of."""

    fault: int
    deed: str
    whom: str
    at_s: float
    lasted_s: float
    recovered_s: float | None
    stalled_s: float
    """The longest time without any outcome, from the strike to the recovery."""


class Explained(Struct, frozen=True):
    """Something that looks wrong and is not."""

    subject: str
    why: str


class Verdict(Struct, frozen=True, kw_only=True):
    """What a run has shown."""

    broken: tuple[Broken, ...]
    counts: dict[str, int]
    """How often each rule was broken."""
    sorts: dict[str, tuple[int, int]]
    """By sort of work: accepted, finished."""
    accepted: int
    unheard: int
    """Submitted, and never heard to be accepted: they may exist or not."""
    finished: int
    bodies: int
    at_once: dict[str, int]
    """For each key of a limit, how many bodies ran at once at most."""
    repeated: int
    """Jobs that were not told to fail and whose body began more than once."""
    most_repeated: int
    messages: int
    nominal_times: int
    explained: tuple[Explained, ...]
    recoveries: tuple[Recovery, ...]
    longest_stall_s: float
    longest_stall_at_s: float
    store_away_s: float
    """The longest time in which no PostgreSQL of the cluster accepted a commit."""
    late_s: float
    """How much longer than that Longshore was away, at most."""
    hiccups: int
    ended: dict[str, int]
    """Processes that ended by themselves and were started again, with how often."""
    storm_s: float
    drain_s: float
    outcomes_at_s: tuple[float, ...]
    """When clients heard of outcomes, in seconds of the storm."""

    @property
    def is_kept(self) -> bool:
        """Whether all promises were kept."""
        return not self.broken


def judge(events: Iterable[AnyEvent]) -> Verdict:
    """What this history shows."""
    facts = Facts.of(events)
    broken = list(broken_rules(facts))
    counts = Counter(one.rule for one in broken)
    heard = sorted(seen.at for job in facts.jobs.values() for seen in job.seen)
    began = facts.phases.get("storm", heard[0] if heard else 0.0)
    calm = facts.phases.get("calm", heard[-1] if heard else began)
    read = facts.phases.get("read", calm)
    stall_s, stall_at = _longest_stall(heard, began, calm)
    repeats = _repeats(facts)
    return Verdict(
        broken=_some_of_each(broken),
        counts={rule: counts[rule] for rule in RULES},
        sorts=_sorts(facts),
        accepted=sum(job.accepted is not None for job in facts.jobs.values()),
        unheard=sum(job.called is not None and job.accepted is None for job in facts.jobs.values()),
        finished=sum(job.found is not None for job in facts.jobs.values() if job.accepted),
        bodies=len(facts.bodies),
        at_once=overlaps.fullest(facts),
        repeated=len(repeats),
        most_repeated=max(repeats, default=0),
        messages=sum(facts.sent.values()),
        nominal_times=sum(count for one in facts.fires.values() for _, _, count, *_ in one.fires),
        explained=tuple(Explained(*one) for one in overlaps.explained(facts)),
        recoveries=tuple(_recovery(one, heard, began) for one in facts.faults.values()),
        longest_stall_s=stall_s,
        longest_stall_at_s=max(0.0, stall_at - began),
        store_away_s=max((one.seconds for one in facts.outages), default=0.0),
        late_s=max((one.late_s for one in stalls(facts)), default=0.0),
        hiccups=len(facts.hiccups),
        ended=dict(Counter(f"{one.whom.partition('.')[0]} ({one.code})" for one in facts.ended)),
        storm_s=calm - began,
        drain_s=max(0.0, read - calm),
        outcomes_at_s=tuple(round(at - began, 3) for at in heard),
    )


def _some_of_each(broken: list[Broken]) -> tuple[Broken, ...]:
    counts: Counter[str] = Counter()
    kept: list[Broken] = []
    for one in broken:
        counts[one.rule] += 1
        if counts[one.rule] <= MOST_SHOWN:
            kept.append(one)
    return tuple(kept)


def _sorts(facts: Facts) -> dict[str, tuple[int, int]]:
    accepted: Counter[str] = Counter()
    finished: Counter[str] = Counter()
    for job in facts.jobs.values():
        if job.called is not None and job.accepted is not None:
            accepted[job.called.sort] += 1
            finished[job.called.sort] += job.found is not None
    return {sort: (accepted[sort], finished[sort]) for sort in sorted(accepted)}


def _repeats(facts: Facts) -> list[int]:
    """How often bodies began that should begin once, of those that began again."""
    told_to_fail = {"flaky"}
    return [
        len(job.bodies)
        for job in facts.jobs.values()
        if len(job.bodies) > 1 and job.bodies[0].sort not in told_to_fail
    ]


def _longest_stall(heard: list[float], began: float, calm: float) -> tuple[float, float]:
    """The longest time of the storm in which no outcome was heard of, and when it began."""
    times = [began, *(at for at in heard if began < at <= calm), calm]
    gaps = [(after - before, before) for before, after in pairwise(times)]
    return max(gaps, default=(0.0, began))


def _recovery(struck: Struck, heard: list[float], began: float) -> Recovery:
    fault, healed = struck.fault, struck.healed
    after = next((at for at in heard if at >= healed), None)
    until = after if after is not None else healed
    times = [fault.at, *(at for at in heard if fault.at <= at <= until)]
    gaps = [b - a for a, b in pairwise(times)]
    return Recovery(
        fault.fault,
        fault.deed,
        fault.whom,
        round(fault.at - began, 3),
        round(healed - fault.at, 3),
        None if after is None else round(after - healed, 3),
        round(max(gaps, default=0.0), 3),
    )
