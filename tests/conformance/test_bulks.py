"""Bulks in every store: what each action does, which jobs it leaves, and what a repeat changes."""

from __future__ import annotations

from collections.abc import Mapping
from uuid import uuid4

import pytest

from longshore.core.bulks import planned
from longshore.errors import StoreUnavailable
from longshore.model.access import Scope
from longshore.model.bulk import BulkRun, BulkState
from longshore.model.ends import Failed
from longshore.model.job import ArgTerm, JobFilter, JobState, LogEntry, LogKind, Refused
from longshore.ports import Store
from longshore.testing.builders import Scene, a_group, a_job, done, lane
from longshore.testing.faults import Fault, FaultyStore, scripted
from tests.conformance.bulk_steps import (
    PAGE,
    a_bulk,
    begun,
    did,
    failed,
    finished,
    next_page,
    step,
)


def refused(bulk: BulkRun) -> dict[str, tuple[int, ...]]:
    """The jobs that were left as they were, by the reason."""
    return {one.why: one.examples for one in bulk.refused}


async def counts(store: Store) -> dict[str, Mapping[str, int]]:
    """How many jobs each queue has, by state."""
    await store.lanes()
    found = {view.name: view.counts for view in await store.queues()}
    return {name: {k: n for k, n in of.items() if n} for name, of in found.items()}


# the actions


async def test_a_cancel_ends_what_waits_and_stops_what_runs(scene: Scene, store: Store) -> None:
    running = await scene.running()
    numbers = await scene.accepted(*(a_job() for _ in range(7)), a_job(delay_s=1000.0))
    other = await scene.accepted(a_job(kind="other"))
    bulk = await did(store, "cancel", JobFilter(kind="work"))
    assert (bulk.matched, bulk.done, bulk.refused) == (9, 9, ())
    assert set(await scene.states(numbers)) == {JobState.CANCELLED}
    assert await scene.state(running.number) is JobState.CANCELLING
    assert await scene.state(other[0]) is JobState.READY
    assert await counts(store) == {"default": {"cancelled": 8, "cancelling": 1, "ready": 1}}


async def test_a_page_tells_whom_it_cancelled(scene: Scene, store: Store) -> None:
    running = await scene.running()
    ready = a_job()
    await scene.accepted(ready)
    bulk = await begun(store, a_bulk("cancel", JobFilter(kind="work")))
    advance = await store.advance_bulk(await next_page(store, bulk))
    assert advance is not None
    assert (advance.cancelled, advance.cancelling) == ((ready.id,), (running.id,))


async def test_a_retry_opens_a_round_of_what_failed(scene: Scene, store: Store) -> None:
    numbers = await failed(scene, 5)
    bulk = await did(store, "retry", JobFilter(states=(JobState.FAILED,)), by="me")
    assert (bulk.matched, bulk.done) == (5, 5)
    for number in numbers:
        job = await scene.job(number)
        assert (job.state, job.round) == (JobState.READY, 2)
        assert job.history[-1].by == f"me, bulk {bulk.number}"
    assert len(await scene.claim(await scene.attend(), most=9)) == 5


async def test_a_retry_names_the_jobs_that_it_cannot_do(scene: Scene, store: Store) -> None:
    key = a_job(unique_key="once")
    await scene.ended(Failed, key)
    [holder] = await scene.accepted(a_job(unique_key="once"))
    group = await scene.submit_group(a_group({"a": ""}))
    await group.claim()
    await group.end("a", how=Failed)
    await scene.settle()
    bulk = await did(store, "retry", JobFilter(kind="work", states=tuple(JobState)))
    first = (await scene.job(key.id)).number
    inner = (await scene.job(group.jobs["a"])).number
    assert bulk.done == 0
    assert refused(bulk) == {
        "belongs to a group: `longshore group retry` runs it again": (inner,),
        "has not ended": (holder,),
        "cannot run: another job with its unique key has not ended": (first,),
    }
    assert (await scene.job(key.id)).round == 1


async def test_two_jobs_of_one_key_are_not_both_retried(scene: Scene, store: Store) -> None:
    for _ in range(2):
        await scene.ended(Failed, a_job(unique_key="once"))
    bulk = await did(store, "retry", JobFilter(kind="work"))
    assert (bulk.matched, bulk.done) == (2, 1)


async def test_a_priority_changes_the_order_of_claims(scene: Scene, store: Store) -> None:
    numbers = await scene.accepted(*(a_job() for _ in range(5)))
    labelled = await scene.accepted(*(a_job(labels=("vip",)) for _ in range(4)))
    slot = await scene.attend()
    first = await scene.claim(slot)
    assert [one.number for one in first] == numbers[:1]
    bulk = await did(store, "priority", JobFilter(labels=("vip",)), priority=7)
    assert (bulk.done, bulk.refused) == (4, ())
    assert [one.number for one in await scene.claim(slot, most=4)] == labelled
    assert (await scene.job(labelled[0])).priority == 7
    everything = await did(
        store, "priority", JobFilter(kind="work", states=tuple(JobState)), priority=-3
    )
    assert everything.done == 4
    assert [one.count for one in everything.refused] == [5]
    assert "runs already" in refused(everything)


async def test_a_moved_job_is_claimed_from_its_new_queue_alone(scene: Scene, store: Store) -> None:
    await scene.accepted(a_job(queue="mail"))
    numbers = await scene.accepted(*(a_job() for _ in range(4)), a_job(delay_s=1000.0))
    bulk = await did(store, "move", JobFilter(queue="default"), queue="mail")
    assert (bulk.matched, bulk.done) == (5, 5)
    assert await counts(store) == {"default": {}, "mail": {"ready": 5, "delayed": 1}}
    slot = await scene.attend()
    assert await scene.claim(slot, lane(), most=9) == []
    claimed = await scene.claim(slot, lane(queue="mail"), most=9)
    assert {one.number for one in claimed} >= set(numbers[:4])
    assert (await scene.job(numbers[4])).queue == "mail"


async def test_a_moved_job_obeys_the_pause_of_its_new_queue(scene: Scene, store: Store) -> None:
    await store.set_paused("night", True)
    await scene.accepted(a_job())
    await did(store, "move", JobFilter(queue="default"), queue="night")
    slot = await scene.attend()
    assert await scene.claim(slot, lane(queue="night")) == []
    await store.set_paused("night", False)
    assert len(await scene.claim(slot, lane(queue="night"))) == 1


async def test_jobs_of_a_group_are_moved_and_still_wake_each_other(
    scene: Scene, store: Store
) -> None:
    group = await scene.submit_group(a_group({"a": "", "b": "a"}))
    bulk = await did(store, "move", JobFilter(queue="default"), queue="mail")
    assert bulk.done == 2
    slot = await scene.attend()
    [first] = await scene.claim(slot, lane(queue="mail"))
    await scene.finish(done(first))
    await scene.settle()
    assert await group.state("b") is JobState.READY
    assert len(await scene.claim(slot, lane(queue="mail"))) == 1


async def test_a_repeated_submit_of_a_moved_job_is_recognised(scene: Scene, store: Store) -> None:
    job = a_job()
    [number] = await scene.accepted(job)
    await did(store, "move", JobFilter(queue="default"), queue="mail")
    [again] = await scene.submit(job)
    assert not isinstance(again, Refused)
    assert again.number == number


async def test_a_delete_removes_jobs_with_their_logs(scene: Scene, store: Store) -> None:
    attempt = await scene.ended(Failed)
    await store.log([LogEntry(attempt.id, attempt.token, 1, LogKind.TEXT, b"said")])
    await failed(scene, 4)
    [ready] = await scene.accepted(a_job())
    bulk = await did(store, "delete", JobFilter(kind="work"))
    assert (bulk.matched, bulk.done, bulk.refused) == (5, 5, ())
    assert await store.job(attempt.id) is None
    assert await store.logs(attempt.id) == []
    assert await counts(store) == {"default": {"ready": 1}}
    assert await scene.state(ready) is JobState.READY


async def test_a_delete_leaves_jobs_of_groups_and_live_ones(scene: Scene, store: Store) -> None:
    group = await scene.submit_group(a_group({"a": ""}))
    await group.claim()
    await group.end("a")
    await scene.settle()
    await scene.accepted(a_job())
    bulk = await did(store, "delete", JobFilter(kind="work", states=tuple(JobState)))
    assert bulk.done == 0
    assert set(refused(bulk)) == {
        "has not ended",
        "belongs to a group, with which it goes: `longshore prune`",
    }


# which jobs it means


async def test_jobs_that_came_after_its_start_are_not_touched(scene: Scene, store: Store) -> None:
    old = await scene.accepted(*(a_job() for _ in range(4)))
    bulk = await begun(store, a_bulk("cancel", JobFilter(kind="work")))
    new = await scene.accepted(a_job())
    bulk = await finished(store, bulk)
    assert bulk.done == 4
    assert set(await scene.states(old)) == {JobState.CANCELLED}
    assert await scene.states(new) == [JobState.READY]


async def test_a_job_that_no_longer_matches_is_left_alone(scene: Scene, store: Store) -> None:
    """It ended, was retried or was moved between the look and the transaction."""
    numbers = await failed(scene, 3)
    bulk = await begun(store, a_bulk("delete", JobFilter(states=(JobState.FAILED,))))
    page = await next_page(store, bulk)
    await store.retry([numbers[1]])
    advance = await store.advance_bulk(page)
    assert advance is not None
    assert (advance.bulk.matched, advance.bulk.done) == (2, 2)
    assert await scene.state(numbers[1]) is JobState.READY


async def test_a_job_that_was_moved_out_of_reach_is_left_alone(scene: Scene, store: Store) -> None:
    [number] = await scene.accepted(a_job())
    mine = a_bulk("cancel", JobFilter(kind="work"), scope=Scope(queues=("default",)))
    bulk = await begun(store, mine)
    page = await next_page(store, bulk)
    await did(store, "move", JobFilter(queue="default"), queue="mail")
    advance = await store.advance_bulk(page)
    assert advance is not None
    assert (advance.bulk.matched, advance.bulk.done) == (0, 0)
    assert await scene.state(number) is JobState.READY


async def test_a_scope_takes_only_what_is_in_reach(scene: Scene, store: Store) -> None:
    mine = await scene.accepted(*(a_job(queue="mine") for _ in range(4)))
    others = await scene.accepted(*(a_job(queue="others") for _ in range(4)))
    bulk = await did(store, "cancel", JobFilter(kind="work"), scope=Scope(queues=("mine",)))
    assert (bulk.matched, bulk.done) == (4, 4)
    assert set(await scene.states(mine)) == {JobState.CANCELLED}
    assert set(await scene.states(others)) == {JobState.READY}


async def test_it_looks_into_arguments(scene: Scene, store: Store) -> None:
    acme = await scene.accepted(*(a_job(args=b"\x81\xa6tenant\xa4acme") for _ in range(4)))
    other = await scene.accepted(a_job(args=b"\x81\xa6tenant\xa4amce"))
    wanted = JobFilter(args=(ArgTerm("tenant", "acme"),))
    bulk = await did(store, "cancel", wanted)
    assert bulk.done == 4
    assert set(await scene.states(acme)) == {JobState.CANCELLED}
    assert await scene.states(other) == [JobState.READY]


async def test_a_plan_counts_what_a_bulk_then_does(scene: Scene, store: Store) -> None:
    await failed(scene, 2)
    await scene.accepted(*(a_job() for _ in range(3)))
    new = a_bulk("retry", JobFilter(kind="work", states=tuple(JobState)))
    plan = planned(new, await store.jobs(new.wanted))
    assert (plan.matched, plan.would, plan.go_on) == (5, 2, None)
    assert plan.states == {JobState.FAILED: 2, JobState.READY: 3}
    bulk = await finished(store, await begun(store, new))
    assert (bulk.matched, bulk.done, bulk.refused) == (plan.matched, plan.would, plan.refused)


# its life


async def test_a_repeat_of_its_start_is_the_same_bulk(scene: Scene, store: Store) -> None:
    new = a_bulk("cancel", JobFilter(kind="work"))
    first = await begun(store, new)
    await scene.accepted(a_job())
    assert await begun(store, new) == first
    assert await store.bulks() == [first]
    assert await store.bulk(first.number) == await store.bulk(new.id) == first


async def test_only_so_many_bulks_run_at_once(store: Store) -> None:
    first = await begun(store, a_bulk("cancel", JobFilter(kind="work")), most=1)
    second = a_bulk("cancel", JobFilter(kind="work"))
    refused = await store.put_bulk(second, 1)
    assert isinstance(refused, Refused)
    assert "max_bulks" in refused.message
    await finished(store, first)
    assert isinstance(await store.put_bulk(second, 1), BulkRun)


async def test_a_cancelled_bulk_does_nothing_more(scene: Scene, store: Store) -> None:
    numbers = await scene.accepted(*(a_job() for _ in range(5)))
    bulk = await step(store, await begun(store, a_bulk("cancel", JobFilter(kind="work"))))
    page = await next_page(store, bulk)
    stopped = await store.stop_bulk(bulk.number, "me")
    assert stopped is not None
    assert (stopped.state, stopped.done, stopped.stopped_by) == (BulkState.CANCELLED, PAGE, "me")
    assert await store.advance_bulk(page) is None
    assert await store.stop_bulk(bulk.new.id, "you") == stopped
    assert await store.running_bulks() == []
    assert (await scene.states(numbers)).count(JobState.READY) == 2


async def test_a_bulk_that_is_done_cannot_be_cancelled(store: Store) -> None:
    bulk = await did(store, "cancel", JobFilter(kind="work"))
    assert bulk.state is BulkState.DONE
    assert await store.stop_bulk(bulk.number, "me") == bulk
    assert await store.stop_bulk(10**6) is None
    assert await store.stop_bulk(uuid4()) is None


async def test_bulks_are_listed_newest_first_in_pages(store: Store) -> None:
    made = [await did(store, "cancel", JobFilter(kind="work")) for _ in range(3)]
    assert await store.bulks(most=2) == [made[2], made[1]]
    assert await store.bulks(before=made[1].number) == [made[0]]


# what goes wrong


async def test_a_page_counts_once(scene: Scene, store: Store) -> None:
    await failed(scene, 5)
    bulk = await begun(store, a_bulk("retry", JobFilter(states=(JobState.FAILED,))))
    page = await next_page(store, bulk)
    assert await store.advance_bulk(page) is not None
    assert await store.advance_bulk(page) is None
    known = await store.bulk(bulk.number)
    assert known is not None
    assert (known.version, known.done) == (2, PAGE)


@pytest.mark.parametrize("action", ["cancel", "retry", "priority", "move", "delete"])
@pytest.mark.parametrize("fault", [Fault.BEFORE, Fault.AFTER])
async def test_a_store_that_is_away_changes_nothing_of_the_outcome(
    scene: Scene, store: Store, action: str, fault: Fault
) -> None:
    """Each call fails once, with nothing done or with the answer lost; the caller asks again."""
    if action in ("retry", "delete"):
        await failed(scene, 5)
    else:
        await scene.accepted(*(a_job() for _ in range(5)))
    verbs = ["put_bulk", *["advance_bulk"] * 2, "running_bulks"]
    faulty = FaultyStore(store, scripted(*((verb, fault) for verb in verbs)))
    values: dict[str, dict[str, object]] = {"priority": {"priority": 5}, "move": {"queue": "mail"}}
    value = values.get(action, {})
    new = a_bulk(action, JobFilter(kind="work"), **value)
    for _ in range(20):
        try:
            await begun(faulty, new)
            for bulk in await faulty.running_bulks():
                await faulty.advance_bulk(await next_page(faulty, bulk))
        except StoreUnavailable:
            continue
    bulk = await begun(store, new)
    assert (bulk.state, bulk.matched, bulk.done, bulk.refused) == (BulkState.DONE, 5, 5, ())
    if action == "retry":
        page = await store.jobs(JobFilter(kind="work"))
        assert {job.round for job in page.jobs} == {2}
