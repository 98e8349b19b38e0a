"""Many times, shown as a few numbers and a picture."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from msgspec import Struct


class Times(Struct, frozen=True):
    """Milliseconds: the middle, the 99th of a hundred, and all of them."""

    p50_ms: float
    p99_ms: float
    samples_ms: list[float]


def times_of(samples_ms: Sequence[float]) -> Times:
    """What there is to say of samples."""
    rounded = [round(sample, 4) for sample in samples_ms]
    p99 = statistics.quantiles(samples_ms, n=100, method="inclusive")[98]
    return Times(statistics.median(samples_ms), p99, rounded)


def pooled(slices: Sequence[Times]) -> Times:
    """All samples of several as one."""
    return times_of([sample for part in slices for sample in part.samples_ms])
