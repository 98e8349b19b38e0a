"""How workers, dispatchers and their capacity look."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from uuid import UUID

from rich.text import Text

from longshore.cli.view import jsonable
from longshore.cli.view.show import Table, View, duration, percent, time
from longshore.core.capacity import pool_slots, pools_of
from longshore.model.worker import Capacity, KindCapacity, PoolCapacity, WorkerView, slot_words
from longshore.wire.messages import DispatcherAnswer

_CAPACITY = ("pool", "workers", "slots", "busy", "free")


def workers_table(workers: Sequence[WorkerView], dispatchers: Mapping[UUID, str]) -> Table:
    """Workers, one a row; their ids are in the JSON."""
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
        ", ".join(f"{kind} {n}" for kind, n in sorted(view.running.items())) or "-",
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
    """What can be taken; of pools only part of which serves a kind, what they have in all too."""
    parts: list[Text | Table] = [_kinds_table(found)]
    in_all = {one.pool: (one.workers, one.slots) for one in found.pools}
    if any((one.workers, one.slots) != in_all[one.pool] for one in found.kinds):
        parts += [Text(), _pools_table(found)]
    return View(parts)


def _kinds_table(capacity: Capacity) -> Table:
    """What can be taken of each kind, those of which the same is true in one row."""
    alike: dict[tuple[str, ...], list[str]] = {}
    for one in capacity.kinds:
        alike.setdefault(_numbers(one), []).append(one.kind)
    rows = [(*numbers, ", ".join(kinds)) for numbers, kinds in alike.items()]
    columns = (*_CAPACITY, "kinds")
    return Table(columns, rows, frozenset(_CAPACITY[1:]), wrapped=frozenset({"kinds"}))


def _pools_table(capacity: Capacity) -> Table:
    """What each pool can take, one a row."""
    rows = [_numbers(one) for one in capacity.pools]
    return Table(_CAPACITY, rows, frozenset(_CAPACITY[1:]))


def _numbers(one: KindCapacity | PoolCapacity) -> tuple[str, ...]:
    return (one.pool, *map(str, (one.workers, one.slots, one.busy, one.free)))
