"""What a fleet can take, and which worker a user means."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from uuid import UUID

from longshore.core.capacity import capacity
from longshore.core.naming import workers_named
from longshore.model.worker import (
    KindCapacity,
    KindInfo,
    Pool,
    PoolCapacity,
    WorkerInfo,
    WorkerView,
)

AT = datetime(2026, 1, 31, tzinfo=UTC)
KINDS = {"fetch": KindInfo(), "mail": KindInfo(), "resize": KindInfo(Pool.PROCESS)}
POOLS: dict[str, int] = {Pool.COROUTINE: 10, Pool.PROCESS: 2}


def worker(
    number: int = 1,
    *,
    kinds: dict[str, KindInfo] = KINDS,
    pools: Mapping[str, int] = POOLS,
    running: dict[str, int] | None = None,
    alive: bool = True,
    draining: bool = False,
    name: str = "",
) -> WorkerView:
    info = WorkerInfo(id=UUID(int=number), name=name, kinds=kinds, pools=dict(pools))
    return WorkerView(
        info=info,
        session=1,
        dispatcher=UUID(int=9),
        alive=alive,
        draining=draining,
        running=running or {},
        started_at=AT,
        attended_at=AT,
    )


def test_kinds_of_one_pool_share_its_slots() -> None:
    fleet = [worker(1, running={"fetch": 3, "resize": 2}), worker(2, running={"mail": 4})]
    by_kind = {one.kind: one for one in capacity(fleet).kinds}
    assert by_kind["fetch"] == KindCapacity(
        kind="fetch", pool=Pool.COROUTINE, workers=2, slots=20, busy=7, free=13, running=3
    )
    assert (by_kind["mail"].free, by_kind["mail"].running) == (13, 4)
    assert (by_kind["resize"].slots, by_kind["resize"].free) == (4, 2)


def test_workers_that_are_gone_or_draining_can_take_nothing() -> None:
    found = capacity([worker(1, alive=False), worker(2, draining=True)])
    assert found.kinds == ()
    assert found.pools[0] == PoolCapacity(pool=Pool.COROUTINE, workers=0, slots=0, busy=0, free=0)


def test_a_pool_counts_only_workers_that_use_it() -> None:
    found = capacity([worker(1), worker(2, kinds={"fetch": KindInfo()})])
    assert [(one.pool, one.workers, one.slots) for one in found.pools] == [
        (Pool.COROUTINE, 2, 20),
        (Pool.PROCESS, 1, 2),
    ]


def test_a_pool_of_any_name_is_counted_like_the_others() -> None:
    kinds = {**KINDS, "train": KindInfo("gpu")}
    fleet = [
        worker(1, kinds=kinds, pools={**POOLS, "gpu": 4}, running={"train": 3, "resize": 1}),
        worker(2),
    ]
    found = capacity(fleet)
    assert [(one.pool, one.slots, one.busy, one.free) for one in found.pools] == [
        ("coroutine", 20, 0, 20),
        ("gpu", 4, 3, 1),
        ("process", 4, 1, 3),
    ]
    [train] = [one for one in found.kinds if one.kind == "train"]
    assert train == KindCapacity(
        kind="train", pool="gpu", workers=1, slots=4, busy=3, free=1, running=3
    )


def test_an_overfull_worker_takes_nothing_from_the_free_slots_of_others() -> None:
    fleet = [worker(1, running={"fetch": 12}), worker(2)]
    assert capacity(fleet).kinds[0].free == 10


def test_a_worker_is_meant_by_its_id_its_name_or_the_beginning_of_its_id() -> None:
    low, high = worker(0x10 << 120, name="dock-1"), worker(0x11 << 120, name="dock-2")
    fleet = [low, high]
    assert workers_named(str(low.info.id), fleet) == [low]
    assert workers_named("dock-2", fleet) == [high]
    assert workers_named("10", fleet) == [low]
    assert workers_named("1100-0", fleet) == [high]
    assert workers_named("1", fleet) == [low, high]
    assert workers_named("dock", fleet) == []
    assert workers_named("", fleet) == []


def test_a_whole_name_beats_the_beginning_of_an_id() -> None:
    named, other = worker(1, name="10"), worker(0x10 << 120)
    assert workers_named("10", [other, named]) == [named]


def test_a_live_worker_is_meant_before_one_that_is_gone() -> None:
    gone, alive = worker(1, name="dock", alive=False), worker(2, name="dock")
    assert workers_named("dock", [gone, alive]) == [alive]
    assert workers_named("dock", [gone]) == [gone]
