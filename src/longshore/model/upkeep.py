"""What a store answers when it did what time, losses and ends leave to do."""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

from msgspec import Struct

from longshore.model.actor import Reply
from longshore.model.job import Ended


class Settled(Struct, frozen=True):
    """What the upkeep of groups did.

    - `ready`: how many jobs became ready, by lane;
    - `delayed`: whether a job's delay began;
    - `ended`: jobs and groups that ended, the groups under their own ids;
    - `closed`: how many of these are groups, which come last;
    - `groups`: groups that need another `settle`;
    - `watched`: whether watchers are to be told of some that ended (`tell_watchers`).
    """

    ready: Mapping[int, int] = {}
    delayed: bool = False
    ended: tuple[Ended, ...] = ()
    groups: frozenset[UUID] = frozenset()
    watched: bool = False
    closed: int = 0


class Tended(Struct, frozen=True):
    """What the upkeep of actors did: asks that are answered, and whether there is more to do."""

    replies: tuple[Reply, ...] = ()
    more: bool = False


class Told(Struct, frozen=True):
    """Of how many ends watchers were told, which turns became ready by it, and if there are more.

    `ready` counts turns by lane.
    """

    ends: int = 0
    ready: Mapping[int, int] = {}
    more: bool = False
    schedules: bool = False
    """Whether schedules were among those who were told."""


class Promoted(Struct, frozen=True):
    """Delayed jobs that became ready: their lanes, and how long until the next ones are due."""

    count: int
    lanes: frozenset[int]
    next_s: float | None


class Harvested(Struct, frozen=True):
    """What a lost worker left: how many jobs are ready again, in which lanes, and which ended."""

    lost: bool
    requeued: int = 0
    lanes: frozenset[int] = frozenset()
    ended: tuple[Ended, ...] = ()
