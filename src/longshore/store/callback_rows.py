"""The jobs of callbacks from the rows of what ended, on every store."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple
from uuid import UUID

from longshore.model.callback import CallbackTerms, Subject
from longshore.model.job import Submission
from longshore.model.notice import Notice
from longshore.payload.callback_jobs import callback_jobs
from longshore.store.rows import moment


class SubjectRow(NamedTuple):
    """What the row of a job or a group says now. `name` is a job's kind; times are stored ones."""

    number: int
    name: str
    round: int
    ended_at: int | None


def jobs_for(
    notices: Iterable[Notice], rows: Mapping[UUID, SubjectRow], now: int, terms: CallbackTerms
) -> list[Submission]:
    """The jobs that tell web addresses of these ends.

    The row has the time of the end unless a retry followed at once: then it is told as of now.
    """
    jobs: list[Submission] = []
    for one in notices:
        row = rows.get(one.subject)
        ended_at = row.ended_at if row is not None and row.round == one.round else None
        subject = None if row is None else Subject(row.number, row.name)
        jobs += callback_jobs(one, subject, moment(ended_at or now), terms)
    return jobs
