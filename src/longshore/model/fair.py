"""Fairness: which keys share the workers, and what a store keeps of each."""

from __future__ import annotations

from typing import NamedTuple

from msgspec import Struct


class FairKey(NamedTuple):
    """A key in one lane, among jobs of one priority: there it shares with the others."""

    lane: int
    priority: int
    key: str


class Account(Struct, frozen=True, gc=False):
    """What a store keeps of a fair key (`core.fairness`).

    `runs` and `mean_s` are about earlier runs, the others about what the key was charged. `owed` is
    what its jobs took beyond that; below 0 they took less.
    """

    finish: float = 0.0
    owed: float = 0.0
    open_jobs: int = 0
    """Of so many jobs it was not heard yet how long they ran."""
    open_cost: float = 0.0
    """What these were charged together."""
    runs: int = 0
    mean_s: float = 0.0


class FairUse(Struct, frozen=True, gc=False):
    """So many jobs of a fair key ended; all attempts at its jobs took so many seconds together."""

    of: FairKey
    runs: int
    total_s: float


class FairPlace(Struct, frozen=True, omit_defaults=True):
    """Where a ready job with a fair key stands: so many jobs of its key are before it."""

    key: str
    weight: float = 1.0
    before: int = 0
    is_new: bool = False
    """Whether it has no turn yet; a dispatcher is about to give it one."""
