"""What a dispatcher says of itself when a client greets it (see `messages.Hello`)."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from msgspec import Struct


class HelloAnswer(Struct, frozen=True):
    """The dispatcher that answers."""

    v: int
    version: str
    dispatcher: UUID
    now: datetime
