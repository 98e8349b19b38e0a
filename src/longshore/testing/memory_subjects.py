"""What the model in memory knows of the jobs and groups that callbacks tell of."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from uuid import UUID

from longshore.model.notice import Notice
from longshore.store.callback_rows import SubjectRow
from longshore.store.rows import micros
from longshore.testing.memory_rows import GroupRow, JobRow


def subjects(
    notices: Iterable[Notice], jobs: Mapping[UUID, JobRow], groups: Mapping[UUID, GroupRow]
) -> dict[UUID, SubjectRow]:
    """The rows of what ended, as far as they are still there."""
    found: dict[UUID, SubjectRow] = {}
    for one in notices:
        if one.is_group and (group := groups.get(one.subject)) is not None:
            of_group = group.number, group.head.name, group.round, _stored(group.ended_at)
            found[one.subject] = SubjectRow(*of_group)
        elif (row := jobs.get(one.subject)) is not None:
            job = row.job
            of_job = job.number, job.kind, job.round, _stored(job.ended_at)
            found[one.subject] = SubjectRow(*of_job)
    return found


def _stored(at: datetime | None) -> int | None:
    return None if at is None else micros(at)
