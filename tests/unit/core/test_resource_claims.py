"""Jobs that take resources are claimed only for workers on which they fit."""

from __future__ import annotations

from msgspec import structs
from tests.unit.core.test_scheduler import Worker

from longshore.core.admission import Patience
from longshore.core.lanes import lane_of
from longshore.core.reservations import RESERVE_S
from longshore.core.scheduler import Plan, Scheduler
from longshore.model.worker import KindInfo, Lane, Pool, WorkerInfo
from longshore.testing.builders import a_job, new_id

PLAIN = lane_of("default", "train", "")
SMALL = lane_of("default", "train", ";cpu=1")
LARGE = lane_of("default", "train", ";cpu=4")


def a_worker(cpu: float, slots: int = 100, taken: str = "") -> Worker:
    info = WorkerInfo(
        id=new_id(),
        kinds={"train": KindInfo()},
        pools={Pool.COROUTINE: slots},
        resources={"cpu": cpu},
    )
    return Worker(info, taken=taken)


def a_scheduler(*workers: Worker, lanes: tuple[Lane, ...]) -> Scheduler:
    scheduler = Scheduler(1000, Patience(1.0, 1.0))
    for worker in workers:
        scheduler.joined(worker)
    scheduler.add_lanes(lanes)
    scheduler.lanes.mark_all()
    return scheduler


def slots_of(plan: Plan) -> dict[tuple[int, ...], int]:
    return {claim.lanes: len(claim.slots) for claim in plan.claims}


def test_as_many_are_claimed_as_fit() -> None:
    scheduler = a_scheduler(a_worker(cpu=10), lanes=(LARGE,))
    assert slots_of(scheduler.plan([])) == {(LARGE.hash,): 2}


def test_no_more_are_claimed_than_there_are_slots() -> None:
    scheduler = a_scheduler(a_worker(cpu=10, slots=1), lanes=(LARGE,))
    assert slots_of(scheduler.plan([])) == {(LARGE.hash,): 1}


def test_what_fits_nowhere_now_is_not_claimed() -> None:
    scheduler = a_scheduler(a_worker(cpu=4, taken="cpu=1"), lanes=(LARGE,))
    assert scheduler.plan([]).claims == []


def test_a_plan_serves_one_shape_and_all_get_their_turn() -> None:
    scheduler = a_scheduler(a_worker(cpu=4), lanes=(PLAIN, SMALL, LARGE))
    plans = [scheduler.plan([]) for _ in range(3)]
    assert all(len(plan.claims) == 1 for plan in plans)
    assert {claim.lanes[0] for plan in plans for claim in plan.claims} == {
        PLAIN.hash,
        SMALL.hash,
        LARGE.hash,
    }


def test_a_shape_that_does_not_fit_leaves_its_turn_to_others() -> None:
    scheduler = a_scheduler(a_worker(cpu=4, taken="cpu=1"), lanes=(PLAIN, LARGE))
    for _ in range(4):
        assert slots_of(scheduler.plan([])) == {(PLAIN.hash,): 100}


def test_two_pools_of_a_worker_are_not_promised_the_same_resources() -> None:
    info = WorkerInfo(
        id=new_id(),
        kinds={"train": KindInfo(), "test": KindInfo(pool=Pool.PROCESS)},
        pools={Pool.COROUTINE: 10, Pool.PROCESS: 10},
        resources={"cpu": 4.0},
    )
    other = lane_of("default", "test", ";cpu=4")
    scheduler = a_scheduler(Worker(info), lanes=(LARGE, other))
    plans = [scheduler.plan([]) for _ in range(2)]
    assert [len(plan.claims) for plan in plans] == [1, 1]
    assert {claim.lanes for plan in plans for claim in plan.claims} == {
        (LARGE.hash,),
        (other.hash,),
    }


def test_a_submit_that_takes_resources_waits_for_a_claim() -> None:
    scheduler = a_scheduler(a_worker(cpu=4), lanes=())
    job = a_job(kind="train", resources="cpu=1")
    plan = scheduler.plan([job])
    assert plan.slots == [None]
    assert slots_of(plan) == {(SMALL.hash,): 1}


def test_a_large_job_that_waited_too_long_reserves_the_worker_that_comes_nearest() -> None:
    near, far = a_worker(cpu=4, taken="cpu=1"), a_worker(cpu=4, taken="cpu=3")
    scheduler = a_scheduler(near, far, lanes=(SMALL, LARGE))

    def taken_small(now: float) -> set[object]:
        plans = [scheduler.plan([], now=now) for _ in range(2)]
        claims = [claim for plan in plans for claim in plan.claims]
        assert all(claim.lanes == (SMALL.hash,) for claim in claims)
        return {slot.worker for claim in claims for slot in claim.slots}

    assert taken_small(0.0) == {near.info.id, far.info.id}
    assert taken_small(RESERVE_S + 1) == {far.info.id}
    near.taken = ""
    plans = [scheduler.plan([], now=RESERVE_S + 2) for _ in range(2)]
    large = [claim for plan in plans for claim in plan.claims if claim.lanes == (LARGE.hash,)]
    assert [slot.worker for slot in large[0].slots] == [near.info.id]
    small = [scheduler.plan([], now=RESERVE_S + 3) for _ in range(2)]
    assert near.info.id in {
        slot.worker
        for plan in small
        for claim in plan.claims
        for slot in claim.slots
        if claim.lanes == (SMALL.hash,)
    }


def test_a_reservation_ends_with_its_session() -> None:
    near = a_worker(cpu=4, taken="cpu=1")
    scheduler = a_scheduler(near, lanes=(SMALL, LARGE))
    for now in (0.0, RESERVE_S + 1):
        scheduler.plan([], now=now)
        scheduler.plan([], now=now)
    assert scheduler.plan([], now=RESERVE_S + 2).claims == []
    scheduler.left(near)
    scheduler.joined(near)
    assert any(scheduler.plan([], now=RESERVE_S + 3).claims for _ in range(2))


def workers_of(plan: Plan) -> list[object]:
    return [slot.worker for claim in plan.claims for slot in claim.slots]


def test_small_jobs_leave_a_worker_empty_for_a_large_one() -> None:
    """Spread over both workers, they would keep the large job waiting for either of them."""
    used, empty = a_worker(cpu=4, taken="cpu=1"), a_worker(cpu=4)
    scheduler = a_scheduler(empty, used, lanes=(SMALL, LARGE))
    scheduler.lanes.claimed(scheduler.plan([]).claims, {})
    scheduler.lanes.claimed(scheduler.plan([]).claims, {})
    scheduler.lanes.add_ready({SMALL.hash: 3})
    assert workers_of(scheduler.plan([])) == [used.info.id] * 3
    used.taken = "cpu=4"
    scheduler.lanes.claimed([], {SMALL.hash: 3})
    scheduler.lanes.add_ready({LARGE.hash: 1})
    assert workers_of(scheduler.plan([])) == [empty.info.id]


def test_jobs_that_need_one_resource_go_where_others_are_taken_too() -> None:
    """A job that needs CPU alone does not take it from a worker whose device is free."""
    info = WorkerInfo(
        id=new_id(),
        kinds={"train": KindInfo()},
        pools={Pool.COROUTINE: 9},
        resources={"cpu": 4.0, "gpu": 1.0},
    )
    free, used = Worker(info), Worker(structs.replace(info, id=new_id()), taken="gpu=1")
    scheduler = a_scheduler(free, used, lanes=(SMALL,))
    scheduler.lanes.claimed(scheduler.plan([]).claims, {})
    scheduler.lanes.add_ready({SMALL.hash: 1})
    assert workers_of(scheduler.plan([])) == [used.info.id]


def test_jobs_without_resources_go_to_the_worker_with_most_free_slots() -> None:
    used, empty = a_worker(cpu=4, taken="cpu=1"), a_worker(cpu=4)
    used.busy = 1
    scheduler = a_scheduler(used, empty, lanes=(PLAIN,))
    scheduler.lanes.claimed(scheduler.plan([]).claims, {})
    scheduler.lanes.add_ready({PLAIN.hash: 1})
    assert workers_of(scheduler.plan([])) == [empty.info.id]
