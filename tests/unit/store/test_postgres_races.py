"""Races on PostgreSQL whose order is not left to chance: one waits until the other has gone by."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

import pytest
from tests.unit.store.outside import HOLD, until_waiting

from longshore.model.ends import End, Failed, Released, Retried, Succeeded
from longshore.model.job import CancelVerdict, JobState, RetryVerdict, Submitted, Verdict
from longshore.model.retention import Retention
from longshore.store.postgres import prune as pruning
from longshore.store.postgres.connections import Connection, Transaction
from longshore.store.postgres.store import PostgresStore
from longshore.testing.builders import Scene, a_job, done, lane

AT_ONCE = Retention(seconds={JobState.FAILED: 0.0})
S = JobState


@pytest.fixture
def scene(postgres_store: PostgresStore) -> Scene:
    return Scene(postgres_store)


async def counts(scene: Scene) -> dict[str, int]:
    [queue] = await scene.store.queues()
    return queue.counts


@pytest.mark.parametrize(
    ("outcome", "first", "then"),
    [
        (Succeeded, S.SUCCEEDED, S.SUCCEEDED),
        (Failed, S.FAILED, S.CANCELLED),
        (Retried, S.CANCELLED, S.CANCELLED),
        (Released, S.CANCELLED, S.CANCELLED),
    ],
)
@pytest.mark.parametrize("cancel_is_first", [False, True])
async def test_end_and_cancel_that_wait_for_one_row(
    scene: Scene,
    outside: Connection,
    outcome: type[End],
    first: JobState,
    then: JobState,
    cancel_is_first: bool,
) -> None:
    """G3: whichever comes second acts on what the other made of the job."""
    attempt = await scene.running()
    end = partial(scene.finish, done(attempt, outcome))
    cancel = partial(scene.store.cancel, [attempt.id])
    calls: list[Callable[[], Awaitable[object]]] = [end, cancel]
    order = list(reversed(calls)) if cancel_is_first else calls
    async with outside.transaction():
        await outside.fetch(HOLD, attempt.id)
        waiting = []
        for number, call in enumerate(order, 1):
            waiting.append(asyncio.ensure_future(call()))
            await until_waiting(outside, number)
    await asyncio.gather(*waiting)
    state = then if cancel_is_first else first
    assert await scene.state(attempt.id) is state
    assert await counts(scene) == {state.value: 1}


async def test_end_after_a_cancel_is_recorded_once(scene: Scene, outside: Connection) -> None:
    attempt = await scene.running()
    async with outside.transaction():
        await outside.fetch(HOLD, attempt.id)
        cancel = asyncio.ensure_future(scene.store.cancel([attempt.id]))
        await until_waiting(outside, 1)
        end = asyncio.ensure_future(scene.finish(done(attempt)))
        await until_waiting(outside, 2)
    assert await cancel == [(attempt.id, CancelVerdict.CANCELLING)]
    assert [answer.verdict for answer in await end] == [Verdict.RECORDED]
    again = await scene.finish(done(attempt))
    assert [answer.verdict for answer in again] == [Verdict.ALREADY_RECORDED]


@pytest.mark.parametrize("ends_again", [False, True])
async def test_job_that_is_retried_between_look_and_hold_is_not_pruned(
    scene: Scene, postgres_store: PostgresStore, ends_again: bool
) -> None:
    """Also if it has ended again by then: that end was not looked at."""
    job = a_job()
    await scene.ended(Failed, job)
    slot = await scene.attend()

    async def work(tx: Transaction) -> int:
        walk = await pruning._begin(tx, AT_ONCE, 0, False)
        found, _ = await pruning._look(tx, walk, pruning._query(AT_ONCE), 100)
        assert await scene.store.retry([job.id]) == [(job.id, RetryVerdict.RETRIED)]
        if ends_again:
            [attempt] = await scene.claim(slot, lane())
            await scene.finish(done(attempt, Failed))
        return len(await pruning._drop(tx, found))

    assert await postgres_store._keeping.run(work) == 0
    assert await scene.state(job.id) is (S.FAILED if ends_again else S.READY)
    assert sum((await counts(scene)).values()) == 1


async def test_times_of_two_with_one_unique_key_do_not_overlap(
    scene: Scene, outside: Connection
) -> None:
    """The second is accepted in a transaction that began before the first ended, and waited."""
    first, second = a_job(unique_key="k"), a_job(unique_key="k")
    attempt = await scene.running(first)
    other = await scene.running(a_job(kind="other"), await scene.attend(kinds=["other"]))
    async with outside.transaction():
        await outside.fetch(HOLD, other.id)
        batch = scene.pump([done(other)], [second])
        accepting = asyncio.ensure_future(batch)
        await until_waiting(outside, 1)
        await scene.finish(done(attempt))
    [answer] = (await accepting).submitted
    assert answer == Submitted(second.id, (await scene.job(second.id)).number)
    ended, begun = await scene.job(first.id), await scene.job(second.id)
    assert ended.ended_at is not None
    assert ended.ended_at == ended.history[-1].at
    assert ended.ended_at <= begun.history[0].at


async def test_job_that_somebody_holds_is_not_waited_for_by_a_pruning(
    scene: Scene, outside: Connection
) -> None:
    held, free = a_job(), a_job()
    await scene.ended(Failed, held)
    await scene.ended(Failed, free)
    async with outside.transaction():
        await outside.fetch(HOLD, held.id)
        assert (await scene.store.prune(AT_ONCE)).removed == {S.FAILED: 1}
    assert (await scene.store.prune(AT_ONCE)).removed == {S.FAILED: 1}
