"""Jobs as they were at one moment, so that two moments can be compared."""

from __future__ import annotations

from typing import Final, NamedTuple
from uuid import UUID

from longshore.model.actor import Timer
from longshore.model.job import JobState
from longshore.testing.memory_rows import ActorRow, JobRow


class Snapshot(NamedTuple):
    """A job as it was at one moment."""

    state: JobState
    token: int
    worker: UUID | None
    session: int
    round: int
    attempt: int
    failures: int
    crashes: int
    result: bytes | None


NOWHERE: Final = Snapshot(JobState.WAITING, 0, None, 0, 0, 0, 0, 0, None)
"""A job that is not there yet."""


class MailShot(NamedTuple):
    """A message in a mailbox."""

    number: int
    id: UUID
    name: str
    due_at: int | None


class ActorShot(NamedTuple):
    """An actor as it was at one moment."""

    type: str
    key: str
    paused: bool
    stopping: bool
    turn: int
    state: bytes
    starts: bool
    timers: tuple[Timer, ...]
    mail: tuple[MailShot, ...]


class WebShot(NamedTuple):
    """A registration of a web worker as it was at one moment."""

    worker: UUID
    gateway: UUID | None
    adoptions: int
    has_ended: bool


class Change(NamedTuple):
    """What one commit did to one job."""

    job: UUID
    before: Snapshot
    after: Snapshot


def shot_of(row: JobRow) -> Snapshot:
    """A job as it is now."""
    job = row.job
    return Snapshot(
        job.state,
        job.token,
        job.worker,
        row.session,
        job.round,
        job.attempt,
        job.failures,
        job.crashes,
        job.result,
    )


def shot_of_actor(row: ActorRow) -> ActorShot:
    """An actor as it is now."""
    last = row.last
    return ActorShot(
        row.type,
        row.key,
        row.paused and not row.stopping,
        row.stopping,
        last.n,
        last.state,
        last.starts,
        last.timers,
        tuple(
            MailShot(one.number, one.id, one.name, one.due_at)
            for _, one in sorted(row.mail.items())
        ),
    )
