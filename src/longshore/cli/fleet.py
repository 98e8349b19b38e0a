"""How workers, dispatchers and their capacity look."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from uuid import UUID

from longshore.cli import jsonable
from longshore.cli.show import Table, duration, time
from longshore.model.worker import Capacity, WorkerView
from longshore.wire.messages import DispatcherAnswer


def workers_table(workers: Sequence[WorkerView], dispatchers: Mapping[UUID, str]) -> Table:
    """Workers, one a row; their ids are in the JSON."""
    numbers = ("slots", "processes", "cpu", "memory")
    columns = ("name", "state", "running", *numbers, "dispatcher", "since", "seen")
    rows = [_worker_row(view, dispatchers) for view in workers]
    optional = ("target", "queues", "processes", "slots", "memory", "cpu", "since", "dispatcher")
    return Table(
        (*columns, "target", "queues", "kinds", "ended"),
        rows,
        frozenset(numbers),
        (*optional, "kinds", "seen"),
    )


def _worker_row(view: WorkerView, dispatchers: Mapping[UUID, str]) -> tuple[str, ...]:
    info = view.info
    return (
        info.name or info.host or str(info.id),
        jsonable.worker_state(view),
        ", ".join(f"{kind} {n}" for kind, n in sorted(view.running.items())) or "-",
        str(info.slots),
        str(info.processes),
        _percent(view.cpu_percent),
        _percent(view.memory_percent),
        dispatchers.get(view.dispatcher) or "gone",
        time(view.started_at),
        time(view.seen_at),
        info.target or "-",
        ", ".join(info.queues) or "all",
        ", ".join(sorted(info.kinds)),
        view.ended_why,
    )


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.0f} %"


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


def capacity_table(capacity: Capacity) -> Table:
    """What can be taken of each kind, one a row."""
    rows = [
        (one.kind, one.pool.value, *map(str, (one.workers, one.slots, one.busy, one.free)))
        for one in capacity.kinds
    ]
    numbers = ("workers", "slots", "busy", "free")
    return Table(("kind", "pool", *numbers), rows, frozenset(numbers))


def pools_table(capacity: Capacity) -> Table:
    """What each pool can take, one a row."""
    rows = [
        (one.pool.value, *map(str, (one.workers, one.slots, one.busy, one.free)))
        for one in capacity.pools
    ]
    numbers = ("workers", "slots", "busy", "free")
    return Table(("pool", *numbers), rows, frozenset(numbers))
