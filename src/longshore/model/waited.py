"""How long a job waited for what, and what a store keeps to tell it."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Final, NamedTuple

from msgspec import Struct

MOST_STAYS: Final = 50
"""Of so many times that a job waited behind keys, the newest, a store knows from when to when."""
MOST_PAUSES: Final = 100
"""Of so many pauses of a queue or a group, the newest, a store knows from when to when."""
PAUSES_KEPT_S: Final = 90 * 86_400.0
"""A pause that ended longer ago is forgotten."""
KEY_WAITS_KEPT_S: Final = 30 * 86_400.0
"""How long jobs waited for a key is forgotten when none did for so long."""


class WaitCause(StrEnum):
    """What a job waited for; `core.waits` says it in words."""

    DEPENDENCIES = "dependencies"
    DELAY = "delay"
    BACKOFF = "backoff"
    PAUSED_QUEUE = "paused_queue"
    PAUSED_GROUP = "paused_group"
    PAUSED_ACTOR = "paused_actor"
    LIMIT = "limit"
    GATE = "gate"
    SLOT = "slot"
    UNKNOWN = "unknown"


class WaitedTime(Struct, frozen=True):
    """A time that a job waited, from when to when."""

    since: datetime
    until: datetime


class Waited(Struct, frozen=True, omit_defaults=True):
    """For how many seconds a job waited for something. Of a limit, `key` is the key.

    If it waits for it still, that is since then, and comes on top. `times` are the times that make
    up these seconds.
    """

    cause: WaitCause
    s: float
    key: str = ""
    since: datetime | None = None
    times: tuple[WaitedTime, ...] = ()


class Stay(NamedTuple):
    """A time that a job waited behind a key; without `until` it still does."""

    key: str
    since: datetime
    until: datetime | None = None


class Pause(NamedTuple):
    """A time that a queue or a group was paused; without `until` it still is."""

    is_group: bool
    since: datetime
    until: datetime | None = None


class Kept(NamedTuple):
    """What a store keeps of a job's waiting beside its history, each in the order of times."""

    stays: tuple[Stay, ...] = ()
    pauses: tuple[Pause, ...] = ()
