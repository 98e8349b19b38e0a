"""How long jobs of a kind run."""

from __future__ import annotations

from msgspec import Struct


class RunTime(Struct, frozen=True):
    """The mean run time of a kind, of so many runs that succeeded."""

    kind: str
    runs: int
    mean_s: float
