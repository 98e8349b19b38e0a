"""What a dispatcher counts for its metrics: plain numbers, bumped once for a batch where possible.

A dispatcher without metrics has no meter, and pays nothing. Counters tell what this dispatcher did
since it started; the sum over dispatchers is what all of them did. An end whose answer got lost is
counted when its repeat is answered.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from longshore.config import Config
from longshore.core import metering as m
from longshore.core.lifecycle import TERMINAL
from longshore.core.metering import BoundedLabels, Histogram, Metric, Sample
from longshore.model.attempt import Attempt
from longshore.model.batch import Batch, BatchResult
from longshore.model.ends import (
    Cancelled,
    Crashed,
    End,
    Failed,
    NotBegun,
    PutAside,
    ReadDone,
    Released,
    Retried,
    Skipped,
    Snoozed,
    Succeeded,
    TurnTaken,
)
from longshore.model.job import Ended, Finished, JobState, Refused, Verdict
from longshore.model.worker import LostWorker
from longshore.ports import OnLost

OUTCOMES: Final[dict[type[End], str]] = {
    Succeeded: "succeeded",
    TurnTaken: "succeeded",
    ReadDone: "succeeded",
    Failed: "failed",
    Retried: "retried",
    Crashed: "crashed",
    Cancelled: "cancelled",
    Skipped: "skipped",
    Snoozed: "snoozed",
    Released: "released",
    NotBegun: "not_begun",
    PutAside: "put_aside",
}
"""How ends are called in metrics."""

MOST_DOUBTS: Final = 100_000
"""Of so many ends at once the meter remembers that their answers got lost."""

UNKNOWN: Final = "unknown"
"""The kind of an attempt that was not placed here: only the store knows it."""


class _OfKind:
    """What is counted for one kind."""

    __slots__ = ("ended", "run", "started", "wait")

    def __init__(self) -> None:
        self.started: Counter[str] = Counter()
        self.ended: Counter[str] = Counter()
        self.wait = Histogram(m.WAIT.buckets)
        self.run = Histogram(m.RUN.buckets)


class Meter:
    """The counters of one dispatcher."""

    def __init__(self, most_labels: int) -> None:
        self.lanes = BoundedLabels(most_labels)
        self.pools = BoundedLabels(most_labels)
        self._labels = BoundedLabels(most_labels)
        self._kinds: dict[str, _OfKind] = {}
        self._shown: defaultdict[str, _OfKind] = defaultdict(_OfKind)
        self._submits = Counter({"accepted": 0, "existing": 0, "refused": 0})
        self._jobs = Counter(dict.fromkeys(sorted(TERMINAL), 0))
        self._batches = {item: Histogram(m.ITEMS) for item in ("submit", "finish", "claim")}
        self._verbs: defaultdict[str, Histogram] = defaultdict(lambda: Histogram(m.SHORT_SECONDS))
        self._failed_calls: Counter[str] = Counter()
        self._stale = 0
        self._lost = 0
        self._doubted: set[int] = set()
        """The tokens of ends whose answers got lost."""
        self._found: set[int] = set()
        """The tokens of those that the store had recorded all the same."""

    # what happens

    def committed(self, batch: Batch, result: BatchResult) -> None:
        """The store answered a batch."""
        counts = (len(batch.submits), len(batch.finishes), len(result.claimed))
        for histogram, count in zip(self._batches.values(), counts, strict=True):
            if count:
                histogram.observe(count)
        if result.submitted:
            self._count_submits(result)
        if result.ended:
            self._jobs.update([one.state for one in result.ended])
        self._began(result.started, "submit")
        self._began(result.dependents, "dependent")
        self._began(result.turns, "dependent")
        if result.claimed:
            self._claimed(result.claimed)
        if self._doubted:
            self._resolve(batch.finishes, result.finished)

    def _count_submits(self, result: BatchResult) -> None:
        refused = sum([isinstance(one, Refused) for one in result.submitted])
        existing = sum([not isinstance(one, Refused) and one.existing for one in result.submitted])
        self._submits["refused"] += refused
        self._submits["existing"] += existing
        self._submits["accepted"] += len(result.submitted) - refused - existing

    def _began(self, attempts: Sequence[Attempt], by: str) -> None:
        """These started in the moment in which they became ready."""
        for kind, count in Counter([one.kind for one in attempts]).items() if attempts else ():
            of = self._of(kind)
            of.started[by] += count
            if by == "submit":
                of.wait.observe(0.0, count)

    def _claimed(self, attempts: Sequence[Attempt]) -> None:
        for one in attempts:
            of = self._kinds.get(one.kind) or self._of(one.kind)
            of.started["claim"] += 1
            if one.waited_s is not None:
                of.wait.observe(one.waited_s)

    def _resolve(self, ends: Sequence[End], answers: Sequence[Finished]) -> None:
        """Counts jobs whose ends were recorded by a batch whose answer got lost."""
        for end, done in zip(ends, answers, strict=True):
            if end.token in self._doubted:
                self._doubted.discard(end.token)
                if done.verdict is Verdict.ALREADY_RECORDED:
                    self._found.add(end.token)
                    if done.state in TERMINAL:
                        self._jobs[done.state] += 1

    def unanswered(self, batch: Batch) -> None:
        """The answer to a batch got lost: the store may have recorded its ends."""
        if len(self._doubted) < MOST_DOUBTS:
            self._doubted.update(end.token for end in batch.finishes)

    def ended(self, kind: str | None, end: End, verdict: Verdict) -> None:
        """The store answered the end of an attempt; the kind is None if it is not known."""
        if verdict is Verdict.STALE:
            self._stale += 1
            return
        if verdict is Verdict.ALREADY_RECORDED:
            if end.token not in self._found:
                return
            self._found.discard(end.token)
        of = self._kinds.get(kind or UNKNOWN) or self._of(kind or UNKNOWN)
        of.ended[OUTCOMES[type(end)]] += 1

    def ran(self, kind: str, seconds: float) -> None:
        """A worker reported the end of an attempt that ran so long."""
        (self._kinds.get(kind) or self._of(kind)).run.observe(seconds)

    def ended_elsewhere(self, ended: Iterable[Ended]) -> None:
        """Jobs ended outside of a batch."""
        self._jobs.update([one.state for one in ended])

    def cancelled(self, jobs: int) -> None:
        """Jobs that did not run were cancelled."""
        self._jobs[JobState.CANCELLED] += jobs

    def lost_worker(self) -> None:
        """A worker was declared lost."""
        self._lost += 1

    def called(self, verb: str, seconds: float) -> None:
        """The store answered a call."""
        self._verbs[verb].observe(seconds)

    def call_failed(self, verb: str) -> None:
        """The store was away for a call."""
        self._failed_calls[verb] += 1

    def _of(self, kind: str) -> _OfKind:
        """What is counted for a kind, or for all that are past the bound on labels."""
        if kind in self._kinds:
            return self._kinds[kind]
        [shown] = self._labels.of(kind)
        of = self._shown[shown]
        if shown == kind:
            self._kinds[kind] = of
        return of

    # what is shown

    def samples(self) -> Iterator[Sample]:
        """All counters as they are now."""
        yield from _counted(m.SUBMITS, self._submits)
        yield from _counted(m.ENDED_JOBS, self._jobs)
        yield from _counted(m.STORE_ERRORS, self._failed_calls)
        yield Sample(m.STALE, (), self._stale)
        yield Sample(m.LOST, (), self._lost)
        for kind, of in self._shown.items():
            for by, count in of.started.items():
                yield Sample(m.STARTED, (kind, by), count)
            for outcome, count in of.ended.items():
                yield Sample(m.ENDED_ATTEMPTS, (kind, outcome), count)
            yield Sample(m.WAIT, (kind,), of.wait)
            yield Sample(m.RUN, (kind,), of.run)
        for item, histogram in self._batches.items():
            yield Sample(m.BATCH, (item,), histogram)
        for verb, histogram in self._verbs.items():
            yield Sample(m.STORE, (verb,), histogram)


def _counted(metric: Metric, counts: Counter[str] | Counter[JobState]) -> Iterator[Sample]:
    for label, count in counts.items():
        yield Sample(metric, (str(label),), count)


def counted_losses(meter: Meter | None, on_lost: OnLost) -> OnLost:
    """Counts the workers that are lost, before the user hears of them."""
    if meter is None:
        return on_lost

    def lost(worker: LostWorker) -> None:
        meter.lost_worker()
        on_lost(worker)

    return lost


def meter_of(config: Config) -> Meter | None:
    """The meter of a dispatcher that shows its metrics; None if it does not."""
    return Meter(config.dispatcher.metrics_most_labels) if config.metrics else None
