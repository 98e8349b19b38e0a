"""Bulks under races: two dispatchers on one bulk, jobs that move meanwhile, a crash between pages.

On PostgreSQL they really overlap.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg
import pytest

from longshore.model.bulk import BulkRun, BulkState
from longshore.model.ends import Failed
from longshore.model.job import JobFilter, JobState
from longshore.ports import Store
from longshore.testing.backends import Backend, PostgresBackend
from longshore.testing.builders import Scene, a_job, done, lane
from tests.conformance.bulk_steps import a_bulk, begun, failed, finished, next_page, step

JOBS = 24


@pytest.fixture
async def rival(backend: Backend, scene: Scene) -> AsyncIterator[Scene]:
    """Another dispatcher, with its own connection to the same database."""
    async with backend.opened() as store:
        yield Scene(store)


async def found(store: Store, bulk: BulkRun) -> BulkRun:
    known = await store.bulk(bulk.new.id)
    assert known is not None
    return known


async def worked_off(store: Store) -> int:
    """Does pages until no bulk runs, as a dispatcher's duty; how many pages counted."""
    pages = 0
    while running := await store.running_bulks():
        for bulk in running:
            advance = await store.advance_bulk(await next_page(store, bulk))
            pages += advance is not None
        await asyncio.sleep(0)
    return pages


async def test_two_dispatchers_never_do_one_page_twice(scene: Scene, rival: Scene) -> None:
    numbers = await failed(scene, JOBS)
    bulk = await begun(scene.store, a_bulk("retry", JobFilter(states=(JobState.FAILED,))))
    pages = sum(await asyncio.gather(worked_off(scene.store), worked_off(rival.store)))
    bulk = await found(scene.store, bulk)
    assert (bulk.state, bulk.matched, bulk.done) == (BulkState.DONE, JOBS, JOBS)
    assert bulk.version == pages + 1
    assert {(await scene.job(number)).round for number in numbers} == {2}


async def test_two_that_begin_bulks_at_once_keep_the_bound(scene: Scene, rival: Scene) -> None:
    new = [a_bulk("cancel", JobFilter(kind="work")) for _ in range(8)]
    stores = [scene.store, rival.store] * 4
    made = await asyncio.gather(
        *(store.put_bulk(one, 3) for store, one in zip(stores, new, strict=True))
    )
    assert sum(isinstance(one, BulkRun) for one in made) == 3
    assert len({one.number for one in made if isinstance(one, BulkRun)}) == 3


async def test_jobs_that_end_while_they_are_cancelled_end_once(scene: Scene, rival: Scene) -> None:
    await scene.accepted(*(a_job() for _ in range(JOBS)))
    attempts = await scene.claim(await scene.attend(), most=JOBS)
    bulk = await begun(scene.store, a_bulk("cancel", JobFilter(kind="work")))

    async def end() -> None:
        for place in range(0, JOBS, 4):
            await rival.finish(*map(done, attempts[place : place + 4]))

    await asyncio.gather(worked_off(scene.store), end())
    bulk = await found(scene.store, bulk)
    assert bulk.done <= bulk.matched <= JOBS
    assert set(await scene.states([one.id for one in attempts])) == {JobState.SUCCEEDED}
    [queue] = await scene.store.queues()
    assert {state: n for state, n in queue.counts.items() if n} == {"succeeded": JOBS}


async def test_moved_jobs_are_claimed_once_wherever_they_are(scene: Scene, rival: Scene) -> None:
    """Claims from both lanes go on while the jobs go from one to the other."""
    numbers = await scene.accepted(*(a_job() for _ in range(JOBS)), a_job(queue="mail"))
    slot, lanes = await rival.attend(), (lane(), lane(queue="mail"))
    await begun(scene.store, a_bulk("move", JobFilter(queue="default"), queue="mail"))
    claimed: list[int] = []

    async def claim() -> None:
        for place in range(20):
            some = await rival.claim(slot, lanes[place % 2], most=3)
            claimed.extend(one.number for one in some)

    await asyncio.gather(worked_off(scene.store), claim())
    claimed += [one.number for one in await rival.claim(slot, *lanes, most=2 * JOBS)]
    assert sorted(claimed) == sorted(numbers)
    counts = {view.name: view.counts.get("running", 0) for view in await scene.store.queues()}
    assert sum(counts.values()) == JOBS + 1
    assert all(n >= 0 for view in await scene.store.queues() for n in view.counts.values())


async def test_a_cancel_between_two_pages_holds(scene: Scene, rival: Scene) -> None:
    await scene.accepted(*(a_job() for _ in range(JOBS)))
    bulk = await begun(scene.store, a_bulk("cancel", JobFilter(kind="work")))

    async def stop() -> None:
        await asyncio.sleep(0)
        await rival.store.stop_bulk(bulk.number, "rival")

    await asyncio.gather(worked_off(scene.store), stop())
    bulk = await found(scene.store, bulk)
    assert bulk.state is not BulkState.RUNNING
    page = await scene.store.jobs(JobFilter(states=(JobState.CANCELLED,)))
    assert len(page.jobs) == bulk.done


async def test_another_dispatcher_goes_on_after_a_crash(scene: Scene, rival: Scene) -> None:
    """The first died after its look, and before: what it had looked at is looked at anew."""
    await failed(scene, JOBS)
    bulk = await begun(scene.store, a_bulk("delete", JobFilter(states=(JobState.FAILED,))))
    bulk = await step(scene.store, bulk)
    await next_page(scene.store, bulk)
    bulk = await finished(rival.store, (await rival.store.running_bulks())[0])
    assert (bulk.state, bulk.done) == (BulkState.DONE, JOBS)
    assert (await rival.store.jobs(JobFilter())).jobs == ()


async def test_a_retry_that_meets_a_submit_of_its_key_leaves_one_live(
    scene: Scene, rival: Scene
) -> None:
    for n in range(6):
        key = f"k{n}"
        await scene.ended(Failed, a_job(unique_key=key))
        new = a_bulk("retry", JobFilter(kind="work"))
        await begun(scene.store, new)
        other = a_job(unique_key=key)
        await asyncio.gather(worked_off(scene.store), rival.submit(other))
        page = await scene.store.jobs(JobFilter(states=(JobState.READY,)))
        assert sum(job.unique_key == key for job in page.jobs) == 1
        await scene.store.cancel([job.id for job in page.jobs])
        await begun(scene.store, a_bulk("delete", JobFilter(kind="work")))
        await worked_off(scene.store)


@asynccontextmanager
async def _held(backend: PostgresBackend, number: int) -> AsyncIterator[None]:
    """Inside, a transaction holds this job."""
    connection = await asyncpg.connect(backend.url)
    try:
        async with connection.transaction():
            await connection.execute(
                "SELECT FROM longshore.job WHERE number = $1 FOR UPDATE", number
            )
            yield
    finally:
        await connection.close()


@pytest.mark.parametrize("backend", ["postgres"], indirect=True)
async def test_a_job_that_another_transaction_holds_is_left_for_a_later_page(
    scene: Scene, backend: Backend
) -> None:
    """The bulk waits for nobody: it does the others, and comes back."""
    assert isinstance(backend, PostgresBackend)
    numbers = await scene.accepted(*(a_job() for _ in range(3)))
    bulk = await begun(scene.store, a_bulk("cancel", JobFilter(kind="work")))
    async with _held(backend, numbers[1]):
        bulk = await step(scene.store, bulk, most=9)
        assert (bulk.done, len(bulk.left), bulk.state) == (2, 1, BulkState.RUNNING)
        bulk = await step(scene.store, bulk, most=9)
        assert (bulk.done, len(bulk.left)) == (2, 1)
    bulk = await step(scene.store, bulk, most=9)
    assert (bulk.state, bulk.matched, bulk.done, bulk.left) == (BulkState.DONE, 3, 3, ())
    assert set(await scene.states(numbers)) == {JobState.CANCELLED}
