"""What a batch on PostgreSQL did, and what its claims read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from msgspec import Struct

from longshore.model.attempt import Attempt
from longshore.ports import BatchResult
from longshore.store.postgres.crowds import Held
from longshore.store.postgres.cursors import Reached, ScanPlan
from longshore.store.postgres.limited_claims import LimitedScan
from longshore.store.postgres.near_files import NOBODY, Near
from longshore.store.postgres.single_turns import Known


class ClaimScan(NamedTuple):
    """What one claim read and took; `size` is the bytes of the arguments it took."""

    look: ScanPlan
    took: list[Reached]
    claimed: list[Attempt]
    counts: Counter[int]
    size: int
    short: bool
    cost_s: float
    contested: frozenset[int]
    barred: frozenset[int]
    limited: LimitedScan | None = None
    is_ruled: bool = False
    """Whether there are rules of limits for kinds or queues."""
    near: Near = NOBODY
    """The workers that have the files of jobs which it may find."""


class PumpResult(Struct, frozen=True):
    """What a pump did, and what there is to remember of it once it is committed.

    `left_some` says that it made more jobs ready than it took.
    """

    pumped: BatchResult
    left_some: bool
    new_lanes: set[int]
    scans: list[ClaimScan]
    tallied: int
    known: list[Known] = []
    """What it has shown of actors."""
    is_filled: bool = False
    """Whether turns that began have all that their workers get."""
    held: list[Held] = []
    """The jobs that are to be cancelled, and that another transaction held."""


def soonest_s(scans: Sequence[ClaimScan]) -> float | None:
    """In how many seconds a rate lets the first of the jobs begin that claims put behind keys."""
    found = [scan.limited.open_s for scan in scans if scan.limited is not None]
    return min((one for one in found if one is not None), default=None)


def closed_lanes(scans: Sequence[ClaimScan]) -> frozenset[int]:
    """The lanes in which claims found that nothing more may begin now."""
    return frozenset[int]().union(*(one.limited.closed for one in scans if one.limited is not None))
