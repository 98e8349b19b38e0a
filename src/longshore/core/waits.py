"""How long a job waited for what, after the fact.

Theory. A job's history says when it was in which state. What it waited for follows from the state,
except while it was ready: then its queue was paused, or it was behind a key, or else it waited for
a free slot. From when to when it was behind keys, and queues and groups were paused, the store
keeps (`Kept`). Of two causes at one moment the first that `why` would name counts: a pause, then a
key. So the times of all causes together are the time that the job waited, no more and no less.
What it waits for still is told by since when: so the answer changes only when something happens.

Only the last round counts. A history keeps its first entries and its last; the time between them is
`UNKNOWN`, and so is the time before the first stay, if the store no longer has all of them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from longshore.core.lifecycle import HISTORY_FIRST, HISTORY_LAST, OWNED, TERMINAL
from longshore.core.timing import SNOOZED, span
from longshore.model.group import GATE
from longshore.model.job import HistoryEntry, Job, JobState
from longshore.model.waited import MOST_STAYS, Kept, WaitCause, Waited, WaitedTime

_WORDS: Final = {
    WaitCause.DEPENDENCIES: "for jobs it depends on",
    WaitCause.DELAY: "for its time to come",
    WaitCause.BACKOFF: "between attempts",
    WaitCause.PAUSED_QUEUE: "for a paused queue",
    WaitCause.PAUSED_GROUP: "for its paused group",
    WaitCause.PAUSED_ACTOR: "for its paused actor",
    WaitCause.GATE: "for somebody to open it",
    WaitCause.SLOT: "for a free slot",
    WaitCause.UNKNOWN: "for what is no longer known",
}
_SHORTEST_S: Final = 0.001
_SHORTEST_TOLD_S: Final = 1.0
"""`why` does not speak of less."""

_WAITS: Final = frozenset({JobState.WAITING, JobState.DELAYED, JobState.READY})

_Interval = tuple[datetime, datetime]
_Part = tuple[WaitCause, str, _Interval]


class _Spell(NamedTuple):
    """A time that a job was in one state: which entry began it, and what the state before was."""

    state: JobState | None
    before: JobState | None
    info: str
    time: _Interval


def waited(job: Job, kept: Kept, now: datetime) -> tuple[Waited, ...]:
    """What a job waited for in its last round up to now, the longest first."""
    times: defaultdict[tuple[WaitCause, str], list[_Interval]] = defaultdict(list)
    still: dict[tuple[WaitCause, str], datetime] = {}
    for cause, key, (since, until) in _parts(job, kept, now):
        if until == now and job.state in _WAITS:
            still[cause, key] = since
        else:
            times[cause, key].append((since, until))
    found = [
        _summed(what, times[what], still.get(what)) for what in dict.fromkeys((*times, *still))
    ]
    told = [one for one in found if one.s > 0 or one.since is not None]
    return tuple(sorted(told, key=lambda one: (-one.s, one.cause, one.key)))


def _summed(
    what: tuple[WaitCause, str], times: Sequence[_Interval], still: datetime | None
) -> Waited:
    seconds = sum((until - since for since, until in times), timedelta()).total_seconds()
    kept = tuple(WaitedTime(*one) for one in times)
    return Waited(what[0], seconds, what[1], still, kept)


def waited_words(parts: Sequence[Waited]) -> str:
    """How long a job waited, and for what; empty if it did not."""
    if not parts:
        return ""
    each = ", ".join(f"{span(one.s)} {wait_words(one)}" for one in parts if one.s >= _SHORTEST_S)
    total = f"waited {span(sum(one.s for one in parts))}: {each}" if each else ""
    still = [f"waits {wait_words(one)} since {_clock(one.since)}" for one in parts if one.since]
    return "; ".join(filter(None, [total, *still]))


def worth_telling(parts: Sequence[Waited]) -> str:
    """`waited_words`, unless it waited so shortly that nobody asks."""
    return waited_words(parts) if sum(one.s for one in parts) >= _SHORTEST_TOLD_S else ""


def wait_words(part: Waited) -> str:
    """For what it waited."""
    return f"for {part.key} (limit)" if part.cause is WaitCause.LIMIT else _WORDS[part.cause]


def _clock(at: datetime) -> str:
    return at.strftime("%Y-%m-%d %H:%M:%S UTC")


def _parts(job: Job, kept: Kept, now: datetime) -> Iterator[_Part]:
    for spell in _spells(job, now):
        match spell.state:
            case None:
                yield WaitCause.UNKNOWN, "", spell.time
            case JobState.WAITING:
                yield from _waiting(job, kept, spell.time, now)
            case JobState.DELAYED:
                yield _delay(spell), "", spell.time
            case JobState.READY:
                yield from _ready(job, kept, spell.time, now)
            case _:
                yield from _held_ahead(job, spell)


def _spells(job: Job, now: datetime) -> Iterator[_Spell]:
    """The states that a job was in, in its last round; without a state where a gap is."""
    history = job.history
    has_gap = len(history) >= HISTORY_FIRST + HISTORY_LAST
    for place in range(_first_of_round(history), len(history)):
        entry, is_last = history[place], place == len(history) - 1
        if is_last and job.state in TERMINAL:
            return
        until = now if is_last else history[place + 1].at
        # A claim that was undone left no entry behind: only the job says where it is.
        state = job.state if is_last else entry.state
        gap = has_gap and place == HISTORY_FIRST - 1
        before = history[place - 1].state if place else None
        yield _Spell(None if gap else state, before, entry.info, (entry.at, max(entry.at, until)))


def _first_of_round(history: Sequence[HistoryEntry]) -> int:
    """The place of the entry with which the last round began."""
    places = range(len(history) - 1, 0, -1)
    return next((at for at in places if history[at - 1].state in TERMINAL), 0)


def _delay(spell: _Spell) -> WaitCause:
    is_retry = spell.before in OWNED and not spell.info.startswith(SNOOZED)
    return WaitCause.BACKOFF if is_retry else WaitCause.DELAY


def _waiting(job: Job, kept: Kept, time: _Interval, now: datetime) -> Iterator[_Part]:
    if job.options.turn:
        yield WaitCause.PAUSED_ACTOR, "", time
        return
    pauses = [(one.since, one.until or now) for one in kept.pauses if one.is_group]
    for part in _overlaps(time, pauses):
        yield WaitCause.PAUSED_GROUP, "", part
    for part in _without([time], pauses):
        yield WaitCause.DEPENDENCIES, "", part


def _ready(job: Job, kept: Kept, time: _Interval, now: datetime) -> Iterator[_Part]:
    pauses = [(one.since, one.until or now) for one in kept.pauses if not one.is_group]
    for part in _overlaps(time, pauses):
        yield WaitCause.PAUSED_QUEUE, "", part
    open_for = _without([time], pauses)
    for stay in kept.stays:
        for free in open_for:
            for part in _overlaps(free, [(stay.since, stay.until or now)]):
                yield WaitCause.LIMIT, stay.key, part
    rest = _without(open_for, [(one.since, one.until or now) for one in kept.stays])
    if len(kept.stays) >= MOST_STAYS:
        known = [(kept.stays[0].since, now)]
        for part in _without(rest, known):
            yield WaitCause.UNKNOWN, "", part
        rest = [part for one in rest for part in _overlaps(one, known)]
    for part in rest:
        yield WaitCause.GATE if job.kind == GATE else WaitCause.SLOT, "", part


def _held_ahead(job: Job, spell: _Spell) -> Iterator[_Part]:
    """A worker may have held the last attempt ahead of a free slot: it began later."""
    began, (since, until) = job.started_at, spell.time
    if spell.state is JobState.RUNNING and began is not None and since < began <= until:
        yield WaitCause.SLOT, "", (since, began)


def _overlaps(time: _Interval, others: Iterable[_Interval]) -> list[_Interval]:
    """The parts of a time that these others have too."""
    parts = [(max(time[0], since), min(time[1], until)) for since, until in others]
    return [(since, until) for since, until in parts if since < until]


def _without(times: Iterable[_Interval], others: Iterable[_Interval]) -> list[_Interval]:
    """What is left of these times without the others."""
    left = list(times)
    for since, until in others:
        cut = [((first, min(last, since)), (max(first, until), last)) for first, last in left]
        left = [part for both in cut for part in both if part[0] < part[1]]
    return left
