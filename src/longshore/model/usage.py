"""What programs really used, by attempt and by kind."""

from __future__ import annotations

from msgspec import Struct


class Usage(Struct, frozen=True, omit_defaults=True):
    """What an attempt used: memory at its peak, and CPU time. 0 is unknown."""

    memory_bytes: int = 0
    cpu_s: float = 0.0


class Peak(Struct, frozen=True):
    """The most that attempts of a kind used lately, of so many that were measured."""

    kind: str
    runs: int
    memory_bytes: int
    cpu_s: float
