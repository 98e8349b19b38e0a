"""How many attempts a worker may hold ahead of its free slots.

Theory. A process that runs jobs of a millisecond would wait for a round trip to the store after
each. So a worker asks for some attempts ahead: as many as will begin within `lookahead_s`. That is
known only of kinds that are reliably short, so the worker measures its own runs. A kind is *short*
if nine of ten of its last runs took at most `lookahead_s`.

Nothing may wait behind a long run while another worker is idle. So a slot counts only while it is
free, or while its present run is younger than nine of ten runs of its kind took: an older run is
taken for a long one. What did not begin all the same goes back after `hand_back_s`, and the worker
asks for nothing ahead until one of its runs ends.

Most of what is ahead waits in the worker's agent, which can put it in order. A few milliseconds of
work wait in the processes themselves, so that a process need not wait for its agent after each run.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from math import ceil
from statistics import fmean
from typing import Final, Protocol, TypeVar

from longshore.model.worker import KindInfo

RUNS: Final = 200
"""So many of a kind's last runs are remembered."""

ENOUGH_RUNS: Final = 20
"""Nothing is known of a kind before so many of its runs have ended here."""

MOST_PER_SLOT: Final = 256
MOST_BYTES: Final = 8 * 1024 * 1024
"""Arguments that wait ahead take no more."""

IN_PROCESS_S: Final = 0.005
"""So much work waits in a process itself, behind the attempt that runs there."""

LONG_RUN_S: Final = 0.01
"""A younger run is never taken for a long one: a worker hears of ends a little late."""

_PERCENTILE: Final = 0.9

T = TypeVar("T")


def may_be_held(lane: int, crashes: int, lanes: Collection[int]) -> bool:
    """Whether a worker may hold a job ahead: one of these lanes, without a crash behind it.

    A job that may have taken its worker down runs only on a slot that is free: then a loss of the
    worker blames it for certain. What else must never wait in a worker goes here: jobs with limits,
    jobs that need resources, turns of actors.
    """
    return lane in lanes and not crashes


def before_barred(
    jobs: Sequence[T], lanes: Collection[int] | None, of: Callable[[T], tuple[int, int]]
) -> Sequence[T]:
    """Of jobs in the order of claims, those before the first that may not be held ahead.

    `of` answers the lane of a job, and how often it crashed.
    That one is next. If others were held ahead of it, no slot would come free for it while more of
    them come. So nothing is held ahead until it has its slot. Without `lanes`, all jobs are free to
    go.
    """
    if lanes is not None:
        for place, job in enumerate(jobs):
            if not may_be_held(*of(job), lanes):
                return jobs[:place]
    return jobs


class HasPools(Protocol):
    """A worker, as far as it says what it runs, and where."""

    @property
    def kinds(self) -> Mapping[str, KindInfo]:
        """Its kinds, each of which names its pool."""

    @property
    def pools(self) -> Mapping[str, int]:
        """The slots of its pools."""


def held_ahead(worker: HasPools, owned: Iterable[tuple[int, str]]) -> set[int]:
    """The tokens of attempts that a worker held ahead, among those that it owned when it was lost.

    `owned` has tokens and kinds. Tokens grow, so of each pool the first ones were sent first: as
    many as it has slots may have begun. The others are not to blame for the loss.
    """
    ahead, begun = set[int](), Counter[str]()
    for token, kind in sorted(owned):
        pool = worker.kinds[kind].pool if kind in worker.kinds else ""
        if pool in worker.pools:
            begun[pool] += 1
            if begun[pool] > worker.pools[pool]:
                ahead.add(token)
    return ahead


def not_blamed(worker: HasPools, owned: Collection[tuple[int, str]]) -> set[int]:
    """The tokens of attempts that the loss of their worker costs nothing.

    It held them ahead, or their kind is declared so (`lost.retry_free`).
    """
    free = {kind for kind, info in worker.kinds.items() if info.lost_free}
    return held_ahead(worker, owned) | {token for token, kind in owned if kind in free}


class RunTimes:
    """How long the last runs of one kind took.

    `percentile_s` is what nine of ten took at most, `usual_s` is the mean of those; both are None
    while too little is known.
    """

    def __init__(self, enough_runs: int) -> None:
        self._enough_runs = enough_runs
        self._runs: deque[float] = deque(maxlen=RUNS)
        self._new = 0
        self.percentile_s: float | None = None
        self.usual_s: float | None = None

    def add(self, seconds: float) -> bool:
        """A run ended after so long; answers whether something new is known."""
        self._runs.append(seconds)
        self._new += 1
        # To sort after every run would cost more than a short run.
        if self._new < self._enough_runs:
            return False
        self._new = 0
        usual = sorted(self._runs)[: ceil(_PERCENTILE * len(self._runs))]
        self.percentile_s, self.usual_s = usual[-1], fmean(usual)
        return True


class Lookahead:
    """What one worker knows of its runs, and how many attempts it holds ahead because of that."""

    def __init__(self, lookahead_s: float, enough_runs: int = ENOUGH_RUNS) -> None:
        self.lookahead_s = lookahead_s
        self._enough_runs = enough_runs
        self._kinds: dict[str, RunTimes] = {}
        self._short: frozenset[str] = frozenset()
        self._is_suspended = False

    @property
    def hand_back_s(self) -> float:
        """An attempt that has waited for so long goes back as not begun."""
        return 2 * self.lookahead_s

    @property
    def knows_short(self) -> bool:
        """Whether any kind is known to be short."""
        return bool(self._short) and not self._is_suspended

    def ran(self, kind: str, seconds: float | None) -> None:
        """A run of this kind ended after so long; None if it was aborted, which tells nothing."""
        self._is_suspended = False
        if seconds is None:
            return
        times = self._kinds.get(kind)
        if times is None:
            times = self._kinds[kind] = RunTimes(self._enough_runs)
        if times.add(seconds):
            self._short = frozenset(
                name
                for name, known in self._kinds.items()
                if known.percentile_s is not None and known.percentile_s <= self.lookahead_s
            )

    def handed_back(self) -> None:
        """Something went back as not begun: nothing is held ahead until a run ends."""
        self._is_suspended = True

    def short(self, kinds: Iterable[str]) -> frozenset[str]:
        """Those of these kinds that are short: attempts of these may be held ahead."""
        return self._short.intersection(kinds)

    def long_after_s(self, kind: str) -> float:
        """A run of this kind that is older is taken for a long one; of a long kind, every run."""
        if kind not in self._short:
            return float("-inf")
        return max(LONG_RUN_S, self._kinds[kind].percentile_s or 0.0)

    def ahead(self, kinds: Iterable[str], slots: int, running: Iterable[tuple[str, float]]) -> int:
        """How many attempts of these kinds to hold ahead of the slots of a pool.

        `running` has the kind and the age of each present run.
        """
        short = self.short(kinds)
        if self._is_suspended or not short:
            return 0
        long = sum(age_s > self.long_after_s(kind) for kind, age_s in running)
        return self.per_slot(short) * max(0, slots - long)

    def usual_s(self, kinds: Iterable[str]) -> float:
        """How long a run of the quickest of these kinds usually takes; 0 if none is known."""
        known = (self._kinds[kind].usual_s or 0.0 for kind in self.short(kinds))
        return min(known, default=0.0)

    def per_slot(self, short: Iterable[str]) -> int:
        """How many runs of these kinds begin on one slot within `lookahead_s`."""
        usual_s = max(self._kinds[kind].usual_s or 0.0 for kind in short)
        if usual_s * MOST_PER_SLOT <= self.lookahead_s:
            return MOST_PER_SLOT
        return int(self.lookahead_s / usual_s)

    def in_process(self, kind: str) -> int:
        """How many attempts of this kind may wait in a process itself; none of a long kind.

        One at least: without it a process would wait for its agent after each run.
        """
        if kind not in self._short:
            return 0
        usual_s = self._kinds[kind].usual_s or 0.0
        if usual_s * MOST_PER_SLOT <= IN_PROCESS_S:
            return MOST_PER_SLOT
        return max(1, int(IN_PROCESS_S / usual_s))
