"""Finishes on the PostgreSQL store: one UPDATE for the batch, fenced by the tokens.

Both states that an attempt's end can lead to, from `running` and from `cancelling`, travel with it,
taken from the one table of moves; the database only picks one by the state it finds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final
from uuid import UUID

import asyncpg
import msgspec

from longshore.core.lifecycle import KEEPS_ERROR, TERMINAL, after_finish, judge
from longshore.errors import StoreUnavailable
from longshore.model.job import (
    Finish,
    Finished,
    JobError,
    JobState,
    Outcome,
    Refused,
    Submission,
    Submitted,
    Verdict,
)
from longshore.store.postgres_lines import TURNS, Transaction
from longshore.store.postgres_marks import Marks
from longshore.store.postgres_sql import CODES, FINISH, JUDGED, NOTE, STATES
from longshore.store.rows import clean, pack_error

FARTHEST_S: Final = 2.5e11
"""No delay leads past what a calendar can show."""

_INT64: Final = range(-(2**63), 2**63)
_READY: Final = CODES[JobState.READY]
_LEADS_TO: Final = {
    outcome: (
        CODES[after_finish(JobState.RUNNING, outcome)],
        CODES[after_finish(JobState.CANCELLING, outcome)],
    )
    for outcome in Outcome
}
_FAILURES: Final = (Outcome.FAILED, Outcome.RETRIED)

_json = msgspec.json.Encoder()

Sent = tuple[Finish, int, Submission]
"""A submission, the finish whose outbox it was in, and its index there."""

_Shape = tuple[Outcome, str, str, bool, bool, float, JobError | None, UUID | None]


def quoted(text: str, *, ascii_only: bool = False) -> str:
    """A text as JSON that any database can keep."""
    if not text:
        return '""'
    kept = clean(text)
    if ascii_only:
        kept = kept.encode("ascii", "replace").decode()
    return _json.encode(kept).decode()


class Records:
    """The finishes of one transaction."""

    def __init__(self, tx: Transaction, marks: Marks) -> None:
        self.freed: Counter[int] = Counter()
        self.sent: list[Sent] = []
        self._tx = tx
        self._marks = marks

    async def record(self, finishes: Sequence[Finish]) -> list[Finished]:
        """Ends the attempts that still own their jobs; answers item by item."""
        answers: list[Finished | None] = [None] * len(finishes)
        left = [place for place, finish in enumerate(finishes) if finish.token in _INT64]
        for _ in range(TURNS):
            rows = await self._end([finishes[place] for place in left])
            for row in rows:
                place = left[row["place"] - 1]
                answers[place] = self._recorded(finishes[place], STATES[row["state"]])
            if len(rows) == len(left):
                break
            left = await self._judge(finishes, left, answers)
            if not left:
                break
        else:
            raise StoreUnavailable("jobs changed too often while they were finished; try again")
        return [
            answer or Finished(finish.job, finish.token, Verdict.STALE)
            for finish, answer in zip(finishes, answers, strict=True)
        ]

    def _recorded(self, finish: Finish, state: JobState) -> Finished:
        if finish.outbox and state is JobState.SUCCEEDED:
            self.sent += [(finish, index, job) for index, job in enumerate(finish.outbox)]
        return Finished(finish.job, finish.token, Verdict.RECORDED, state)

    async def _end(self, finishes: list[Finish]) -> list[asyncpg.Record]:
        if not finishes:
            return []
        rows = await self._tx.fetch(FINISH, *_columns(finishes, careful=self._tx.careful))
        counts = Counter((row["lane"], row["was"], row["state"]) for row in rows)
        for (lane, was, state), count in counts.items():
            self._tx.count(lane, was, state, count)
            if state == _READY:
                self.freed[lane] += count
        if self.freed:
            for row in rows:
                if row["state"] == _READY:
                    place = (row["rank"], row["number"])
                    self._marks.put_back(row["lane"], row["urgency"], place)
        return rows

    async def _judge(
        self, finishes: Sequence[Finish], left: list[int], answers: list[Finished | None]
    ) -> list[int]:
        """Answers what was not recorded; left is what would have been, had it not just changed."""
        self._tx.rest_on_found()
        unanswered = [place for place in left if answers[place] is None]
        rows = await self._tx.fetch(JUDGED, [finishes[place].job for place in unanswered])
        found = {row["id"]: (STATES[row["state"]], row["token"], row["worker"]) for row in rows}
        again = []
        for place in unanswered:
            finish = finishes[place]
            if finish.job not in found:
                continue
            state, token, worker = found[finish.job]
            verdict = judge(state, token, worker, finish)
            if verdict is Verdict.RECORDED:
                again.append(place)
            elif verdict is Verdict.ALREADY_RECORDED:
                answers[place] = Finished(finish.job, finish.token, verdict, state)
        return again

    async def note(self, taken: Sequence[Submitted | Refused]) -> None:
        """Outbox items that cannot be stored are named in the history of the job that sent them."""
        notes: dict[int, tuple[Finish, list[str]]] = {}
        for (finish, index, _), answer in zip(self.sent, taken, strict=True):
            if isinstance(answer, Refused):
                start = [finish.info] if finish.info else []
                _, texts = notes.setdefault(id(finish), (finish, start))
                texts.append(f"outbox item {index} refused: {answer.message}")
        for finish, texts in notes.values():
            await self._tx.fetch(NOTE, finish.job, clean("; ".join(texts)))


def any_ended(answers: Sequence[Finished]) -> bool:
    """Whether a job ended with one of these."""
    return any(answer.state in TERMINAL for answer in answers)


def _columns(finishes: list[Finish], *, careful: bool) -> list[Sequence[object]]:
    """What `FINISH` takes: what differs from end to end in full, what they share once per shape."""
    shapes: dict[_Shape, int] = {}
    places = []
    for end in finishes:
        whose = (end.error, end.worker)
        shape = (end.outcome, end.by, end.info, end.crash, end.revoke, end.delay_s, *whose)
        place = shapes.get(shape)
        if place is None:
            place = shapes[shape] = len(shapes) + 1
        places.append(place)
    succeeded = Outcome.SUCCEEDED
    return [
        [end.job for end in finishes],
        [end.token for end in finishes],
        [end.result if end.outcome is succeeded else None for end in finishes],
        places,
        *zip(*(_shape_row(shape, careful) for shape in shapes), strict=True),
    ]


def _shape_row(shape: _Shape, careful: bool) -> tuple[object, ...]:
    outcome, by, info, crash, revoke, delay_s, error, worker = shape
    failed = outcome in _FAILURES
    return (
        *_LEADS_TO[outcome],
        pack_error(error) if failed else None,
        outcome in KEEPS_ERROR,
        min(delay_s, FARTHEST_S) if delay_s > 0 else 0.0,
        revoke or outcome is Outcome.RELEASED,
        int(failed and not crash),
        int(crash),
        quoted(by, ascii_only=careful) if by else None,
        quoted(info, ascii_only=careful),
        worker,
    )
