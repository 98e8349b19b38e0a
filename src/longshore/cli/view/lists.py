"""Jobs, workers, dispatchers and queues as tables.

In a pipe everything is there, in full. A terminal shows what a person looks for, in 80 columns:
times are ages, errors begin with what was raised, and a column that would be alike in every row is
left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from uuid import UUID

from rich.text import Text

from longshore.cli.view.show import (
    Table,
    View,
    duration,
    error_line,
    how_far,
    percent,
    state_words,
    time,
    took,
)
from longshore.cli.view.usage import usage_words
from longshore.client import jsonable
from longshore.core.capacity import pool_ahead, pool_busy, pool_slots, pools_of
from longshore.core.queue_waits import waited_in_words
from longshore.core.resources import in_words
from longshore.model.job import DEFAULT_QUEUE, Job, JobError, JobState
from longshore.model.worker import (
    Capacity,
    KindCapacity,
    PoolCapacity,
    QueueView,
    WorkerView,
    slot_words,
)
from longshore.wire.messages import DispatcherAnswer

_UNITS = ((86_400, "d"), (3_600, "h"), (60, "min"))
_LEAST_OF_A_UNIT = 2
_JOB = ("number", "state", "kind", "queue", "attempt")
_OF_GROUPS = {JobState.WAITING, JobState.DEPENDENCY_FAILED, JobState.SKIPPED}
"""The states of which a list of queues has a column only if a job is in them."""
_NEEDS = ("asks for", "used at most")
_CAPACITY = ("pool", "workers", "slots", "busy", "free")


def age(at: datetime | None, now: datetime) -> str:
    """How long ago something was, in one unit."""
    return "" if at is None else _rough(max(0, int((now - at).total_seconds())))


def _rough(seconds: int) -> str:
    for length, unit in _UNITS:
        if seconds >= _LEAST_OF_A_UNIT * length:
            return f"{seconds // length} {unit}"
    return f"{seconds} s"


def brief_took(job: Job) -> str:
    """How long the last attempt of an ended job took, in one unit."""
    if job.started_at is None or job.ended_at is None:
        return ""
    seconds = max(0.0, (job.ended_at - job.started_at).total_seconds())
    return duration(seconds) if seconds < _LEAST_OF_A_UNIT * 60 else _rough(int(seconds))


def brief_error(error: JobError) -> str:
    """An error in brief: the name of the exception, without its module, then its message."""
    kind = error.type.rpartition(".")[2]
    words = ": ".join(filter(None, (kind, error.message)))
    return (words or error.reason.value).split("\n", 1)[0]


def jobs_table(jobs: Sequence[Job], keys: Mapping[UUID, str] | None = None) -> Table:
    """Jobs, one a row, in full; with their keys in a group, if these are given."""
    rows = [
        (
            str(job.number),
            state_words(job),
            *([keys.get(job.id, "")] if keys else []),
            job.kind,
            job.queue,
            str(job.attempt),
            time(job.created_at),
            took(job),
            how_far(job),
            error_line(job.error) if job.error else "",
        )
        for job in jobs
    ]
    columns = (*_job_columns(keys), "created", "took", "progress", "error")
    return Table(columns, rows, frozenset({"number", "attempt"}))


def _job_columns(keys: Mapping[UUID, str] | None) -> tuple[str, ...]:
    return ("number", "state", "key", *_JOB[2:]) if keys else _JOB


def jobs_screen(
    jobs: Sequence[Job], now: datetime, keys: Mapping[UUID, str] | None = None
) -> Table:
    """Jobs, one a row, for a terminal; with their keys in a group, if these are given."""
    has_queues = any(job.queue != DEFAULT_QUEUE for job in jobs)
    rows = [
        (
            str(job.number),
            state_words(job),
            *([keys.get(job.id, "")] if keys else []),
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
    columns = (*_job_columns(keys), "age", "took", "progress", "error")
    numbers = frozenset({"number", "attempt", "age", "took"})
    return Table(columns, rows, numbers, ("queue", "attempt", "age", "took"))


def workers_table(workers: Sequence[WorkerView], dispatchers: Mapping[UUID, str]) -> Table:
    """Workers, one a row, in full; their ids are in the JSON."""
    pools = pools_of(workers)
    numbers = (*(slot_words(pool)[1] for pool in pools), "cpu", "memory")
    columns = ("name", "state", "running", *numbers, "dispatcher", "since", "seen")
    rows = [_worker_row(view, dispatchers, pools) for view in workers]
    return Table((*columns, "target", "queues", "kinds", "ended"), rows, frozenset(numbers))


def _worker_row(
    view: WorkerView, dispatchers: Mapping[UUID, str], pools: Sequence[str]
) -> tuple[str, ...]:
    info = view.info
    return (
        info.name or info.host or str(info.id),
        jsonable.worker_state(view),
        _running(view, pools) or "-",
        *(str(pool_slots(view, pool)) for pool in pools),
        percent(view.cpu_percent) or "-",
        percent(view.memory_percent) or "-",
        dispatchers.get(view.dispatcher) or "gone",
        time(view.started_at),
        time(view.seen_at),
        info.target or "-",
        ", ".join(info.queues) or "all",
        ", ".join(sorted(info.kinds)),
        view.ended_why,
    )


def workers_screen(
    workers: Sequence[WorkerView], dispatchers: Mapping[UUID, str], now: datetime
) -> Table:
    """Workers, one a row, for a terminal."""
    pools = pools_of(workers)
    slots = tuple(slot_words(pool)[1] for pool in pools)
    numbers = (*slots, "cpu", "memory", "up", "seen")
    columns = ("name", "state", "running", *numbers, "dispatcher", "queues", "target", "kinds")
    optional = ("target", "kinds", "dispatcher", "memory", "cpu", "seen", "up", "queues")
    return Table(
        (*columns, "ended"),
        [_brief_worker(view, dispatchers, pools, now) for view in workers],
        frozenset(numbers),
        (*optional, *reversed(slots)),
    )


def _brief_worker(
    view: WorkerView, dispatchers: Mapping[UUID, str], pools: Sequence[str], now: datetime
) -> tuple[str, ...]:
    info = view.info
    gone_for = age(view.ended_at, now)
    return (
        info.name or info.host or str(info.id),
        jsonable.worker_state(view),
        _running(view, pools),
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


def _running(view: WorkerView, pools: Sequence[str]) -> str:
    """What a worker runs, by kind; if it holds jobs ahead, how many of them run."""
    kinds = ", ".join(f"{kind} {n}" for kind, n in sorted(view.running.items()))
    ahead = sum(pool_ahead(view, pool) for pool in pools)
    running = sum(view.running.values()) - ahead
    return f"{running} running, {ahead} held ahead ({kinds})" if ahead else kinds


def _taken(view: WorkerView, pool: str) -> str:
    """A worker's busy slots of all its slots, and how many attempts it holds ahead of them."""
    ahead = f"+{held}" if (held := pool_ahead(view, pool)) else ""
    return f"{pool_busy(view, pool)}/{pool_slots(view, pool)}{ahead}" if view.alive else ""


def dispatchers_table(dispatchers: Sequence[DispatcherAnswer]) -> Table:
    """Dispatchers, one a row; their ids are in the JSON."""
    rows = [
        (
            one.name or str(one.id),
            jsonable.dispatcher_state(one),
            str(one.workers),
            time(one.started_at),
            str(one.renewed_no),
            f"{duration(one.silent_s)} ago" if one.silent_s else "now",
        )
        for one in dispatchers
    ]
    columns = ("name", "state", "workers", "since", "renewed_no", "renewed")
    return Table(columns, rows, frozenset({"workers", "renewed_no"}))


def capacity_view(found: Capacity) -> View:
    """How much each kind can take, and each pool too if only a part of it serves a kind."""
    parts: list[Text | Table] = [_kinds_table(found)]
    in_all = {one.pool: (one.workers, one.slots) for one in found.pools}
    if any((one.workers, one.slots) != in_all[one.pool] for one in found.kinds):
        parts += [Text(), _pools_table(found)]
    return View(parts, "no worker takes jobs; `longshore workers` says more")


def _kinds_table(capacity: Capacity) -> Table:
    """How much each kind can take; kinds with equal numbers share a row.

    If a kind asks for resources, or was measured, it says what it asks for and what it used most.
    """
    alike: dict[tuple[str, ...], list[str]] = {}
    for one in capacity.kinds:
        alike.setdefault((*_numbers(one), *_needs(one)), []).append(one.kind)
    rows = [(*row, ", ".join(kinds)) for row, kinds in alike.items()]
    needs = _NEEDS if any(any(_needs(one)) for one in capacity.kinds) else ()
    shown = [row if needs else (*row[: len(_CAPACITY)], row[-1]) for row in rows]
    columns = (*_CAPACITY, *needs, "kinds")
    return Table(columns, shown, frozenset(_CAPACITY[1:]), wrapped=frozenset({"kinds"}))


def _needs(one: KindCapacity) -> tuple[str, str]:
    return in_words(one.resources), usage_words(one.peak)


def _pools_table(capacity: Capacity) -> Table:
    """How much each pool can take, one a row."""
    rows = [_numbers(one) for one in capacity.pools]
    return Table(_CAPACITY, rows, frozenset(_CAPACITY[1:]))


def _numbers(one: KindCapacity | PoolCapacity) -> tuple[str, ...]:
    return (one.pool, *map(str, (one.workers, one.slots, one.busy, one.free)))


def queues_table(queues: Sequence[QueueView]) -> Table:
    """Queues, one a row, and how many jobs each holds by state."""
    held = {state for queue in queues for state, count in queue.counts.items() if count}
    states = tuple(state.value for state in JobState if state in held or state not in _OF_GROUPS)
    has_waited = any(waited_in_words(queue.waited) for queue in queues)
    rows = [
        (
            queue.name,
            "paused" if queue.paused else "open",
            *(str(queue.counts.get(state, 0)) for state in states),
            *([waited_in_words(queue.waited)] if has_waited else []),
        )
        for queue in queues
    ]
    always = {"ready", "running", "failed"}
    spare = [state for state in states if state not in always]
    optional = (*["waited"] * has_waited, *sorted(spare, key=lambda state: state in held))
    columns = ("queue", "is", *states, *(["waited"] if has_waited else []))
    return Table(columns, rows, frozenset(states), optional)
