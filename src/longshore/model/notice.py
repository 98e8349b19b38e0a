"""The end of a watched job or group, on its way to the watchers."""

from __future__ import annotations

from uuid import UUID

from msgspec import Struct

from longshore.model.job import JobError, JobState
from longshore.model.watcher import Watcher


class Notice(Struct, frozen=True):
    """The end of a round of a job or a group, with all that its watchers hear of it.

    It is complete: the job may run again, or be removed, before they do.
    """

    subject: UUID
    round: int
    state: JobState
    result: bytes | None
    error: JobError | None
    watchers: tuple[Watcher, ...]
    is_group: bool = False
    raw: bool = False
    """Whether the result is bytes as they are."""
