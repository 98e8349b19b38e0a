"""Ratios on a noisy machine: two things take turns, and the median of their pairs counts.

Whatever slows the machine for a while slows both sides of a pair; so a ratio holds where the two
figures themselves do not.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Callable, Sequence

from msgspec import Struct


class Ratio(Struct, frozen=True):
    """How many times `other` one thing is: the median of the pairs, and the least and the most."""

    median: float
    low: float
    high: float
    ones: list[float]
    others: list[float]

    @property
    def one(self) -> float:
        """The median of the first of each pair."""
        return statistics.median(self.ones)

    @property
    def other(self) -> float:
        """The median of the second of each pair."""
        return statistics.median(self.others)

    @property
    def spread(self) -> float:
        """How far apart two runs of the very same thing are: each `other` beside the one before.

        That of the pairs themselves would not do to judge them: it also holds what is looked for.
        """
        again = [later / before for before, later in itertools.pairwise(self.others)]
        return statistics.fmean(abs(ratio - 1) for ratio in again) if again else 0.0


def ratio_of(ones: Sequence[float], others: Sequence[float]) -> Ratio:
    """The ratio of figures that were measured in turn."""
    ratios = [one / other for one, other in zip(ones, others, strict=True)]
    median = statistics.median(ratios)
    return Ratio(median, min(ratios), max(ratios), list(ones), list(others))


def interleave(pairs: int, one: Callable[[], float], other: Callable[[], float]) -> Ratio:
    """Measures one, other, one, other … and answers their ratio."""
    ones, others = [], []
    for _ in range(pairs):
        ones.append(one())
        others.append(other())
    return ratio_of(ones, others)
