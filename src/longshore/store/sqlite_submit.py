"""Submits to the SQLite store: which jobs are new, and their rows."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Sequence
from typing import Final
from uuid import UUID

from longshore.core.lanes import lane_of
from longshore.model.job import JobState, Refused, Submission, Submitted
from longshore.model.worker import Lane
from longshore.store.rows import (
    body_or_why,
    due_at,
    history_entry,
    in_conflict,
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


def accept(
    tx: Transaction, jobs: Sequence[Submission]
) -> tuple[list[Submitted | Refused], set[int]]:
    """Takes in what is new; answers item by item, and the lanes in which jobs became ready."""
    intake = _Intake(tx, jobs)
    answers = [intake.take(job, body) for job, body in zip(jobs, intake.bodies, strict=True)]
    refused = intake.store()
    if refused:
        answers = [
            not_accepted(answer.id, refused[answer.number])
            if isinstance(answer, Submitted) and answer.number in refused
            else answer
            for answer in answers
        ]
    return answers, intake.freed


class _Intake:
    """The jobs of one batch, taken one after another, stored at once."""

    def __init__(self, tx: Transaction, jobs: Sequence[Submission]) -> None:
        self.freed: set[int] = set()
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

    def take(self, job: Submission, body: int | str) -> Submitted | Refused:
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
        self._add(job, body, number)
        return Submitted(job.id, number)

    def _add(self, job: Submission, body: int, number: int) -> None:
        """A new job as `INSERT` takes it."""
        now = self._tx.now
        run_at = due_at(job, now)
        state = JobState.READY if run_at is None or run_at <= now else JobState.DELAYED
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
            f"[{history_entry(state, now)}]",
            job.args,
        )
        self._rows.append(row)

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
