"""Lists as a terminal shows them: what a person looks for, in 80 columns.

Times are ages, errors begin with what was raised, and a column that would say the same in every row
is left out. In a pipe and in JSON everything is there, in full.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from uuid import UUID

from longshore.cli.view import jsonable
from longshore.cli.view.show import Table, duration, how_far, percent
from longshore.core.capacity import pool_busy, pool_slots, pools_of
from longshore.model.job import DEFAULT_QUEUE, Job, JobError
from longshore.model.worker import WorkerView, slot_words

_UNITS = ((86_400, "d"), (3_600, "h"), (60, "min"))
_LEAST_OF_A_UNIT = 2


def age(at: datetime | None, now: datetime) -> str:
    """How long ago something was, in one unit."""
    return "" if at is None else _rough(max(0, int((now - at).total_seconds())))


def _rough(seconds: int) -> str:
    for length, unit in _UNITS:
        if seconds >= _LEAST_OF_A_UNIT * length:
            return f"{seconds // length} {unit}"
    return f"{seconds} s"


def brief_took(job: Job) -> str:
    """How long the last attempt of an ended job ran, in one unit."""
    if job.started_at is None or job.ended_at is None:
        return ""
    seconds = max(0.0, (job.ended_at - job.started_at).total_seconds())
    return duration(seconds) if seconds < _LEAST_OF_A_UNIT * 60 else _rough(int(seconds))


def brief_error(error: JobError) -> str:
    """What went wrong, the most telling part first: what was raised, without its module."""
    kind = error.type.rpartition(".")[2]
    words = ": ".join(filter(None, (kind, error.message)))
    return (words or error.reason.value).split("\n", 1)[0]


def jobs_screen(jobs: Sequence[Job], now: datetime) -> Table:
    """Jobs, one a row."""
    has_queues = any(job.queue != DEFAULT_QUEUE for job in jobs)
    rows = [
        (
            str(job.number),
            job.state.value,
            job.kind,
            job.queue if has_queues else "",
            str(job.attempt or ""),
            age(job.created_at, now),
            brief_took(job),
            how_far(job),
            brief_error(job.error) if job.error else "",
        )
        for job in jobs
    ]
    columns = ("number", "state", "kind", "queue", "attempt", "age", "took", "progress", "error")
    numbers = frozenset({"number", "attempt", "age", "took"})
    return Table(columns, rows, numbers, ("queue", "attempt", "age", "took"))


def workers_screen(
    workers: Sequence[WorkerView], dispatchers: Mapping[UUID, str], now: datetime
) -> Table:
    """Workers, one a row."""
    pools = pools_of(workers)
    slots = tuple(slot_words(pool)[1] for pool in pools)
    numbers = (*slots, "cpu", "memory", "up", "seen")
    columns = ("name", "state", "running", *numbers, "dispatcher", "queues", "target", "kinds")
    optional = ("target", "kinds", "dispatcher", "memory", "cpu", "seen", "up", "queues")
    return Table(
        (*columns, "ended"),
        [_worker_row(view, dispatchers, pools, now) for view in workers],
        frozenset(numbers),
        (*optional, *reversed(slots)),
    )


def _worker_row(
    view: WorkerView, dispatchers: Mapping[UUID, str], pools: Sequence[str], now: datetime
) -> tuple[str, ...]:
    info = view.info
    gone_for = age(view.ended_at, now)
    return (
        info.name or info.host or str(info.id),
        jsonable.worker_state(view),
        ", ".join(f"{kind} {n}" for kind, n in sorted(view.running.items())),
        *(_taken(view, pool) for pool in pools),
        percent(view.cpu_percent) if view.alive else "",
        percent(view.memory_percent) if view.alive else "",
        "" if gone_for else age(view.started_at, now),
        f"{age(view.seen_at, now)} ago" if view.seen_at and view.alive else "",
        dispatchers.get(view.dispatcher) or "gone",
        ", ".join(info.queues),
        info.target,
        ", ".join(sorted(info.kinds)),
        ", ".join(filter(None, (view.ended_why, gone_for and f"{gone_for} ago"))),
    )


def _taken(view: WorkerView, pool: str) -> str:
    """How many of a worker's slots are taken, of how many."""
    return f"{pool_busy(view, pool)}/{pool_slots(view, pool)}" if view.alive else ""
