"""What metrics are: names, labels, histograms. Nothing here knows how they are shown.

Whoever does the work bumps plain numbers. Only when somebody asks are these put together, as
`Sample`s. Every metric is a row of `METRICS`, and the table in `docs/metrics.md` is made of these.

Labels are bounded: the first `most` names that are seen keep their own, all others share `OTHER`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Final, NamedTuple

from msgspec import Struct

OTHER: Final = "other"
"""The label of all that came after the bound on labels was reached."""

SECONDS: Final = (
    *(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0),
    *(30.0, 60.0, 300.0, 1_800.0, 7_200.0, 86_400.0),
)
"""From a millisecond to a day: how long jobs wait and run."""
SHORT_SECONDS: Final = SECONDS[:15]
"""From a millisecond to a minute: how long a call takes."""
ITEMS: Final = (1.0, 2.0, 5.0, 10.0, 25.0, 50.0, 100.0, 250.0, 500.0, 1_000.0)


class MetricType(StrEnum):
    """What may be done with a metric's value."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Metric(Struct, frozen=True):
    """A metric. A counter's name is shown with `_total` behind it."""

    name: str
    type: MetricType
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()

    @property
    def shown(self) -> str:
        """The name under which it is asked for."""
        return f"{self.name}_total" if self.type is MetricType.COUNTER else self.name


class Histogram:
    """How often a value was at most each of some bounds; plain numbers, for a hot path."""

    __slots__ = ("_bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float, times: int = 1) -> None:
        """The value came, so many times."""
        self.counts[bisect_left(self._bounds, value)] += times
        self.total += value * times

    def copy(self) -> Histogram:
        """It as it is now."""
        copied = Histogram(self._bounds)
        copied.counts, copied.total = self.counts[:], self.total
        return copied

    def buckets(self) -> list[tuple[str, float]]:
        """For each bound, how many values were at most that large; the last is of all."""
        shown: list[tuple[str, float]] = []
        so_far = 0
        names = [*map(repr, map(float, self._bounds)), "+Inf"]
        for bound, count in zip(names, self.counts, strict=True):
            so_far += count
            shown.append((bound, so_far))
        return shown


class Sample(NamedTuple):
    """What a metric is now, for these values of its labels."""

    metric: Metric
    labels: tuple[str, ...]
    value: float | Histogram


def snapshot(samples: Iterable[Sample]) -> list[Sample]:
    """Samples that do not change any more: another thread may look at them."""
    return [
        one._replace(value=one.value.copy()) if isinstance(one.value, Histogram) else one
        for one in samples
    ]


class BoundedLabels:
    """Which names may be labels: the first `most` that were seen."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._known: set[tuple[str, ...]] = set()

    def of(self, *names: str) -> tuple[str, ...]:
        """The names themselves; past the bound, `OTHER` for each."""
        if names in self._known:
            return names
        if len(self._known) < self._most:
            self._known.add(names)
            return names
        return (OTHER,) * len(names)


_COUNTER, _GAUGE, _HISTOGRAM = MetricType.COUNTER, MetricType.GAUGE, MetricType.HISTOGRAM

# of dispatchers: what is of the whole store, which one dispatcher at a time tells

JOBS: Final = Metric(
    "longshore_jobs",
    _GAUGE,
    "Jobs in the store by state, ended ones until they are pruned. One dispatcher tells it for "
    "all.",
    ("queue", "kind", "state"),
)
OLDEST: Final = Metric(
    "longshore_oldest_ready_timestamp_seconds",
    _GAUGE,
    "Since when the longest-waiting ready job waits, of the next few in line of each priority. "
    "One dispatcher tells it for all; min() is the truth.",
    ("queue", "kind"),
)
BLOCKED: Final = Metric(
    "longshore_blocked_jobs",
    _GAUGE,
    "Ready jobs by what holds them back, in the words of `longshore why`. One dispatcher tells it "
    "for all.",
    ("cause",),
)
BLOCKED_TIME: Final = Metric(
    "longshore_blocked_job_seconds",
    _COUNTER,
    "How long ready jobs were held back, by cause: the sum over jobs, as one dispatcher at a time "
    "sees it every metrics_s.",
    ("cause",),
)
QUEUE_WAIT: Final = Metric(
    "longshore_queue_wait_job_seconds",
    _COUNTER,
    "How long the jobs of a queue waited, by cause (dependencies, delay, paused_queue, limit, "
    "gate, slot): the sum over jobs, as one dispatcher at a time sees it every metrics_s.",
    ("queue", "cause"),
)

# of dispatchers: what each of them did

SUBMITS: Final = Metric(
    "longshore_submits",
    _COUNTER,
    "Submits that the store answered: accepted, existing (the unique key was taken) or refused. "
    "One that a client repeats counts again.",
    ("result",),
)
STARTED: Final = Metric(
    "longshore_attempts_started",
    _COUNTER,
    "Attempts given to workers: claimed, or started by the transaction that stored the job "
    "(submit) or ended what it waited for (dependent).",
    ("kind", "by"),
)
ENDED_ATTEMPTS: Final = Metric(
    "longshore_attempts_ended",
    _COUNTER,
    "Attempts whose end the store recorded, by outcome: succeeded, failed, retried, crashed, …",
    ("kind", "outcome"),
)
STALE: Final = Metric(
    "longshore_attempts_stale",
    _COUNTER,
    "Reports of attempts that no longer owned their job: refused by the store.",
)
ENDED_JOBS: Final = Metric(
    "longshore_jobs_ended", _COUNTER, "Jobs that ended for good, by how they ended.", ("state",)
)
WAIT: Final = Metric(
    "longshore_wait_seconds",
    _HISTOGRAM,
    "How long jobs were ready before a worker got them: first attempts outside of groups.",
    ("kind",),
    SECONDS,
)
RUN: Final = Metric(
    "longshore_run_seconds",
    _HISTOGRAM,
    "How long attempts ran, as their workers say; those of coroutines, since a worker got them.",
    ("kind",),
    SECONDS,
)
BATCH: Final = Metric(
    "longshore_batch_items",
    _HISTOGRAM,
    "How many submits, finishes and claimed jobs a transaction had; one without any is left out.",
    ("item",),
    ITEMS,
)
STORE: Final = Metric(
    "longshore_store_seconds",
    _HISTOGRAM,
    "How long the store took to answer, by verb; `pump` is the transaction of a batch.",
    ("verb",),
    SHORT_SECONDS,
)
STORE_ERRORS: Final = Metric(
    "longshore_store_errors",
    _COUNTER,
    "Calls of the store that failed because it was away, by verb.",
    ("verb",),
)
LOST: Final = Metric(
    "longshore_workers_lost", _COUNTER, "Workers that this dispatcher declared lost."
)

# of dispatchers: what each of them holds

WORKERS: Final = Metric(
    "longshore_workers", _GAUGE, "Workers that this dispatcher attends.", ("state",)
)
SLOTS: Final = Metric(
    "longshore_slots", _GAUGE, "Slots of the workers that this dispatcher attends.", ("pool",)
)
USED_SLOTS: Final = Metric("longshore_slots_used", _GAUGE, "Those of them in use.", ("pool",))
HELD_AHEAD: Final = Metric(
    "longshore_attempts_held_ahead", _GAUGE, "Attempts that wait in workers for a slot.", ("pool",)
)
LEASES: Final = Metric(
    "longshore_leases", _GAUGE, "Leases of workers that this dispatcher has granted and that hold."
)
OWN_LEASE: Final = Metric(
    "longshore_dispatcher_lease_seconds",
    _GAUGE,
    "For how much longer this dispatcher may grant leases; 0 while the store does not renew it.",
)
QUEUED: Final = Metric(
    "longshore_queued", _GAUGE, "Submits, finishes and messages that wait for the store.", ("item",)
)
QUEUED_BYTES: Final = Metric(
    "longshore_queued_bytes", _GAUGE, "Bytes of arguments that wait for the store."
)
READY: Final = Metric(
    "longshore_ready", _GAUGE, "1 if this dispatcher can claim jobs, as /readyz says; otherwise 0."
)

# of gateways

REQUESTS: Final = Metric(
    "longshore_http_requests",
    _COUNTER,
    "Requests that were answered, by operation and class of status.",
    ("operation", "status"),
)
REQUEST_TIME: Final = Metric(
    "longshore_http_request_seconds",
    _HISTOGRAM,
    "How long answers took up to their last byte; long polls wait as they were asked to, and "
    "streams of events are left out.",
    ("operation",),
    SHORT_SECONDS,
)
UNDER_WAY: Final = Metric(
    "longshore_http_requests_under_way", _GAUGE, "Requests under way, streams too."
)
STREAMS: Final = Metric("longshore_http_streams", _GAUGE, "Streams of events that are open.")
BODIES: Final = Metric("longshore_http_bodies_bytes", _GAUGE, "Bytes of bodies that are held.")

INFO: Final = Metric(
    "longshore_build_info", _GAUGE, "1, with the version and the process.", ("version", "process")
)

OF_STORE: Final = (JOBS, OLDEST, BLOCKED, BLOCKED_TIME, QUEUE_WAIT)
"""What one dispatcher at a time tells for all."""
OF_DISPATCHERS: Final = (
    *(INFO, READY, SUBMITS, STARTED, ENDED_ATTEMPTS, STALE, ENDED_JOBS, WAIT, RUN, BATCH, STORE),
    *(STORE_ERRORS, LOST, WORKERS, SLOTS, USED_SLOTS, HELD_AHEAD, LEASES, OWN_LEASE, QUEUED),
    QUEUED_BYTES,
)
OF_GATEWAYS: Final = (INFO, REQUESTS, REQUEST_TIME, UNDER_WAY, STREAMS, BODIES)
METRICS: Final = tuple(dict.fromkeys((*OF_STORE, *OF_DISPATCHERS, *OF_GATEWAYS)))
