"""Bodies that ran side by side and should not have; and why that may be (G6). Pure.

A body is known to have run from its first sign of life to its last: nothing here is guessed. An
overlap is explained if one of the bodies was in a worker that nobody could make stop: frozen,
killed a moment ago, without a lease by its nature, or not scheduled by its machine.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator

from longshore.testing.chaos.app import AT_ONCE
from longshore.testing.chaos.facts import FREEZES, Body, Facts

WITHOUT_LEASE = frozenset({"raw", "web_step"})
KILLED_S = 1.0
"""So long after its worker was killed a body may be seen: its process is told by the system."""
STARVED_S = 0.4
"""A body that gives no sign of life for so long was not scheduled."""
THAWED_S = 3.0
"""So long after a freeze a worker may still find out that it has lost its jobs."""
Explained = tuple[str, str]
"""The body's name, and why it could run on."""


def two_owners(facts: Facts) -> Iterator[tuple[str, str]]:
    """Two bodies of one job never run at once, unless that is explained."""
    for job, one, other in _overlaps(facts):
        if not (explanation(facts, one) or explanation(facts, other)):
            both = f"attempts {one.attempt} on {one.worker} and {other.attempt} on {other.worker}"
            yield job, f"{both} ran at once for {_common_s(one, other):.3f} s"


def limits_exceeded(facts: Facts) -> Iterator[tuple[str, str]]:
    """At most so many bodies of a key run at once, unless that is explained."""
    for key, crowd in crowds(facts):
        if len(left := [body for body in crowd if not explanation(facts, body)]) > AT_ONCE:
            who = ", ".join(f"{body.job} on {body.worker}" for body in left)
            yield key, f"{len(left)} ran at once, and {AT_ONCE} may: {who}"


def explained(facts: Facts) -> list[Explained]:
    """The overlaps that break nothing, each with its reason."""
    found: list[Explained] = []
    for job, one, other in _overlaps(facts):
        why = explanation(facts, one) or explanation(facts, other)
        if why:
            found.append((job, why))
    for key, crowd in crowds(facts):
        reasons = [why for body in crowd if (why := explanation(facts, body))]
        if reasons and len(crowd) - len(reasons) <= AT_ONCE:
            found.append((key, reasons[0]))
    return found


def crowds(facts: Facts) -> Iterator[tuple[str, list[Body]]]:
    """Where more bodies of a key ran at once than may; one for each body that was too many."""
    return ((key, crowd) for key, crowd in _side_by_side(facts) if len(crowd) > AT_ONCE)


def fullest(facts: Facts) -> dict[str, int]:
    """For each key of a limit, how many bodies of it ran at once at most."""
    most: dict[str, int] = {}
    for key, crowd in _side_by_side(facts):
        most[key] = max(most.get(key, 0), len(crowd))
    return most


def _side_by_side(facts: Facts) -> Iterator[tuple[str, list[Body]]]:
    """Whenever a body of a key began, the bodies of that key that ran then."""
    by_key: dict[str, list[Body]] = defaultdict(list)
    for body in facts.bodies.values():
        for key in body.keys:
            by_key[key].append(body)
    for key, bodies in by_key.items():
        running: list[Body] = []
        for body in sorted(bodies, key=lambda one: one.began):
            running = [one for one in running if one.last > body.began]
            running.append(body)
            yield key, list(running)


def explanation(facts: Facts, body: Body) -> str:
    """Why nobody could make this body stop; empty if somebody could."""
    if body.sort in WITHOUT_LEASE:
        return f"a {body.sort} body knows no lease that it must heed"
    for struck in facts.faults.values():
        fault = struck.fault
        if fault.worker != body.worker or fault.at > body.last:
            continue
        if fault.deed in FREEZES and struck.healed + THAWED_S > body.began:
            return f"{body.worker} was frozen"
        if fault.deed in ("kill", "kill_child") and body.last < fault.at + KILLED_S:
            return f"{body.worker} was killed, and its processes end a moment later"
    if body.gap > STARVED_S:
        return f"the machine did not let the body run for {body.gap:.2f} s"
    if any(_within(one.at - one.seconds, one.at, body) for one in facts.hiccups):
        return "the machine stood still"
    return ""


def _within(since: float, until: float, body: Body) -> bool:
    return since <= body.last and until >= body.began


def _overlaps(facts: Facts) -> Iterator[tuple[str, Body, Body]]:
    for job in facts.jobs.values():
        bodies = sorted(job.bodies, key=lambda one: one.began)
        for one, other in _pairs(bodies):
            if _common_s(one, other) > 0:
                yield job.name, one, other


def _pairs(bodies: list[Body]) -> Iterable[tuple[Body, Body]]:
    return ((a, b) for n, a in enumerate(bodies) for b in bodies[n + 1 :])


def _common_s(one: Body, other: Body) -> float:
    return min(one.last, other.last) - max(one.began, other.began)
