"""How long jobs of a kind are expected to run, by earlier runs.

Theory. Each kind has one figure: the mean of its runs, of which older ones fade. All earlier runs
together weigh as much as `MOST_RUNS` further ones at most, so the figure follows a kind whose jobs
become slower. Only runs that succeeded count: a failure says little of how long a success takes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from statistics import fmean
from typing import Final

from longshore.model.run_time import RunTime

MOST_RUNS: Final = 1000
"""For how many runs a figure counts at most when further runs come."""
KEPT_S: Final = 90 * 86_400.0
"""A kind without runs for so long is forgotten."""


def merged(before: RunTime, more: RunTime) -> RunTime:
    """The figure of a kind after further runs."""
    old = min(before.runs, MOST_RUNS)
    runs = old + more.runs
    return RunTime(before.kind, runs, (old * before.mean_s + more.runs * more.mean_s) / runs)


def expected(kinds: Iterable[str], known: Mapping[str, RunTime]) -> dict[str, float]:
    """How long a job of each kind is expected to run; empty if nothing is known of any.

    A kind without a figure counts as the mean of the others.
    """
    wanted = set(kinds)
    means = {kind: known[kind].mean_s for kind in wanted if kind in known}
    if not means:
        return {}
    usual = fmean(means.values())
    return {kind: means.get(kind, usual) for kind in wanted}


def weight(seconds: float) -> int:
    """A run time for the order of a group: whole microseconds, and never 0.

    Sums of whole numbers are exact. So a job is always heavier together with what depends on it.
    """
    return max(1, round(seconds * 1e6))
