"""What an examination of a store finds."""

from __future__ import annotations

from enum import StrEnum
from uuid import UUID

from msgspec import Struct


class Trouble(StrEnum):
    """What is wrong."""

    COUNT = "count"
    """A job of a group, or a group, counts otherwise than its jobs have ended."""
    WAITING = "waiting"
    """A job waits although its condition holds."""
    NOT_CLOSED = "not_closed"
    """A group has not ended although its jobs have."""
    OWNER = "owner"
    """A worker that is not alive owns a job."""
    UNSERVED = "unserved"
    """Jobs are ready that no live worker serves."""


class Finding(Struct, frozen=True, omit_defaults=True):
    """One thing that is wrong, in words; `repaired` if it was healed at once."""

    trouble: Trouble
    words: str
    group: UUID | None = None
    job: UUID | None = None
    repaired: bool = False
