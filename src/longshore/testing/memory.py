"""A store in memory: the plainest thing that keeps the port's contract.

Every decision is the pure core's; this file only remembers. The stores on real databases are
checked against it, and it serves fast tests of whatever needs a store. It lives in one process and
one event loop: nothing here awaits, so every verb is one transaction.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from heapq import nsmallest
from itertools import zip_longest
from math import isnan
from uuid import UUID

from longshore.core.lanes import body_hash
from longshore.core.leases import ANOTHERS, is_anothers
from longshore.core.lifecycle import (
    MOVES,
    OWNED,
    REVOKES,
    TERMINAL,
    Event,
    after_finish,
    judge,
    move,
)
from longshore.core.placement import first_bytes
from longshore.errors import Conflict, InvalidInput
from longshore.model.job import (
    CancelVerdict,
    Claimed,
    Finish,
    Finished,
    JobError,
    JobState,
    LogEntry,
    Outcome,
    Reason,
    Refused,
    RetryVerdict,
    Submission,
    Submitted,
    Verdict,
)
from longshore.model.worker import (
    Attended,
    Gone,
    Late,
    Seat,
    Want,
    WorkerInfo,
)
from longshore.ports import Batch, Harvested, Hint, Promoted, Pumped
from longshore.testing.memory_pruning import MemoryPruning
from longshore.testing.memory_rows import (
    DispatcherRow,
    JobRow,
    WorkerRow,
    after,
    clean,
    new_row,
    unstorable,
)
from longshore.wire.messages import Stats

MAX_SWEPT = 1000


class MemoryStore(MemoryPruning):
    """The whole `Store` port over one dictionary of jobs. `utc` is its clock."""

    is_serial = False
    """It could well be; but then nobody would try how transactions overlap."""

    async def open(self) -> None:
        """There is nothing to connect to."""

    async def close(self) -> None:
        """Everything stays: another dispatcher may share it."""

    async def migrate(self) -> tuple[int, int]:
        """The schema is always this version's."""
        return 1, 1

    # the pump

    async def pump(self, dispatcher: UUID, batch: Batch) -> Pumped:
        """Records finishes, accepts submits and claims jobs, all at one moment."""
        now = self._utc()
        freed: set[int] = set()
        finished = [self._finish(finish, now, freed) for finish in batch.finishes]
        for finish, answer in zip(batch.finishes, finished, strict=True):
            if answer.verdict is Verdict.RECORDED and answer.state is JobState.SUCCEEDED:
                self._send(finish, now, freed)
        seated: list[Claimed] = []
        submitted = [
            self._submit(job, now, freed, self._if_free(seat, dispatcher), seated)
            for job, seat in zip_longest(batch.submits, batch.seats)
        ]
        claimed, left = self._claim_all(dispatcher, batch, now)
        if freed:
            self._hint(Hint.WORK)
        if any(answer.state in TERMINAL for answer in finished):
            self._hint(Hint.ENDED)
        taken = Counter(self._jobs[one.id].lane.hash for one in claimed)
        return Pumped(
            finished, submitted, seated + claimed, frozenset(freed), taken, frozenset(left)
        )

    def _submit(
        self,
        job: Submission,
        now: datetime,
        freed: set[int],
        seat: Seat | None = None,
        seated: list[Claimed] | None = None,
    ) -> Submitted | Refused:
        why = unstorable(job, now)
        if why is not None:
            message = f"job {job.id} was not accepted: {why}; correct it and submit again"
            return Refused(job.id, InvalidInput.code, message)
        known = self._jobs.get(job.id)
        if known is not None:
            return _repeated(job, known)
        holder = self._holder(job)
        if holder is not None:
            return Submitted(holder.id, holder.number, existing=True)
        self._last_number += 1
        row = self._jobs[job.id] = new_row(job, self._last_number, now)
        if row.state is not JobState.READY:
            return Submitted(job.id, row.number)
        if seat is None or seated is None or self._paused.get(row.lane.queue):
            freed.add(row.lane.hash)
        else:
            seated.append(self._place(row, seat, now))
        return Submitted(job.id, row.number)

    def _holder(self, job: Submission) -> JobRow | None:
        """The live job that has this one's unique key."""
        key = (job.kind, job.unique_key)
        return next(
            (
                row
                for row in self._jobs.values()
                if row.holds_its_key and (row.submission.kind, row.submission.unique_key) == key
            ),
            None,
        )

    def _finish(self, finish: Finish, now: datetime, freed: set[int]) -> Finished:
        row = self._jobs.get(finish.job)
        if row is None:
            return Finished(finish.job, finish.token, Verdict.STALE)
        verdict = judge(row.state, row.token, row.worker, finish)
        if verdict is Verdict.RECORDED:
            self._record(row, finish, now, freed)
        state = row.state if verdict is not Verdict.STALE else None
        return Finished(finish.job, finish.token, verdict, state)

    def _record(self, row: JobRow, finish: Finish, now: datetime, freed: set[int]) -> None:
        state = after_finish(row.state, finish.outcome)
        _count(row, finish)
        _keep_outcome(row, finish, state)
        if finish.revoke or finish.outcome is Outcome.RELEASED:
            row.token = self._next_token()
        if state is JobState.DELAYED:
            row.run_at = now if isnan(finish.delay_s) else after(now, finish.delay_s)
        elif state is JobState.READY:
            freed.add(row.lane.hash)
        row.enter(state, now, finish.by or str(row.worker), finish.info)

    def _send(self, finish: Finish, now: datetime, freed: set[int]) -> None:
        """Submits what an attempt caused; what is not accepted is noted with its end."""
        row = self._jobs[finish.job]
        for index, job in enumerate(finish.outbox):
            answer = self._submit(job, now, freed)
            if isinstance(answer, Refused):
                row.note(f"outbox item {index} refused: {answer.message}")

    def _claim_all(
        self, dispatcher: UUID, batch: Batch, now: datetime
    ) -> tuple[list[Claimed], set[int]]:
        """Serves the wants; answers also the lanes that were left because they have many bytes."""
        claimed: list[Claimed] = []
        left: set[int] = set()
        room = batch.max_bytes
        for want in batch.wants:
            some = self._claim(dispatcher, want, now, room)
            room -= sum(len(one.args) for one in some)
            claimed += some
            if room <= 0:
                left.update(want.lanes)
        return claimed, left

    def _claim(self, dispatcher: UUID, want: Want, now: datetime, room: int) -> list[Claimed]:
        seats = [seat for seat in want.seats if self._is_free_for(seat, dispatcher)]
        servable = (
            row
            for row in self._jobs.values()
            if row.state is JobState.READY
            and row.lane.hash in want.lanes
            and not self._paused.get(row.lane.queue)
        )
        first = nsmallest(len(seats), servable, key=lambda row: row.order)
        best = first_bytes(first, lambda row: len(row.submission.args), room)
        return [
            self._place(row, seat, now) for row, seat in zip(best, seats[: len(best)], strict=True)
        ]

    def _if_free(self, seat: Seat | None, dispatcher: UUID) -> Seat | None:
        return seat if seat is not None and self._is_free_for(seat, dispatcher) else None

    def _is_free_for(self, seat: Seat, dispatcher: UUID) -> bool:
        worker = self._workers.get(seat.worker)
        return (
            worker is not None
            and worker.alive
            and not worker.draining
            and worker.session == seat.session
            and worker.dispatcher == dispatcher
        )

    def _place(self, row: JobRow, seat: Seat, now: datetime) -> Claimed:
        row.token = self._next_token()
        row.worker, row.session = seat.worker, seat.session
        row.attempt += 1
        row.started_at = now
        timeout_s = row.submission.options.timeout_s
        expiring = timeout_s is not None
        row.expires_at = after(now, (timeout_s or 0) + self._expiry_margin_s) if expiring else None
        row.enter(MOVES[row.state][Event.CLAIMED], now, str(seat.worker))
        return row.claimed()

    def _next_token(self) -> int:
        self._last_token += 1
        return self._last_token

    # the keeper

    async def renew(self, dispatcher: UUID, name: str) -> None:
        """Says that a dispatcher lives, by changing its `renewed_no`."""
        new = DispatcherRow(dispatcher, name, started_at=self._utc())
        row = self._dispatchers.setdefault(dispatcher, new)
        row.name = name
        row.renewed_no += 1

    async def retire(self, dispatcher: UUID) -> None:
        """Removes a dispatcher that stops in good order."""
        self._dispatchers.pop(dispatcher, None)

    async def attend(
        self,
        dispatcher: UUID,
        info: WorkerInfo,
        *,
        draining: bool = False,
        session: int | None = None,
    ) -> Attended | Gone | Late:
        """Registers or adopts a worker: raises its session and says what is placed on it."""
        now = self._utc()
        row = self._workers.get(info.id)
        if row is None:
            first = 1 if session is None else session
            self._workers[info.id] = WorkerRow(info, dispatcher, draining, now, now, first)
            return Attended(first)
        if not row.alive:
            return Gone(row.ended_why)
        if is_anothers(row.info, info):
            return Gone(ANOTHERS)
        if session is not None and session <= row.session:
            return Late(row.session)
        row.info, row.dispatcher, row.attended_at = info, dispatcher, now
        row.draining = row.draining or draining
        row.session = row.session + 1 if session is None else session
        placed = self._owned_by(info.id)
        for job in placed:
            job.session = row.session
        return Attended(row.session, tuple(job.claimed() for job in placed))

    async def placed(self, seats: Sequence[Seat]) -> list[Claimed]:
        """The attempts these sessions own."""
        wanted = {(seat.worker, seat.session) for seat in seats}
        return [
            row.claimed()
            for row in self._jobs.values()
            if row.state in OWNED and (row.worker, row.session) in wanted
        ]

    async def set_draining(self, worker: UUID, draining: bool) -> bool:
        """A draining worker is given nothing more; answers whether there is such a live worker."""
        row = self._workers.get(worker)
        if row is None or not row.alive:
            return False
        row.draining = draining
        self._hint(Hint.CANCEL)
        return True

    async def draining(self, dispatcher: UUID) -> list[UUID]:
        """The live workers of this dispatcher that are to be given nothing more."""
        rows = self._workers.values()
        mine = (row for row in rows if row.alive and row.dispatcher == dispatcher)
        return [row.info.id for row in mine if row.draining]

    async def beat(self, dispatcher: UUID, beats: Mapping[UUID, Stats]) -> None:
        """These workers were heard of, if they are alive and this dispatcher's."""
        for worker, stats in beats.items():
            row = self._workers.get(worker)
            if row is not None and row.alive and row.dispatcher == dispatcher:
                row.beat_at, row.stats = self._utc(), stats

    async def harvest(
        self,
        worker: UUID,
        session: int,
        why: str,
        *,
        crash: bool,
        crash_limit: int,
        undelivered: Collection[int] = (),
    ) -> Harvested:
        """Declares a worker lost, if it is still in that session, and frees its jobs."""
        row = self._workers.get(worker)
        if row is None or not row.alive or row.session != session:
            return Harvested(False, 0, 0)
        row.alive, row.ended_at, row.ended_why = False, self._utc(), clean(why)
        limit = crash_limit if crash else None
        return self._free(self._owned_by(worker), why, limit, undelivered, lost=True)

    async def sweep(self, crash_limit: int) -> Harvested:
        """Frees jobs that are owned by a worker that is not alive."""
        alive = {worker for worker, row in self._workers.items() if row.alive}
        orphans = [
            row
            for row in self._jobs.values()
            if row.state in OWNED and row.worker is not None and row.worker not in alive
        ]
        why = "its worker is not alive"
        return self._free(orphans[:MAX_SWEPT], why, crash_limit, lost=False)

    def _free(
        self,
        rows: list[JobRow],
        why: str,
        crash_limit: int | None,
        undelivered: Collection[int] = (),
        *,
        lost: bool,
    ) -> Harvested:
        """Takes jobs from an owner that is gone; a crash limit says that the loss is a crash."""
        now = self._utc()
        for row in rows:
            self._lose(row, why, None if row.token in undelivered else crash_limit, now)
        requeued = [row for row in rows if row.state is JobState.READY]
        self._hint(Hint.WORK, Hint.ENDED)
        lanes = frozenset(row.lane.hash for row in requeued)
        return Harvested(lost, len(requeued), len(rows) - len(requeued), lanes)

    def _lose(self, row: JobRow, why: str, crash_limit: int | None, now: datetime) -> None:
        event = Event.LOST
        if crash_limit is not None and row.state is JobState.RUNNING:
            row.crashes += 1
            event = Event.POISONED if row.crashes >= crash_limit else Event.LOST
        if event is Event.POISONED:
            message = f"crashed {row.crashes} times and was given up; last: {clean(why)}"
            row.error = JobError(Reason.POISONOUS, message)
        self._happen(row, event, now, info=why)

    def _happen(
        self, row: JobRow, event: Event, now: datetime, by: str = "", info: str = ""
    ) -> None:
        """An event that the table allows in this state has its effect."""
        if event in REVOKES:
            row.token = self._next_token()
        state = MOVES[row.state][event]
        if row.state is JobState.CANCELLING and state is JobState.CANCELLED:
            row.result = row.error = None
        row.enter(state, now, by, info)

    async def promote(self, most: int = 1000) -> Promoted:
        """Makes delayed jobs ready whose time has come."""
        now = self._utc()
        delayed = sorted(
            ((row.run_at or now, row) for row in self._jobs.values() if _is_delayed(row)),
            key=lambda pair: (pair[0], pair[1].number),
        )
        due = [row for run_at, row in delayed if run_at <= now][:most]
        for row in due:
            self._happen(row, Event.CAME_DUE, now)
        if due:
            self._hint(Hint.WORK)
        left = delayed[len(due) :]
        next_s = max(0.0, (left[0][0] - now).total_seconds()) if left else None
        return Promoted(len(due), frozenset(row.lane.hash for row in due), next_s)

    async def overdue(self, most: int = 1000) -> list[Claimed]:
        """Running attempts past their timeout and the backstop's margin after it."""
        now = self._utc()
        late = (
            row
            for row in self._jobs.values()
            if row.state is JobState.RUNNING and row.expires_at is not None
            if row.expires_at <= now
        )
        return [row.claimed() for row in nsmallest(most, late, key=lambda row: row.number)]

    async def cancel(
        self, refs: Sequence[UUID | int], by: str = ""
    ) -> list[tuple[UUID | None, CancelVerdict]]:
        """Cancels what is not running, marks what is `cancelling`; answers in the order given."""
        now = self._utc()
        answers = [self._cancel(ref, by, now) for ref in refs]
        self._hint(Hint.CANCEL, Hint.ENDED)
        return answers

    def _cancel(self, ref: UUID | int, by: str, now: datetime) -> tuple[UUID | None, CancelVerdict]:
        row = self._find(ref)
        if row is None:
            return None, CancelVerdict.NOT_FOUND
        if row.state in TERMINAL:
            return row.id, CancelVerdict.ALREADY_ENDED
        if move(row.state, Event.CANCEL_ASKED) is None:
            return row.id, CancelVerdict.CANCELLING
        self._happen(row, Event.CANCEL_ASKED, now, by)
        if row.state is JobState.CANCELLING:
            row.cancel_asked_at = now
            return row.id, CancelVerdict.CANCELLING
        row.token = self._next_token()
        return row.id, CancelVerdict.CANCELLED

    async def cancelling(self, dispatcher: UUID) -> list[Claimed]:
        """Attempts being cancelled on this dispatcher's live workers."""
        mine = {
            worker
            for worker, row in self._workers.items()
            if row.alive and row.dispatcher == dispatcher
        }
        return [
            row.claimed()
            for row in self._jobs.values()
            if row.state is JobState.CANCELLING and row.worker in mine
        ]

    async def retry(
        self, refs: Sequence[UUID | int], by: str = ""
    ) -> list[tuple[UUID | None, RetryVerdict]]:
        """Opens a new round for jobs that ended without success."""
        now = self._utc()
        answers = [self._retry(ref, by, now) for ref in refs]
        self._hint(Hint.WORK)
        return answers

    def _retry(self, ref: UUID | int, by: str, now: datetime) -> tuple[UUID | None, RetryVerdict]:
        row = self._find(ref)
        if row is None:
            return None, RetryVerdict.NOT_FOUND
        if row.state is JobState.SUCCEEDED:
            return row.id, RetryVerdict.SUCCEEDED
        if move(row.state, Event.REOPENED) is None:
            return row.id, RetryVerdict.NOT_ENDED
        if row.submission.unique_key is not None and self._holder(row.submission) is not None:
            return row.id, RetryVerdict.UNIQUE_KEY_TAKEN
        row.round += 1
        row.failures = row.crashes = 0
        row.result = row.error = row.started_at = row.ended_at = None
        row.token = self._next_token()
        self._happen(row, Event.REOPENED, now, by, f"round {row.round}, retried by {by}")
        return row.id, RetryVerdict.RETRIED

    async def log(self, entries: Sequence[LogEntry]) -> None:
        """Keeps what attempts said, if their token is still the job's last; a repeat is dropped."""
        for entry in entries:
            row = self._jobs.get(entry.job)
            if row is not None and row.token == entry.token and abs(entry.seq) < 2**63:
                key = entry.job, entry.token, entry.seq
                self._logs.setdefault(key, entry)
                self._logged_at.setdefault(key, self._utc())

    async def set_paused(self, queue: str, paused: bool) -> None:
        """Pauses or resumes a queue. Claims see it at once."""
        self._paused[queue] = paused
        if not paused:
            self._hint(Hint.WORK)


def _repeated(job: Submission, known: JobRow) -> Submitted | Refused:
    """The same job again is the same answer; another job under its id is refused."""
    if body_hash(job) == known.body:
        return Submitted(job.id, known.number)
    message = f"job {job.id} exists with another body; give a new job a new id"
    return Refused(job.id, Conflict.code, message)


def _count(row: JobRow, finish: Finish) -> None:
    """Crashes and failures are counted apart."""
    if finish.crash:
        row.crashes += 1
    elif finish.outcome in (Outcome.FAILED, Outcome.RETRIED):
        row.failures += 1


def _keep_outcome(row: JobRow, finish: Finish, state: JobState) -> None:
    """The row holds the result or the error that belongs to the state it goes to."""
    if state is JobState.SUCCEEDED:
        row.result, row.error = finish.result, None
    elif state is JobState.CANCELLED:
        row.result = row.error = None
    elif finish.outcome in (Outcome.FAILED, Outcome.RETRIED):
        row.error = finish.error


def _is_delayed(row: JobRow) -> bool:
    return row.state is JobState.DELAYED
