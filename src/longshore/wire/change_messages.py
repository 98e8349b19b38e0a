"""The request that waits for a change (see `messages`)."""

from __future__ import annotations

from uuid import UUID

from msgspec import Struct

from longshore.wire.actor_messages import Numbered


class ChangeMark(Struct, frozen=True):
    """How many changes a dispatcher knows of, since its process started."""

    dispatcher: UUID
    number: int


class AwaitChange(Numbered, frozen=True):
    """Answer with the mark of now: once it is another than `seen`, or after `wait_s`."""

    seen: ChangeMark | None = None
    wait_s: float = 0.0
