"""The rules by which a history is judged. Pure; each yields what breaks it.

A rule speaks of what was accepted: what a client did not hear of may have happened or not.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from itertools import pairwise

from msgspec import Struct

from longshore.testing.chaos.facts import ENDS, SUCCEEDED, Body, Facts, Job
from longshore.testing.chaos.history import PAUSED
from longshore.testing.chaos.outages import away_too_long, given_up
from longshore.testing.chaos.overlaps import limits_exceeded, two_owners


class Broken(Struct, frozen=True):
    """A rule that did not hold, of what, and how that is known."""

    rule: str
    promise: str
    subject: str
    words: str


Found = tuple[str, str]
"""Of what, and how that is known."""
Rule = Callable[[Facts], Iterator[Found]]


def lost(facts: Facts) -> Iterator[Found]:
    """A job that was accepted, or that ran, is in the store."""
    for job in facts.jobs.values():
        if job.found is None and (job.accepted is not None or job.bodies or job.seen):
            said = "the store does not know it" if job.is_missing else "it was never found again"
            yield job.name, f"it was accepted, and {said}"


def not_finished(facts: Facts) -> Iterator[Found]:
    """Every job ends once the faults are over."""
    for job in facts.jobs.values():
        if job.found is not None and job.found.state not in ENDS:
            yield job.name, f"it is {job.found.state} although all faults are over"
    for left in facts.left:
        yield f"{left.jobs} jobs", "; ".join(left.examples) or "they had not ended in time"


def wrong_end(facts: Facts) -> Iterator[Found]:
    """A job ends as its code says."""
    for job in facts.jobs.values():
        wanted = job.called.ends if job.called is not None else (SUCCEEDED,)
        if job.found is not None and job.found.state in ENDS and job.found.state not in wanted:
            said = f"it is {job.found.state}, not {' or '.join(wanted)}"
            yield job.name, f"{said}: {job.found.why}" if job.found.why else said


def recorded_twice(facts: Facts) -> Iterator[Found]:
    """Everybody is told the same outcome, and the history has one end."""
    for job in facts.jobs.values():
        if job.found is None:
            continue
        if len(job.found.ends) > 1:
            yield job.name, f"its history has {len(job.found.ends)} ends: {job.found.ends}"
        known = {(one.state, one.attempt) for one in job.seen}
        known.add((job.found.state, job.found.attempt))
        if len(known) > 1:
            told = ", ".join(f"{state} by attempt {a or '-'}" for state, a in sorted(known))
            yield job.name, f"it has several outcomes: {told}"


def without_body(facts: Facts) -> Iterator[Found]:
    """A success is the success of a body that came to its end."""
    for job in facts.jobs.values():
        if job.succeeded and job.found is not None and job.found.attempt:
            body = facts.bodies.get((job.id, job.found.attempt))
            if body is None or not body.is_over:
                yield job.name, f"attempt {job.found.attempt} succeeded, and no such body ended"


def children(facts: Facts) -> Iterator[Found]:
    """What a job submits or adds with its success exists once, or not at all."""
    for job in facts.jobs.values():
        if job.called is None or not job.called.children or job.found is None:
            continue
        wanted = job.called.children if job.succeeded else 0
        if len(facts.children[job.id]) != wanted:
            yield job.name, f"{len(facts.children[job.id])} of its children ran, not {wanted}"


def too_early(facts: Facts) -> Iterator[Found]:
    """A job of a group begins when all it depends on have ended, what they added too."""
    for job in facts.jobs.values():
        if job.called is None or not job.called.after or not job.bodies:
            continue
        if job.found is not None and job.found.state == "dependency_failed":
            yield job.name, "it ran, although what it depends on has failed"
        first = min(body.began for body in job.bodies)
        for before in job.called.after:
            for one in (before, *facts.children[before]):
                if (ended := _ended(facts.jobs.get(one))) is not None and first < ended:
                    yield job.name, f"it began {ended - first:.3f} s before the end of {one}"


def _ended(job: Job | None) -> float | None:
    """When the body ended whose outcome counts; None if no body says so."""
    if job is None or job.found is None:
        return None
    ended: list[Body] = [body for body in job.bodies if body.is_over]
    counts = [body for body in ended if body.attempt == job.found.attempt]
    return min((body.last for body in counts or ended), default=None)


def messages(facts: Facts) -> Iterator[Found]:
    """An actor applies the messages of a sender once each, in order, and all of them."""
    wanted = _wanted_messages(facts)
    for actor in sorted({actor for actor, _ in wanted} | set(facts.applied)):
        applied = facts.applied.get(actor)
        got: dict[str, list[int]] = defaultdict(list)
        for sender, n, _ in applied.entries if applied is not None else ():
            got[sender].append(n)
        for sender in sorted({s for a, s in wanted if a == actor} | set(got)):
            least = wanted.get((actor, sender), 0)
            if (fault := _fault_in(got[sender], least, sender)) is not None:
                yield f"{actor} from {sender}", fault


def _wanted_messages(facts: Facts) -> dict[tuple[str, str], int]:
    """How many messages of each sender an actor must have applied."""
    wanted = dict(facts.sent)
    for actor, applied in facts.applied.items():
        for to, n in Counter(to for _, _, to in applied.entries if to).items():
            wanted[to, f"ledger:{actor}"] = n
    for job in facts.jobs.values():
        if job.called is not None and job.called.sends_to and job.found is not None:
            wanted[job.called.sends_to, job.id] = int(job.succeeded)
    return wanted


def _fault_in(got: list[int], least: int, sender: str) -> str | None:
    counts = Counter(got)
    if doubled := [n for n, times in counts.items() if times > 1]:
        return f"message {doubled[0]} was applied {counts[doubled[0]]} times"
    if missing := [n for n in range(1, least + 1) if n not in counts]:
        return f"{len(missing)} of {least} were lost, the first is {missing[0]}"
    if got != sorted(got):
        at = next(n for n, (a, b) in enumerate(pairwise(got)) if a > b)
        return f"message {got[at]} came before {got[at + 1]}"
    if not sender.startswith("client") and len(got) > least:
        return f"{len(got)} were applied, and only {least} can have been sent"
    return None


def schedules(facts: Facts) -> Iterator[Found]:
    """Each nominal time has one fate, and what was submitted for it has ended."""
    for name, found in facts.fires.items():
        subjects = Counter(subject for *_, subject, _ in found.fires if subject)
        for subject in (one for one, times in subjects.items() if times > 1):
            yield name, f"job {subject} stands for {subjects[subject]} nominal times"
        for before, after in pairwise(found.fires):
            lacking = round((after[0] - before[0]) / found.every_s) - before[2]
            if lacking:
                yield name, f"{lacking} nominal times after {before[0]:.0f} have no fate"
        for at, fate, _, subject, outcome in found.fires:
            if fate == PAUSED and found.paused_at:
                continue
            if fate not in ("submitted", "caught_up"):
                yield name, f"the nominal time {at:.0f} is {fate}, and all are to be submitted"
            elif not subject or not outcome:
                yield name, f"the nominal time {at:.0f} was submitted, and has no outcome"


def callbacks(facts: Facts) -> Iterator[Found]:
    """Who asked to be called is called, and told how it ended."""
    for job in facts.jobs.values():
        if job.called is None or not job.called.callback or job.found is None:
            continue
        if not job.told and job.found.state in ENDS:
            yield job.name, "nobody was told that it has ended"
        if any(told.state != job.found.state for told in job.told):
            said = sorted({told.state for told in job.told})
            yield job.name, f"it is {job.found.state}, and {' and '.join(said)} was told"


def versions(facts: Facts) -> Iterator[Found]:
    """A success publishes its files once; nothing else does."""
    if facts.versions is None:
        return
    made = Counter(facts.versions.jobs)
    for job in facts.jobs.values():
        publishes = job.called is not None and job.called.files and job.found is not None
        if publishes and job.found is not None and made[job.id] != int(job.succeeded):
            yield job.name, f"it is {job.found.state} and published {made[job.id]} versions"


def refused(facts: Facts) -> Iterator[Found]:
    """Nothing sound is refused for good."""
    for one in facts.refused:
        yield one.subject, one.why


RULES: dict[str, tuple[str, Rule]] = {
    "lost": ("G1", lost),
    "not finished": ("G3", not_finished),
    "wrong end": ("G3", wrong_end),
    "recorded twice": ("G3", recorded_twice),
    "success without a body": ("G2", without_body),
    "children": ("G3", children),
    "two owners": ("G6", two_owners),
    "too early": ("G5", too_early),
    "messages": ("G7", messages),
    "limit exceeded": ("G6", limits_exceeded),
    "nominal times": ("G3", schedules),
    "callbacks": ("G3", callbacks),
    "versions": ("G3", versions),
    "refused": ("G8", refused),
    "away too long": ("G8", away_too_long),
    "given up": ("G8", given_up),
}
"""Each rule with the promise that it checks."""


def broken_rules(facts: Facts) -> Iterator[Broken]:
    """All that is wrong."""
    for name, (promise, rule) in RULES.items():
        for subject, words in rule(facts):
            yield Broken(name, promise, subject, words)
