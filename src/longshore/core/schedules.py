"""What becomes of the nominal times of a schedule that are due.

A dispatcher reads a schedule with its fires and the store's time, `decide` says what is to happen,
and the store writes that if nobody else was faster. So each nominal time is decided once, and by
the store's clock alone. What is decided and not yet submitted stands in the store as a `pending`
fire: whoever submits it does so under an id that follows from the schedule and the nominal time.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from itertools import islice
from typing import Final
from uuid import UUID

from msgspec import msgpack, structs

from longshore.core.occurrences import candidates, due_at, next_look
from longshore.model.group import GroupPart
from longshore.model.ids import derive_id, derive_ids, fired_id
from longshore.model.job import JobState, Options, Scheduled, Submission
from longshore.model.schedule import (
    Catchup,
    Decision,
    Examined,
    Fate,
    Fire,
    Made,
    NewSchedule,
    Overlap,
    Rules,
    ScheduledBody,
    ScheduleState,
)
from longshore.model.watcher import ScheduleWatcher

MOST_TIMES: Final = 1000
"""So many nominal times one look decides. If more are due, the next look follows at once."""
MOST_QUEUED: Final = 1000
CANCEL_AGAIN_S: Final = 5.0
FIRES_KEPT: Final = 100
"""So many settled fires of a schedule are kept."""
ITSELF: Final = "longshore"
"""Who pauses a schedule whose runs fail."""

_FAILED: Final = frozenset({JobState.FAILED, JobState.DEPENDENCY_FAILED})
_encode: Final = msgpack.Encoder(uuid_format="bytes").encode
_body_decoder: Final = msgpack.Decoder(ScheduledBody)


def begun(new: NewSchedule, now: datetime) -> tuple[ScheduleState, datetime | None]:
    """How a schedule begins, or goes on after its times were changed: from now on."""
    return ScheduleState(now), look_after(new, now)


def look_after(new: NewSchedule, after: datetime) -> datetime | None:
    """When to look at a schedule whose times are decided up to `after`."""
    at = next_look(new.timing, after)
    return None if at is None else due_at(new.id, at, new.timing.jitter_s)


def decide(examined: Examined) -> Decision:
    """What becomes of the nominal times that are due, and of runs that wait or have ended."""
    look = _Look(examined)
    look.count_outcomes()
    look.submit_queued()
    look.decide_due()
    return look.decision()


class _Look:
    """One look at a schedule."""

    def __init__(self, examined: Examined) -> None:
        self._schedule = schedule = examined.schedule
        self._now = examined.now
        self._new = schedule.new
        self._rules: Rules = schedule.new.rules
        self._state = schedule.state
        self._fires = {fire.nominal_at: fire for fire in examined.fires}
        self._made: dict[datetime, Made] = {}
        self._more = False
        self._cancels: tuple[Fire, ...] = ()

    # what ended

    def count_outcomes(self) -> None:
        """Counts failures in a row, and pauses the schedule after too many."""
        ended = [fire for fire in self._fires.values() if fire.outcome is not None]
        for fire in sorted(ended, key=lambda fire: (fire.ended_at or self._now, fire.nominal_at)):
            self._count(fire)
            self._put(structs.replace(fire, settled=True, pending=False))
        after = self._rules.pause_after
        if 0 < after <= self._state.failures and self._state.paused_at is None:
            note = f"the last {self._state.failures} runs failed"
            self._set(paused_at=self._now, paused_by=ITSELF, note=note)

    def _count(self, fire: Fire) -> None:
        if fire.outcome is JobState.SUCCEEDED:
            last = max(filter(None, (self._state.last_success_at, fire.nominal_at)))
            self._set(failures=0, last_success_at=last)
        elif fire.outcome in _FAILED:
            self._set(failures=self._state.failures + 1)

    # what waits

    def _running(self) -> list[Fire]:
        return [fire for fire in self._fires.values() if fire.subject and not fire.settled]

    def _queued(self) -> list[Fire]:
        queued = (fire for fire in self._fires.values() if fire.fate is Fate.QUEUED)
        return sorted(queued, key=lambda fire: fire.nominal_at)

    def submit_queued(self) -> None:
        """Submits the first that waits, if nothing runs; all, if runs may overlap."""
        if self._state.paused_at is not None:
            return
        is_free = self._rules.overlap is Overlap.ALLOW
        for fire in self._queued():
            if is_free or not self._running():
                self._submit(fire.nominal_at, fire.late, fire.why)

    # what is due

    def decide_due(self) -> None:
        due, later = self._due()
        if self._state.paused_at is not None:
            for at in due:
                self._skip(at, Fate.SKIPPED, "the schedule was paused")
            return
        for place, at in enumerate(due):
            self._decide(at, len(due) - place - 1 + later)

    def _due(self) -> tuple[list[datetime], int]:
        """The times to decide now, and how many more are due after them (as far as it matters)."""
        due: list[datetime] = []
        found = candidates(self._new.timing, self._state.decided_to)
        for at, is_excluded in islice(found, MOST_TIMES):
            if not self._is_due(at):
                return due, 0
            due += [at] * (not is_excluded)
            self._set(decided_to=at)
        ahead = list(islice(found, max(1, self._rules.count)))
        self._more = any(self._is_due(at) for at, _ in ahead)
        return due, sum(self._is_due(at) for at, is_excluded in ahead if not is_excluded)

    def _is_due(self, at: datetime) -> bool:
        return due_at(self._new.id, at, self._new.timing.jitter_s) <= self._now

    def _decide(self, at: datetime, later: int) -> None:
        """Decides one time; `later` ones are due too."""
        rules = self._rules
        age_s = (self._now - due_at(self._new.id, at, self._new.timing.jitter_s)).total_seconds()
        if age_s <= rules.grace_s:
            self._overlap(at, late=False)
        elif rules.catchup is Catchup.NONE:
            self._skip(at, Fate.EXPIRED, "it was missed, and nothing is caught up (catchup none)")
        elif age_s > rules.window_s:
            why = f"it was missed by more than the {rules.window_s:g} s that are caught up"
            self._skip(at, Fate.EXPIRED, why)
        elif rules.catchup is Catchup.LATEST and later:
            self._skip(at, Fate.SKIPPED, "it was missed, and a later time too (catchup latest)")
        elif rules.catchup is Catchup.ALL and later >= rules.count:
            why = f"it was missed, and the {rules.count:,} that are caught up are later"
            self._skip(at, Fate.SKIPPED, why)
        else:
            self._overlap(at, late=True)

    def _overlap(self, at: datetime, *, late: bool) -> None:
        """Submits, queues or skips a time, by what runs and waits."""
        running, queued = self._running(), self._queued()
        overlap = self._rules.overlap
        if overlap is Overlap.ALLOW or not (running or queued):
            self._submit(at, late)
        elif late and self._rules.catchup is Catchup.ALL and len(queued) < MOST_QUEUED:
            self._queue(at, late)
        elif overlap is Overlap.SKIP:
            first = min((fire.nominal_at for fire in (*running, *queued)), default=at)
            self._skip(at, Fate.SKIPPED, f"the run of {_text(first)} had not ended (overlap skip)")
        elif overlap is Overlap.CANCEL_RUNNING:
            for fire in queued:
                self._skip(fire.nominal_at, Fate.SKIPPED, f"the run of {_text(at)} replaced it")
            self._queue(at, late)
        elif overlap is Overlap.QUEUE_ONE and queued:
            why = f"the run of {_text(queued[0].nominal_at)} waited already (overlap queue_one)"
            self._skip(at, Fate.SKIPPED, why)
        elif len(queued) >= MOST_QUEUED:
            self._skip(at, Fate.SKIPPED, f"{MOST_QUEUED:,} waited already")
        else:
            self._queue(at, late)

    # what is written

    def _submit(self, at: datetime, late: bool, why: str = "") -> None:
        made = submitted(self._new, self._state, at, self._now, late=late, why=why)
        self._fires[at] = made.fire
        self._made[at] = made

    def _queue(self, at: datetime, late: bool) -> None:
        self._put(Fire(nominal_at=at, fate=Fate.QUEUED, late=late, decided_at=self._now))

    def _skip(self, at: datetime, fate: Fate, why: str) -> None:
        self._put(Fire(nominal_at=at, fate=fate, why=why, decided_at=self._now, settled=True))

    def _put(self, fire: Fire) -> None:
        self._fires[fire.nominal_at] = fire
        self._made[fire.nominal_at] = Made(fire)

    def _set(self, **changes: object) -> None:
        self._state = structs.replace(self._state, **changes)

    def decision(self) -> Decision:
        """All of it."""
        look_at = self._now if self._more else look_after(self._new, self._state.decided_to)
        if self._rules.overlap is Overlap.CANCEL_RUNNING and self._queued():
            self._cancels = tuple(self._running())
        if self._cancels:
            again = self._now + timedelta(seconds=CANCEL_AGAIN_S)
            look_at = again if look_at is None else min(look_at, again)
        made = tuple(_in_rows(self._made[at] for at in sorted(self._made)))
        schedule = self._schedule
        return Decision(self._new.id, schedule.version, self._state, look_at, made, self._cancels)


def _in_rows(made: Iterable[Made]) -> list[Made]:
    """Times in a row that were not submitted for the same reason are one fire."""
    rows: list[Made] = []
    for one in made:
        fire = one.fire
        last = rows[-1].fire if rows else None
        if last is not None and _is_alike(last, fire):
            count = last.count + fire.count
            rows[-1] = Made(structs.replace(last, last_at=fire.nominal_at, count=count))
        else:
            rows.append(one)
    return rows


def _is_alike(last: Fire, fire: Fire) -> bool:
    never = (Fate.SKIPPED, Fate.EXPIRED)
    return last.fate is fire.fate and fire.fate in never and last.why == fire.why


def _text(at: datetime) -> str:
    return at.strftime("%Y-%m-%dT%H:%M:%SZ")


# what is submitted


def submitted(
    new: NewSchedule,
    state: ScheduleState,
    nominal_at: datetime,
    now: datetime,
    *,
    late: bool = False,
    why: str = "",
    subject: UUID | None = None,
) -> Made:
    """A fire that submits, with what it submits."""
    id = subject or fired_id(new.id, round(nominal_at.timestamp() * 1_000_000))
    scheduled = Scheduled(new.name, nominal_at, state.last_success_at)
    watcher = ScheduleWatcher(new.id)
    if new.job is not None:
        options = _options(new.job.options, scheduled)
        options = structs.replace(options, watchers=(*options.watchers, watcher))
        body = ScheduledBody(new.name, new.by, job=structs.replace(new.job, id=id, options=options))
    else:
        assert new.group is not None
        body = ScheduledBody(new.name, new.by, group=_group(new.group, id, scheduled, watcher))
    fire = Fire(
        nominal_at=nominal_at,
        fate=Fate.CAUGHT_UP if late else Fate.SUBMITTED,
        why=why,
        decided_at=now,
        subject=id,
        is_group=new.job is None,
        pending=True,
    )
    return Made(fire, _encode(body))


def _options(options: Options, scheduled: Scheduled) -> Options:
    label = f"schedule={scheduled.schedule}"
    labels = options.labels if label in options.labels else (*options.labels, label)
    by = f"schedule:{scheduled.schedule}"
    return structs.replace(options, scheduled=scheduled, labels=labels, by=by)


def _group(part: GroupPart, id: UUID, scheduled: Scheduled, watcher: ScheduleWatcher) -> GroupPart:
    head = structs.replace(part.head, id=id, watchers=(*part.head.watchers, watcher))
    ids = derive_ids(id, range(len(part.nodes)))
    nodes = tuple(
        structs.replace(node, job=_node_job(node.job, id, scheduled))
        for id, node in zip(ids, part.nodes, strict=True)
    )
    return GroupPart(head, 0, nodes)


def _node_job(job: Submission, id: UUID, scheduled: Scheduled) -> Submission:
    return structs.replace(job, id=id, options=_options(job.options, scheduled))


def read_body(body: bytes) -> ScheduledBody:
    """What a fire submits."""
    return _body_decoder.decode(body)


# by hand


def triggered(examined: Examined, request: UUID) -> Decision:
    """A submit now, whatever runs. A repeat of the request is found by the id of its subject."""
    schedule, now = examined.schedule, examined.now
    why = "it was triggered by hand"
    subject = triggered_id(request)
    made = submitted(schedule.new, schedule.state, now, now, why=why, subject=subject)
    return _unchanged(examined, (made,))


def triggered_id(request: UUID) -> UUID:
    """The id of what the trigger of this request submits."""
    return derive_id(request, 0)


def backfilled(
    examined: Examined, first: datetime, last: datetime, known: Iterable[Fire], most: int
) -> Decision:
    """Queues the nominal times of a span that submitted nothing; `known` has the fires there.

    A fire of many times is taken apart: what is before and after the span stays as it was.
    """
    new, now = examined.schedule.new, examined.now
    last = min(last, now)
    known = list(known)
    taken = {fire.nominal_at for fire in known if fire.subject or fire.fate is Fate.QUEUED}
    found = candidates(new.timing, first - timedelta(microseconds=1))
    within = (at for at, is_excluded in found if not is_excluded and at not in taken)
    times: list[datetime] = []
    for at in within:
        if at > last or len(times) == most:
            break
        times.append(at)
    fires = {
        at: Fire(nominal_at=at, fate=Fate.QUEUED, late=True, why="backfilled", decided_at=now)
        for at in times
    }
    for fire in known:
        for piece in _pieces(fire, examined, set(times)):
            fires.setdefault(piece.nominal_at, piece)
    made = tuple(Made(fires[at]) for at in sorted(fires))
    return structs.replace(_unchanged(examined, made), look_at=now)


def _pieces(fire: Fire, examined: Examined, taken: set[datetime]) -> Iterable[Fire]:
    """What is left of a fire of many times, once some of them are taken."""
    if fire.count == 1 or fire.last_at is None:
        return []
    timing = examined.schedule.new.timing
    pieces: list[Fire] = []
    previous_was_taken = True
    for at, is_excluded in candidates(timing, fire.nominal_at - timedelta(microseconds=1)):
        if at > fire.last_at:
            break
        if is_excluded:
            continue
        if at in taken:
            previous_was_taken = True
        elif previous_was_taken:
            pieces.append(structs.replace(fire, nominal_at=at, last_at=None, count=1))
            previous_was_taken = False
        else:
            piece = pieces[-1]
            pieces[-1] = structs.replace(piece, last_at=at, count=piece.count + 1)
    return pieces


def _unchanged(examined: Examined, made: tuple[Made, ...]) -> Decision:
    schedule = examined.schedule
    ids = (schedule.new.id, schedule.version, schedule.state)
    return Decision(*ids, schedule.look_at, made)
