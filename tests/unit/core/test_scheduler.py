"""Which lanes the scheduler claims from, how many jobs, and which submits start at once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct, structs

from longshore.core.admission import FreeSlots, Patience
from longshore.core.lanes import lane_of
from longshore.core.resources import taken
from longshore.core.scheduler import CONTESTED_S, Plan, Scheduler
from longshore.model.batch import Batch, BatchResult
from longshore.model.job import Submission
from longshore.model.worker import Ahead, Claim, KindInfo, Lane, Pool, SessionKey, WorkerInfo
from longshore.testing.builders import a_job, new_id

FETCH = lane_of("default", "fetch", "")
RESIZE = lane_of("default", "resize", "")


class Worker(Struct):
    """A worker in its first session, all of whose slots are free."""

    info: WorkerInfo
    number: int = 1
    given: int = 0

    ahead: Ahead = Ahead()
    busy: int = 0
    taken: str = ""
    """The shape of a job that it runs."""

    @property
    def free_resources(self) -> Mapping[str, float]:
        return taken(self.info.resources, self.taken)

    @property
    def open_slots(self) -> Mapping[str, int]:
        return {pool: slots - self.busy for pool, slots in self.info.pools.items()}

    @property
    def open_ahead(self) -> Mapping[str, int]:
        free = self.open_slots
        return {pool: most + min(0, free[pool]) for pool, most in self.ahead.pools.items()}


def a_worker(*kinds: str, slots: int = 100, target: str = "") -> Worker:
    known = {kind: KindInfo() for kind in kinds}
    return Worker(
        WorkerInfo(id=new_id(), kinds=known, pools={Pool.COROUTINE: slots}, target=target)
    )


def a_scheduler(*lanes: Lane, slots: int = 100, most: int = 1000) -> Scheduler:
    """One worker that serves these lanes, each of which was found empty."""
    scheduler = Scheduler(most, Patience(1.0, 1.0))
    scheduler.joined(a_worker(*(lane.kind for lane in lanes), slots=slots))
    scheduler.add_lanes(lanes)
    return scheduler


def claims_of(scheduler: Scheduler) -> list[Claim]:
    return scheduler.plan([]).claims


def asked(scheduler: Scheduler) -> list[int]:
    return [len(claim.slots) for claim in claims_of(scheduler)]


def test_no_more_is_asked_for_than_was_submitted() -> None:
    scheduler = a_scheduler(FETCH)
    assert asked(scheduler) == []
    scheduler.lanes.add_ready({FETCH.hash: 3})
    assert asked(scheduler) == [3]
    scheduler.lanes.claimed(claims_of(scheduler), {FETCH.hash: 3})
    assert asked(scheduler) == []


def test_what_could_not_be_taken_yet_is_asked_for_again() -> None:
    scheduler = a_scheduler(FETCH, slots=2)
    scheduler.lanes.add_ready({FETCH.hash: 5})
    scheduler.lanes.claimed(claims_of(scheduler), {FETCH.hash: 2})
    scheduler.lanes.add_ready({FETCH.hash: 1})
    assert asked(scheduler) == [2]
    scheduler.lanes.claimed(claims_of(scheduler), {FETCH.hash: 2})
    scheduler.lanes.claimed(claims_of(scheduler), {FETCH.hash: 2})
    assert asked(scheduler) == []


def test_a_worker_of_which_it_is_not_known_what_it_has_is_given_nothing() -> None:
    """It may be full already."""
    scheduler = a_scheduler(FETCH)
    [info] = scheduler.infos()
    slots = [SessionKey(info.id, 1)]
    scheduler.lanes.mark_ready([FETCH.hash])
    scheduler.mark_uncertain(slots)
    assert asked(scheduler) == []
    assert scheduler.plan([a_job(kind="fetch")]).slots == [None]
    scheduler.confirm(slots)
    assert asked(scheduler) == [100]


def test_a_lane_of_which_nothing_is_known_is_asked_for_all_there_is_room_for() -> None:
    scheduler = a_scheduler(FETCH)
    scheduler.lanes.mark_ready([FETCH.hash])
    assert asked(scheduler) == [100]
    scheduler.lanes.claimed(claims_of(scheduler), {FETCH.hash: 100})
    assert asked(scheduler) == [100]
    scheduler.lanes.claimed(claims_of(scheduler), {FETCH.hash: 99})
    assert asked(scheduler) == []


def test_one_lane_that_gives_nothing_leaves_the_others_as_they_are() -> None:
    scheduler = a_scheduler(FETCH, RESIZE)
    scheduler.lanes.add_ready({FETCH.hash: 2})
    made = claims_of(scheduler)
    scheduler.lanes.add_ready({RESIZE.hash: 1})
    scheduler.lanes.claimed(made, {})
    (claim,) = claims_of(scheduler)
    assert (claim.lanes, len(claim.slots)) == ((RESIZE.hash,), 1)


def test_a_lane_that_was_filled_while_it_was_looked_into_is_looked_into_again() -> None:
    scheduler = a_scheduler(FETCH)
    scheduler.lanes.add_ready({FETCH.hash: 1})
    made = claims_of(scheduler)
    scheduler.lanes.add_ready({FETCH.hash: 4})
    scheduler.lanes.claimed(made, {})
    assert asked(scheduler) == [5]


def test_when_a_batch_has_no_room_for_all_each_kind_of_worker_is_served_in_turn() -> None:
    scheduler = a_scheduler(FETCH, most=10)
    scheduler.joined(a_worker("resize"))
    scheduler.add_lanes([RESIZE])
    scheduler.lanes.mark_ready([FETCH.hash, RESIZE.hash])
    served = [claim.lanes for _ in range(4) for claim in claims_of(scheduler)]
    assert sorted(served) == sorted([(FETCH.hash,), (RESIZE.hash,)] * 2)


def started(plan: Plan) -> list[bool]:
    return [slot is not None for slot in plan.slots]


def some(kind: str, count: int, priority: int = 0) -> list[Submission]:
    return [a_job(kind=kind, priority=priority) for _ in range(count)]


def test_submits_begin_at_once_where_nobody_waits() -> None:
    scheduler = a_scheduler(FETCH, slots=2)
    plan = scheduler.plan(some("fetch", 3))
    assert started(plan) == [True, True, False]
    assert plan.claims == []
    assert scheduler.free_slots() == FreeSlots(2, True)


def test_submits_do_not_overtake_those_who_wait() -> None:
    scheduler = a_scheduler(FETCH, RESIZE, slots=5)
    scheduler.lanes.add_ready({RESIZE.hash: 1})
    plan = scheduler.plan(some("fetch", 3))
    assert started(plan) == [False] * 3
    assert [len(claim.slots) for claim in plan.claims] == [4]


def test_the_most_urgent_submits_are_started_first() -> None:
    scheduler = a_scheduler(FETCH, RESIZE, slots=2)
    jobs = [*some("fetch", 2), *some("resize", 1, priority=5), *some("fetch", 1, priority=1)]
    assert started(scheduler.plan(jobs)) == [False, False, True, True]


def test_submits_for_later_and_of_unknown_kinds_do_not_start() -> None:
    scheduler = a_scheduler(FETCH)
    jobs = [a_job(kind="fetch", delay_s=5.0), a_job(kind="strange"), a_job(kind="fetch")]
    plan = scheduler.plan(jobs)
    assert started(plan) == [False, False, True]


def test_what_one_kind_of_worker_has_no_room_for_goes_to_another() -> None:
    scheduler = a_scheduler(FETCH, slots=1)
    scheduler.joined(a_worker("fetch", "resize", slots=1))
    for claim in [*claims_of(scheduler), *claims_of(scheduler)]:
        scheduler.lanes.claimed([claim], {})
    assert started(scheduler.plan(some("fetch", 3))).count(True) == 2


def test_free_slot_are_those_that_somebody_waits_for_if_anybody_does() -> None:
    scheduler = a_scheduler(FETCH, slots=3)
    assert scheduler.free_slots() == FreeSlots(3, False)
    scheduler.joined(a_worker("resize", slots=4))
    scheduler.add_lanes([RESIZE])
    scheduler.lanes.claimed(claims_of(scheduler), {})
    assert scheduler.free_slots() == FreeSlots(7, False)
    scheduler.lanes.add_ready({RESIZE.hash: 1})
    assert scheduler.free_slots() == FreeSlots(4, True)


def test_submits_in_every_batch_do_not_keep_the_same_kind_of_worker_first() -> None:
    scheduler = a_scheduler(FETCH, most=1)
    scheduler.joined(a_worker("resize"))
    scheduler.add_lanes([RESIZE])
    scheduler.lanes.mark_ready([FETCH.hash, RESIZE.hash])
    plans = [scheduler.plan(some("fetch", 1)) for _ in range(4)]
    served = [claim.lanes for plan in plans for claim in plan.claims]
    assert sorted(served) == sorted([(FETCH.hash,), (RESIZE.hash,)] * 2)


class Unwalked(dict[int, float]):
    """May be looked into, but not walked through."""

    def __iter__(self) -> Iterator[int]:
        raise AssertionError("it takes as long as there are lanes, for every profile")


def test_lanes_that_nobody_serves_cost_the_others_nothing() -> None:
    scheduler = a_scheduler(FETCH)
    scheduler.lanes._ready = Unwalked((n, 1.0) for n in range(1000))
    assert scheduler.free_slots() == FreeSlots(100, False)
    assert started(scheduler.plan(some("fetch", 2))) == [True, True]


def test_slot_of_many_kinds_of_workers_are_filled_by_urgency() -> None:
    scheduler = a_scheduler(FETCH, slots=1)
    for number in range(3):
        scheduler.joined(a_worker("fetch", slots=1, target=f"{number}"))
    scheduler.lanes.claimed(claims_of(scheduler), {})
    jobs = [a_job(kind="fetch", priority=priority) for priority in (1, 0, 2, 0, 3, 1)]
    plan = scheduler.plan(jobs)
    assert started(plan) == [True, False, True, False, True, True]
    assert len({slot.worker for slot in plan.slots if slot is not None}) == 4


# what an answered transaction means for the next one


def answer(
    scheduler: Scheduler,
    taken: int = 0,
    waiting: Sequence[Submission] = (),
    contested: bool = False,
) -> float | None:
    """The store answered a transaction with a claim from `FETCH`."""
    made = claims_of(scheduler)
    lanes = frozenset({FETCH.hash} if contested else ())
    counts = {FETCH.hash: taken} if taken else {}
    slots = [SessionKey(new_id(), 1)] * len(waiting)
    batch = Batch(claims=made, submits=waiting, slots=slots)
    return scheduler.answered(batch, BatchResult(taken=counts, contested=lanes))


def test_after_a_claim_the_next_one_is_planned_at_once() -> None:
    scheduler = a_scheduler(FETCH, slots=2)
    scheduler.lanes.add_ready({FETCH.hash: 3})
    assert answer(scheduler, taken=2) == 0.0
    assert asked(scheduler) == [1]
    scheduler.lanes.claimed(claims_of(scheduler), {FETCH.hash: 1})
    assert answer(scheduler) is None


def test_what_another_dispatcher_reached_for_is_looked_for_again_soon() -> None:
    scheduler = a_scheduler(FETCH)
    scheduler.lanes.add_ready({FETCH.hash: 3})
    assert answer(scheduler, contested=True) == CONTESTED_S
    assert asked(scheduler) == [100]


def test_a_submit_that_did_not_start_on_its_slot_is_claimed() -> None:
    scheduler = a_scheduler(FETCH)
    assert answer(scheduler, waiting=some("fetch", 1)) == 0.0
    assert asked(scheduler) == [1]


def test_a_lane_that_is_heard_of_while_lanes_are_settled_is_kept_until_the_next_time() -> None:
    scheduler = Scheduler(10, Patience(1.0, 1.0))
    scheduler.sync_lanes([FETCH])
    scheduler.add_lanes([RESIZE])
    scheduler.sync_lanes([])
    assert (FETCH in scheduler.lanes, RESIZE in scheduler.lanes) == (False, True)
    scheduler.sync_lanes([])
    assert RESIZE not in scheduler.lanes
    assert not scheduler.lanes.has_queue("default")


AHEAD = Ahead({Pool.COROUTINE.value: 5}, ("fetch",))


def scheduling(*workers: Worker) -> Scheduler:
    """These workers, and no ready job."""
    scheduler = Scheduler(1000, Patience(1.0, 1.0))
    for worker in workers:
        scheduler.joined(worker)
    scheduler.add_lanes([FETCH, RESIZE])
    return scheduler


def test_only_jobs_that_find_no_free_slot_are_held_ahead() -> None:
    """No worker is idle while another one holds attempts ahead."""
    busy = structs.replace(a_worker("fetch", slots=2), ahead=AHEAD, busy=2)
    idle = a_worker("fetch", slots=2)
    scheduler = scheduling(busy, idle)
    scheduler.lanes.add_ready({FETCH.hash: 4})
    made = claims_of(scheduler)
    assert [[slot.worker for slot in one.slots] for one in made] == [
        [idle.info.id] * 2,
        [busy.info.id] * 2,
    ]


def test_a_worker_holds_no_more_ahead_than_it_says() -> None:
    half = structs.replace(a_worker("fetch", slots=2), ahead=AHEAD, busy=5)
    full = structs.replace(a_worker("fetch", slots=2), ahead=AHEAD, busy=7)
    scheduler = scheduling(half, full)
    scheduler.lanes.add_ready({FETCH.hash: 100})
    (claim,) = claims_of(scheduler)
    assert [slot.worker for slot in claim.slots] == [half.info.id] * 2


def test_only_kinds_that_are_short_are_held_ahead() -> None:
    worker = structs.replace(a_worker("fetch", "resize", slots=1), ahead=AHEAD, busy=1)
    scheduler = scheduling(worker)
    scheduler.lanes.add_ready({FETCH.hash: 1, RESIZE.hash: 9})
    (claim,) = claims_of(scheduler)
    assert set(claim.lanes) == {FETCH.hash, RESIZE.hash}
    assert (claim.ahead, len(claim.slots)) == (frozenset({FETCH.hash}), 1)


def test_a_claim_for_free_slots_takes_jobs_that_may_not_be_held_ahead_too() -> None:
    worker = structs.replace(a_worker("fetch", "resize", slots=2), ahead=AHEAD, busy=1)
    scheduler = scheduling(worker)
    scheduler.lanes.add_ready({FETCH.hash: 9, RESIZE.hash: 9})
    assert [(one.ahead, len(one.slots)) for one in claims_of(scheduler)] == [
        (None, 1),
        ({FETCH.hash}, 5),
    ]


def test_no_plan_looks_ahead_past_a_job_that_waits_for_a_free_slot_until_one_is_claimed_for() -> (
    None
):
    """Otherwise no slot would come free for that job while short ones keep coming."""
    worker = structs.replace(a_worker("fetch", "resize", slots=1), ahead=AHEAD, busy=1)
    scheduler = scheduling(worker)
    scheduler.lanes.add_ready({FETCH.hash: 9, RESIZE.hash: 1})
    (claim,) = claims_of(scheduler)
    barred = frozenset(claim.lanes)
    answer_of = BatchResult(taken={FETCH.hash: 2}, barred=barred)
    scheduler.answered(Batch(claims=[claim]), answer_of)
    worker.busy = 3
    assert claims_of(scheduler) == []
    worker.busy = 0
    free, ahead = claims_of(scheduler)
    assert (free.ahead, set(free.lanes)) == (None, {FETCH.hash, RESIZE.hash})
    assert ahead.ahead == frozenset({FETCH.hash})


def test_a_barred_lane_that_another_dispatcher_emptied_keeps_nobody_from_looking_ahead() -> None:
    worker = structs.replace(a_worker("fetch", "resize", slots=1), ahead=AHEAD, busy=1)
    scheduler = scheduling(worker)
    scheduler.lanes.add_ready({FETCH.hash: 9, RESIZE.hash: 1})
    (claim,) = claims_of(scheduler)
    scheduler.answered(Batch(claims=[claim]), BatchResult(barred=frozenset(claim.lanes)))
    scheduler.lanes.claimed([Claim((RESIZE.hash,), claim.slots)], {})
    worker.busy = 0
    assert [one.ahead for one in claims_of(scheduler)] == [None, {FETCH.hash}]


def test_submits_start_ahead_too_if_no_job_is_ready() -> None:
    worker = structs.replace(a_worker("fetch", slots=2), ahead=AHEAD, busy=1)
    scheduler = scheduling(worker)
    plan = scheduler.plan(some("fetch", 8))
    assert [slot is not None for slot in plan.slots] == [True] * 6 + [False] * 2
    assert plan.claims == []


def left_over(scheduler: Scheduler, submits: Sequence[Submission] = ()) -> list[int]:
    """How many slots each offer for dependents has."""
    plan = scheduler.plan(submits, has_ends=True)
    return [sum(one.free for one in some.workers) for some in plan.for_dependents]


def test_slots_that_no_ready_job_waits_for_are_left_for_dependents() -> None:
    scheduler = a_scheduler(FETCH, RESIZE, slots=10)
    assert left_over(scheduler) == [10]
    [offered] = scheduler.plan([], has_ends=True).for_dependents
    assert {FETCH.hash, RESIZE.hash} <= offered.lanes


def test_without_ends_there_are_no_dependents_to_leave_slots_for() -> None:
    scheduler = a_scheduler(FETCH, slots=10)
    assert scheduler.plan([]).for_dependents == ()
    scheduler.lanes.add_ready({FETCH.hash: 4})
    assert scheduler.plan([]).for_dependents == ()


def test_ready_jobs_come_before_dependents() -> None:
    scheduler = a_scheduler(FETCH, RESIZE, slots=10)
    scheduler.lanes.add_ready({FETCH.hash: 4})
    assert left_over(scheduler) == [6]
    scheduler.lanes.add_ready({FETCH.hash: 20})
    assert left_over(scheduler) == []


def test_while_nobody_knows_how_many_jobs_are_ready_dependents_get_no_slots() -> None:
    scheduler = a_scheduler(FETCH, slots=10)
    scheduler.lanes.mark_all()
    assert left_over(scheduler) == []


def test_slots_that_submits_take_are_not_left_for_dependents() -> None:
    scheduler = a_scheduler(FETCH, slots=10)
    assert left_over(scheduler, [a_job(kind="fetch")]) == []


def test_a_claim_of_turns_offers_the_slots_of_all_workers() -> None:
    """The one that had the actor last may be any of them."""
    turns = lane_of("default", "Club@1", "")
    scheduler = a_scheduler(turns, FETCH, slots=4)
    scheduler.joined(a_worker(turns.kind, FETCH.kind, slots=4))
    scheduler.lanes.claimed(claims_of(scheduler), {})
    scheduler.lanes.add_ready({FETCH.hash: 2})
    assert [(len(one.slots), one.keeps) for one in claims_of(scheduler)] == [(2, False)]
    scheduler.lanes.add_ready({turns.hash: 1})
    [claim] = claims_of(scheduler)
    assert (len(claim.slots), len({*claim.slots}), claim.keeps) == (8, 2, True)
    scheduler.lanes.claimed([claim], {FETCH.hash: 2, turns.hash: 1})
    assert claims_of(scheduler) == []


def reading(*, slots: int, workers: int = 2) -> tuple[Scheduler, list[Worker]]:
    """Workers of a kind with files, and of another; no lane has ready jobs."""
    scheduler = Scheduler(1000, Patience(1.0, 1.0))
    kinds = {"resize": KindInfo(files=True), "fetch": KindInfo()}
    some = [
        Worker(WorkerInfo(id=new_id(), kinds=kinds, pools={Pool.COROUTINE: slots}))
        for _ in range(workers)
    ]
    for one in some:
        scheduler.joined(one)
    scheduler.add_lanes([FETCH, RESIZE])
    return scheduler, some


def test_a_claim_of_jobs_with_files_says_who_has_which_and_offers_all_slots() -> None:
    scheduler, workers = reading(slots=4)
    scheduler.lanes.add_ready({RESIZE.hash: 1})
    [claim] = claims_of(scheduler)
    assert (claim.at_hand, len(claim.slots)) == (None, 1), "nobody has any files"
    scheduler.files.note(workers[0].info.id, ["photos"])
    scheduler.lanes.mark_ready([RESIZE.hash])
    [claim] = claims_of(scheduler)
    assert claim.at_hand is not None
    assert [*claim.at_hand.workers["photos"]] == [workers[0].info.id]
    assert claim.at_hand.kinds.keys() == {"resize"}
    assert len(claim.slots) == 8


def test_a_claim_of_jobs_without_files_is_as_it_always_was() -> None:
    scheduler, workers = reading(slots=4)
    scheduler.files.note(workers[0].info.id, ["photos"])
    scheduler.lanes.add_ready({FETCH.hash: 1})
    [claim] = claims_of(scheduler)
    assert (claim.at_hand, len(claim.slots)) == (None, 1)


def test_a_submit_starts_where_its_files_are() -> None:
    scheduler, workers = reading(slots=2, workers=3)
    scheduler.files.note(workers[2].info.id, ["photos"])
    jobs = [a_job(kind="resize") for _ in range(4)]
    plan = scheduler.plan(jobs, inputs={1: ["photos"], 2: ["photos"], 3: ["photos"]})
    placed = [slot.worker for slot in plan.slots if slot is not None]
    assert placed[1:3] == [workers[2].info.id] * 2, "it has two slots"
    assert workers[2].info.id not in (placed[0], placed[3])
