"""What attempts really used: its words in a job's history, and the most of each kind.

Theory. A peak that is kept for ever says nothing once a kind uses less. So a store counts in
periods of a week, and shows the most of the current period and of the one before it.

The history says it in rounded numbers: ends of a batch that share their words are stored at once.
"""

from __future__ import annotations

import re
from math import floor, isfinite, log10
from typing import Final, NamedTuple

from longshore.core.limits import MAX_DURATION_S
from longshore.model.job import Job
from longshore.model.usage import Peak, Usage

PERIOD_S: Final = 7 * 86_400.0
KEPT_S: Final = 90 * 86_400.0
"""A kind that began no period for so long is forgotten."""
MAX_BYTES: Final = 2**60

_KIB: Final = 1024
_DIGITS: Final = 2
_WORDS: Final = re.compile(r"\bused (\d+) KiB of memory, (\d+(?:\.\d+)?) s of CPU\Z")


def checked(usage: Usage | None) -> Usage | None:
    """What a worker said, if it can be."""
    if usage is None or not 0 <= usage.memory_bytes <= MAX_BYTES or not isfinite(usage.cpu_s):
        return None
    return usage if 0 <= usage.cpu_s <= MAX_DURATION_S else None


def noted(info: str, usage: Usage) -> str:
    """The words of a history entry, with what the attempt used."""
    kib = round(_rounded(usage.memory_bytes / _KIB))
    used = f"used {kib} KiB of memory, {_rounded(usage.cpu_s):.12g} s of CPU"
    return f"{info}; {used}" if info else used


def _rounded(number: float) -> float:
    return round(number, _DIGITS - 1 - floor(log10(number))) if number >= 0.01 else 0.0


def used(info: str) -> Usage | None:
    """What an attempt used, by the words of its history entry."""
    found = _WORDS.search(info)
    return None if found is None else Usage(int(found[1]) * _KIB, float(found[2]))


def used_by(job: Job) -> Usage | None:
    """What the last attempt of a job used that was measured."""
    found = (used(entry.info) for entry in reversed(job.history))
    return next((one for one in found if one is not None), None)


class Period(NamedTuple):
    """The most that a kind used in a period."""

    runs: int = 0
    memory_bytes: int = 0
    cpu_s: float = 0.0

    def joined(self, more: Period) -> Period:
        """This and more runs, as one."""
        return Period(
            self.runs + more.runs,
            max(self.memory_bytes, more.memory_bytes),
            max(self.cpu_s, more.cpu_s),
        )

    def of(self, kind: str) -> Peak:
        """As it is shown."""
        return Peak(kind, *self)
