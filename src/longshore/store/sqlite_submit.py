"""Submits to the SQLite store: which jobs are new, and their rows."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Sequence
from itertools import zip_longest
from typing import Final
from uuid import UUID

from longshore.core.lanes import lane_of
from longshore.model.job import Claimed, JobState, Refused, Submission, Submitted
from longshore.model.worker import Lane, Seat
from longshore.store.rows import (
    body_or_why,
    due_at,
    history_entry,
    in_conflict,
    later,
    not_accepted,
    pack_options,
)
from longshore.store.sqlite_sql import HOLDERS, INSERT, KNOWN, LARGEST, Row, placed
from longshore.store.sqlite_transaction import Transaction

_DATA_ERRORS: Final = (
    sqlite3.IntegrityError,
    sqlite3.DataError,
    sqlite3.InterfaceError,
    OverflowError,
    UnicodeEncodeError,
)


Accepted = tuple[list[Submitted | Refused], set[int], list[Claimed]]


def accept(
    tx: Transaction,
    jobs: Sequence[Submission],
    seats: Sequence[Seat | None] = (),
    expiry_margin_s: float = 0.0,
) -> Accepted:
    """Takes in what is new, and seats those at once that have a seat.

    Answers item by item, the lanes in which jobs became ready, and the attempts that began.
    """
    intake = _Intake(tx, jobs, expiry_margin_s)
    answers = [
        intake.take(job, body, seat) for job, body, seat in zip_longest(jobs, intake.bodies, seats)
    ]
    refused = intake.store()
    if refused:
        answers = [
            not_accepted(answer.id, refused[answer.number])
            if isinstance(answer, Submitted) and answer.number in refused
            else answer
            for answer in answers
        ]
    seated = [one for one in intake.seated if one.number not in refused]
    return answers, intake.freed, seated


class _Intake:
    """The jobs of one batch, taken one after another, stored at once."""

    def __init__(self, tx: Transaction, jobs: Sequence[Submission], expiry_margin_s: float) -> None:
        self.freed: set[int] = set()
        self.seated: list[Claimed] = []
        self._expiry_margin_s = expiry_margin_s
        self.bodies = [body_or_why(job, tx.now) for job in jobs]
        self._tx = tx
        self._new: dict[int, tuple[Lane, JobState]] = {}
        self._rows: list[Row] = []
        sound = [
            job for job, body in zip(jobs, self.bodies, strict=True) if not isinstance(body, str)
        ]
        self._known = self._find_known(sound)
        self._holders = self._find_holders([job for job in sound if job.unique_key is not None])

    def _find_known(self, jobs: Sequence[Submission]) -> dict[int, tuple[int, int]]:
        """The numbers and bodies of those that are there already, by their ids as integers."""
        found = KNOWN.find(self._tx.connection, placed(job.id.bytes for job in jobs))
        return {jobs[row.place].id.int: (row.number, row.body) for row in found}

    def _find_holders(self, jobs: Sequence[Submission]) -> dict[tuple[str, str | None], Submitted]:
        """The live jobs that have these jobs' unique keys."""
        keys = [(place, job.kind, job.unique_key) for place, job in enumerate(jobs)]
        return {
            keys[row.place][1:]: Submitted(UUID(hex=row.id), row.number, existing=True)
            for row in HOLDERS.find(self._tx.connection, keys)
        }

    def take(self, job: Submission, body: int | str, seat: Seat | None) -> Submitted | Refused:
        """The answer to one job, as if those before it had been stored already."""
        if isinstance(body, str):
            return not_accepted(job.id, body)
        known = self._known.get(job.id.int)
        if known is not None:
            number, known_body = known
            return Submitted(job.id, number) if body == known_body else in_conflict(job.id)
        key = (job.kind, job.unique_key)
        if key in self._holders:
            return self._holders[key]
        number = self._tx.next_number()
        self._known[job.id.int] = (number, body)
        if job.unique_key is not None:
            self._holders[key] = Submitted(job.id, number, existing=True)
        self._add(job, body, number, seat)
        return Submitted(job.id, number)

    def _add(self, job: Submission, body: int, number: int, seat: Seat | None) -> None:
        """A new job as `INSERT` takes it."""
        now = self._tx.now
        run_at = due_at(job, now)
        state = JobState.READY if run_at is None or run_at <= now else JobState.DELAYED
        history = history_entry(state, now)
        start: Row = (0, None, None, 0, None, None)
        if seat is not None and state is JobState.READY:
            state = JobState.RUNNING
            history = f"{history},{history_entry(state, now, str(seat.worker))}"
            start = self._seat(job, number, seat)
        lane = lane_of(job.queue, job.kind, job.target)
        self._new[number] = (lane, state)
        row = (
            number,
            job.id.bytes,
            lane.hash,
            state,
            job.priority,
            now,
            run_at,
            job.options.timeout_s,
            body,
            job.kind,
            job.queue,
            job.target,
            job.unique_key,
            pack_options(job.options),
            f"[{history}]",
            job.args,
            *start,
        )
        self._rows.append(row)

    def _seat(self, job: Submission, number: int, seat: Seat) -> Row:
        """The first attempt begins with the job; what its row says of that."""
        now, timeout_s, token = self._tx.now, job.options.timeout_s, self._tx.next_token()
        started = Claimed(
            job.id,
            number,
            token,
            job.kind,
            job.args,
            job.options,
            seat.worker,
            seat.session,
            1,
            0,
            0,
        )
        self.seated.append(started)
        expires_at = None if timeout_s is None else later(now, timeout_s + self._expiry_margin_s)
        return token, seat.worker.bytes, seat.session, started.attempt, now, expires_at

    def store(self) -> dict[int, str]:
        """Writes the new rows; answers the numbers of those that the database refuses, and why."""
        refused: dict[int, str] = {}
        numbers = list(self._new)
        for start in range(0, len(numbers), LARGEST):
            piece = slice(start, start + LARGEST)
            self._insert(numbers[piece], self._rows[piece], refused)
        stored = (new for number, new in self._new.items() if number not in refused)
        for (lane, state), number in Counter(stored).items():
            self._tx.add_lane(lane)
            self._tx.count(lane.hash, None, state, number)
            if state is JobState.READY:
                self.freed.add(lane.hash)
        return refused

    def _insert(self, numbers: list[int], rows: list[Row], refused: dict[int, str]) -> None:
        """One statement for all; if it fails, which undoes it, one for each half."""
        try:
            INSERT.run(self._tx.connection, rows)
        except _DATA_ERRORS as error:
            if len(rows) == 1:
                refused[numbers[0]] = str(error)
                return
            middle = len(rows) // 2
            self._insert(numbers[:middle], rows[:middle], refused)
            self._insert(numbers[middle:], rows[middle:], refused)
