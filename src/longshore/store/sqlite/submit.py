"""Submits to the SQLite store: which jobs are new, and their rows."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Sequence
from itertools import zip_longest
from typing import Final
from uuid import UUID

from longshore.core.lanes import lane_of
from longshore.core.same_body import is_body
from longshore.model.attempt import Attempt
from longshore.model.job import JobState, Refused, Submission, Submitted
from longshore.model.worker import Lane, SessionKey
from longshore.store.rows import (
    bodies_or_whys,
    deadline_at,
    due_at,
    held_by_staging,
    history_entry,
    in_conflict,
    not_accepted,
    pack_options,
)
from longshore.store.sqlite.crowds import settle_crowds
from longshore.store.sqlite.fair import rank_submitted
from longshore.store.sqlite.limits import put_behind_waiting
from longshore.store.sqlite.sql import (
    HOLDERS,
    INSERT,
    INSERT_ALIKE,
    KNOWN,
    LARGEST,
    Bulk,
    Row,
    Value,
)
from longshore.store.sqlite.transaction import Transaction

_DATA_ERRORS: Final = (
    sqlite3.IntegrityError,
    sqlite3.DataError,
    sqlite3.InterfaceError,
    OverflowError,
    UnicodeEncodeError,
)

_ALIKE: Final = 16
"""From so many like jobs per group, on average, each group has a statement of its own."""

_Shared = tuple[int, JobState, *Row]
"""The lane and the state of some new jobs, and what else they have in common."""

_Holder = Submitted | UUID
"""The job that holds a unique key; or its group, while that is not there as a whole."""

Accepted = tuple[list[Submitted | Refused], Counter[int], list[Attempt]]


def accept(
    tx: Transaction,
    jobs: Sequence[Submission],
    slots: Sequence[SessionKey | None] = (),
    expiry_margin_s: float = 0.0,
) -> Accepted:
    """Stores the jobs that are new, and starts those that have a slot.

    Answers item by item, how many jobs became ready in which lanes, and the attempts that began.
    Most ids are new: `accept` looks them up only if the insert finds that some are not.
    """
    before = tx.last_number
    bodies = bodies_or_whys(jobs, tx.now)
    sound = [job for job, body in zip(jobs, bodies, strict=True) if not isinstance(body, str)]
    keyed = [job for job in sound if job.unique_key is not None]
    intake = SubmitBatch(tx, keyed, expiry_margin_s)
    if not intake.store(jobs, bodies, slots):
        tx.undo_jobs(before)
        intake = SubmitBatch(tx, sound, expiry_margin_s)
        intake.store(jobs, bodies, slots)
    accepted = intake.settle()
    if any(job.options.fair for job in jobs):
        rank_submitted(tx, jobs, accepted[0], before)
    if any(job.options.limits for job in jobs):
        put_behind_waiting(tx, jobs, accepted[0])
    if any(job.options.limits or job.options.debounce for job in jobs):
        settle_crowds(tx, jobs, accepted[0], before, accepted[1])
    return accepted


class SubmitBatch:
    """The jobs of one batch, taken one after another, written at once.

    It takes jobs that are not `looked_up` for new ones.
    """

    def __init__(
        self, tx: Transaction, looked_up: Sequence[Submission], expiry_margin_s: float
    ) -> None:
        self._tx = tx
        self._expiry_margin_s = expiry_margin_s
        self._answers: list[Submitted | Refused] = []
        self._started: list[Attempt] = []
        self._lanes: dict[int, Lane] = {}
        self._rows: dict[_Shared, list[Row]] = {}
        self._refused: dict[Value, str] = {}
        self._known = self._find_known(looked_up)
        self._holders = self._find_holders([job for job in looked_up if job.unique_key is not None])

    def _find_known(self, jobs: Sequence[Submission]) -> dict[int, tuple[int, int]]:
        """The numbers and bodies of the jobs that are stored already, by their ids as integers."""
        if not jobs:
            return {}
        ids = list(enumerate(job.id.bytes for job in jobs))
        found = KNOWN.find(self._tx.connection, ids)
        return {jobs[place].id.int: (number, body) for place, number, body in found}

    def _find_holders(self, jobs: Sequence[Submission]) -> dict[tuple[str, str | None], _Holder]:
        """The live jobs that have these jobs' unique keys."""
        if not jobs:
            return {}
        keys = [(place, job.kind, job.unique_key) for place, job in enumerate(jobs)]
        return {
            keys[place][1:]: UUID(hex=staging)
            if staging
            else Submitted(UUID(hex=id), number, existing=True)
            for place, number, id, staging in HOLDERS.find(self._tx.connection, keys)
        }

    def store(
        self,
        jobs: Sequence[Submission],
        bodies: Sequence[int | str],
        slots: Sequence[SessionKey | None],
    ) -> bool:
        """Takes all of them and writes those that are new; False if some were there after all."""
        self._answers = [
            self._take(job, body, slot) for job, body, slot in zip_longest(jobs, bodies, slots)
        ]
        return self._write()

    def _take(
        self, job: Submission, body: int | str, slot: SessionKey | None
    ) -> Submitted | Refused:
        """The answer to one job, as if those before it had been stored already."""
        if isinstance(body, str):
            return not_accepted(job.id, body)
        known = self._known.get(job.id.int)
        if known is not None:
            number, known_body = known
            is_repeat = is_body(job, body, known_body)
            return Submitted(job.id, number) if is_repeat else in_conflict(job.id)
        key = (job.kind, job.unique_key)
        if (holder := self._holders.get(key)) is not None:
            return held_by_staging(job, holder) if isinstance(holder, UUID) else holder
        number = self._tx.next_number()
        self._known[job.id.int] = (number, body)
        if job.unique_key is not None:
            self._holders[key] = Submitted(job.id, number, existing=True)
        self._add(job, body, number, slot)
        return Submitted(job.id, number)

    def _add(self, job: Submission, body: int, number: int, slot: SessionKey | None) -> None:
        """A new job as `INSERT` takes it."""
        now = self._tx.now
        options = job.options
        run_at = due_at(job, now)
        state = JobState.READY if run_at is None or run_at <= now else JobState.DELAYED
        history = history_entry(state, now)
        start: Row = (0, None, None)
        attempt: tuple[int, int | None, int | None] = (0, None, None)
        if slot is not None and state is JobState.READY:
            state = JobState.RUNNING
            owner, entry = self._tx.owner(slot.worker)
            history = f"{history},{entry}"
            start = (self._slot(job, number, slot), owner, slot.session)
            attempt = (1, now, self._tx.expires_at(options.timeout_s, self._expiry_margin_s))
        lane = lane_of(job.queue, job.kind, job.target)
        self._lanes[lane.hash] = lane
        shared: _Shared = (
            lane.hash,
            state,
            job.priority,
            now,
            run_at,
            options.timeout_s,
            job.kind,
            job.queue,
            job.target,
            job.unique_key,
            pack_options(options),
            deadline_at(job, run_at, now),
            *attempt,
            1 if options.watchers else None,
        )
        own = (number, job.id.bytes, body, job.args, f"[{history}]", *start)
        self._rows.setdefault(shared, []).append(own)

    def _slot(self, job: Submission, number: int, slot: SessionKey) -> int:
        """Begins the first attempt with the job; answers its token."""
        token, owner = self._tx.next_token(), (slot.worker, slot.session)
        of_job = job.id, number, token, job.kind, job.args, job.options
        within_s = job.options.expires_s
        started = Attempt(*of_job, *owner, 1, 0, 0, priority=job.priority, begin_within_s=within_s)
        self._started.append(started)
        return token

    def _write(self) -> bool:
        count = sum(map(len, self._rows.values()))
        if len(self._rows) == 1 or len(self._rows) * _ALIKE <= count:
            written = sum(
                self._insert(INSERT_ALIKE, rows, shared) for shared, rows in self._rows.items()
            )
        else:
            rows = [(*own, *shared) for shared, group in self._rows.items() for own in group]
            written = self._insert(INSERT, rows)
        return written + len(self._refused) == count

    def _insert(self, statement: Bulk, rows: list[Row], shared: Row = ()) -> int:
        """Writes rows by one statement; if that fails, which undoes it, by one for each half.

        Answers how many it wrote, and remembers why the database refused the others.
        """
        if len(rows) <= LARGEST:
            try:
                return statement.run(self._tx.connection, rows, shared)
            except _DATA_ERRORS as error:
                if len(rows) == 1:
                    self._refused[rows[0][0]] = str(error)
                    return 0
        middle = len(rows) // 2
        return self._insert(statement, rows[:middle], shared) + self._insert(
            statement, rows[middle:], shared
        )

    def settle(self) -> Accepted:
        """Counts what was written, and answers for all jobs."""
        ready: Counter[int] = Counter()
        for (lane, state, *_), rows in self._rows.items():
            count = sum(row[0] not in self._refused for row in rows)
            if count:
                self._tx.add_lane(self._lanes[lane])
                self._tx.count(lane, None, state, count)
                if state is JobState.READY:
                    ready[lane] += count
        if self._refused:
            self._answers = [self._or_refused(answer) for answer in self._answers]
            self._started = [one for one in self._started if one.number not in self._refused]
        return self._answers, ready, self._started

    def _or_refused(self, answer: Submitted | Refused) -> Submitted | Refused:
        if isinstance(answer, Submitted) and answer.number in self._refused:
            return not_accepted(answer.id, self._refused[answer.number])
        return answer
