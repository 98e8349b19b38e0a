"""How a new run of a group is made, step by step: what every SQL store keeps between two steps.

The first step decides what becomes of each job, and keeps that as bytes, the same number for each
job. A later step reads only those of the jobs that it copies. So each step costs the same, and all
of them carry out one decision.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from struct import Struct
from typing import Final, NamedTuple
from uuid import UUID

from longshore.core.new_run import Copy
from longshore.errors import Conflict
from longshore.model.group import RunPlan

_ITEM: Final = Struct(">iii?")
ITEM_BYTES: Final = _ITEM.size


class PlannedCopy(NamedTuple):
    """A node that is to be copied: its place, which stays the same, and its counters."""

    place: int
    unmet: int
    open: int
    is_taken: bool


def packed(copies: Iterable[Copy], places: Sequence[int]) -> bytes:
    """The decision about all jobs, in order, as it is kept."""
    return b"".join(_ITEM.pack(places[one.at], one.unmet, one.open, one.is_taken) for one in copies)


def unpacked(data: bytes) -> list[PlannedCopy]:
    """Some of what was kept."""
    return [PlannedCopy(*item) for item in _ITEM.iter_unpack(data)]


def changed_meanwhile(group: UUID) -> RunPlan:
    """The answer if the group changed before all of it was copied."""
    return RunPlan(group, refused="it was retried or removed meanwhile; try again")


def is_no_run(id: UUID, ref: UUID | int) -> Conflict:
    """The error of a request whose id is that of another group."""
    return Conflict(f"group {id} exists and is no run of group {ref}; give a new run a new id")
