"""What is particular to the store on SQLite: one file, several processes, its own clock."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ProcessPoolExecutor
from contextlib import asynccontextmanager, closing
from datetime import UTC, datetime, timedelta
from multiprocessing import get_context
from pathlib import Path
from threading import Barrier
from typing import TypeVar, cast

import pytest

from longshore.errors import StoreLost, StoreUnavailable
from longshore.model.ends import Failed
from longshore.model.finding import Trouble
from longshore.model.group import GroupState
from longshore.model.job import JobState, Refused, Submitted
from longshore.model.retention import GroupsPruned, Retention
from longshore.model.worker import QueueView
from longshore.ports import Batch, Hint, Promoted, Store
from longshore.store.sqlite.runner import InlineRunner, Turn
from longshore.store.sqlite.store import SqliteStore
from longshore.testing.builders import Scene, a_group, a_job, lane, new_id, some_jobs

T = TypeVar("T")


@asynccontextmanager
async def opened(store: SqliteStore) -> AsyncIterator[Scene]:
    """The store, migrated and open, as a dispatcher uses it."""
    port: Store = store
    await port.migrate()
    await port.open()
    try:
        yield Scene(port)
    finally:
        await port.close()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


# open and closed


async def test_store_that_was_not_opened_says_so(path: Path) -> None:
    store = SqliteStore(path)
    with pytest.raises(StoreUnavailable, match="not open"):
        await store.lanes()
    with pytest.raises(StoreUnavailable, match="not open"):
        await store.promote()
    await store.close()


async def test_every_call_after_close_is_refused(path: Path) -> None:
    store = SqliteStore(path)
    async with opened(store):
        pass
    calls: list[Callable[[], Awaitable[object]]] = [
        store.open,
        store.migrate,
        store.promote,
        store.lanes,
        lambda: store.pump(new_id(), Batch()),
        lambda: anext(store.watch()),
    ]
    for call in calls:
        with pytest.raises(StoreUnavailable, match="was closed"):
            await call()
    await store.close()


async def test_close_commits_what_was_asked_for(path: Path) -> None:
    """G1: nothing that was under way is dropped."""
    jobs = some_jobs(50)
    async with opened(SqliteStore(path)) as scene:
        submits = [asyncio.create_task(scene.submit(job)) for job in jobs]
        await asyncio.sleep(0)
    assert all(task.done() for task in submits)
    async with opened(SqliteStore(path)) as scene:
        assert set(await scene.states(job.id for job in jobs)) == {JobState.READY}


# what another process does in between


class Interrupted(InlineRunner):
    """Before it writes, whatever waits for that is done first, once."""

    def __init__(self) -> None:
        self.before: Callable[[], Awaitable[object]] | None = None

    async def run(self, turn: Turn, work: Callable[[], T]) -> T:
        if turn is not Turn.READ and self.before is not None:
            before, self.before = self.before, None
            await before()
        return await super().run(turn, work)


async def test_job_that_is_retried_between_look_and_hold_is_not_pruned(path: Path) -> None:
    runner, job = Interrupted(), a_job()
    async with opened(SqliteStore(path)) as other, opened(SqliteStore(path, runner=runner)) as own:
        await other.ended(Failed, job)
        runner.before = lambda: other.store.retry([job.id])
        pruned = await own.store.prune(Retention(seconds={JobState.FAILED: 0.0}))
        assert pruned.removed == {}
        assert await own.state(job.id) is JobState.READY


async def test_group_that_is_retried_between_look_and_hold_is_not_pruned(path: Path) -> None:
    runner = Interrupted()
    async with opened(SqliteStore(path)) as other, opened(SqliteStore(path, runner=runner)) as own:
        group = await other.submit_group(a_group({"a": ""}))
        await other.store.cancel_group(group.id)
        await group.settle()
        runner.before = lambda: other.store.retry_group(group.id)
        pruned = await own.store.prune_groups(Retention(seconds={JobState.CANCELLED: 0.0}))
        assert pruned == GroupsPruned(0, 0, done=True)
        assert await group.group_state() is GroupState.RUNNING


async def test_a_group_that_lost_a_count_ends_after_a_repair(path: Path) -> None:
    async with opened(SqliteStore(path)) as scene:
        group = await scene.submit_group(a_group({"a": "", "b": ""}))
        await group.claim()
        await group.end("a", "b", how=Failed)
        with closing(sqlite3.connect(path)) as outside, outside:
            outside.execute("UPDATE job_group SET ended = 0, failed = 0")
        await group.settle()
        [found] = await scene.store.examine_group(group.id, repair=True)
        assert found.trouble is Trouble.COUNT
        await group.settle()
        assert await group.group_state() is GroupState.FAILED


async def test_worker_that_another_process_forgot_meanwhile_is_not_counted(path: Path) -> None:
    runner = Interrupted()
    async with opened(SqliteStore(path)) as other, opened(SqliteStore(path, runner=runner)) as own:
        slot = await other.attend()
        await other.store.harvest(slot.worker, slot.session, "", crash=False, crash_limit=3)
        runner.before = lambda: other.store.forget_workers(0.0)
        assert await own.store.forget_workers(0.0) == 0


# faults


async def test_what_a_process_remembers_is_read_again_once_another_wrote(path: Path) -> None:
    async with opened(SqliteStore(path)) as own, opened(SqliteStore(path)) as other:
        slot = await own.attend()
        await own.pump(submits=[a_job()], slots=[slot])
        theirs = await other.running()
        await other.store.set_paused("default", True)
        held = await own.pump(submits=[a_job()], slots=[slot])
        assert held.started == []
        await other.store.set_paused("default", False)
        [ours] = (await own.pump(submits=[a_job()], slots=[slot])).started
        assert (ours.number, ours.token) == (theirs.number + 2, theirs.token + 1)


async def test_a_process_remembers_what_it_paused_itself(path: Path) -> None:
    async with opened(SqliteStore(path)) as scene:
        slot = await scene.attend()
        for paused in (False, True, False):
            await scene.store.set_paused("default", paused)
            pumped = await scene.pump(submits=[a_job()], slots=[slot])
            assert len(pumped.started) == (0 if paused else 1)


async def test_locked_file_is_an_error_that_passes(path: Path) -> None:
    async with opened(SqliteStore(path, busy_s=0.05)) as scene:
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(StoreUnavailable, match=r"another process has held .*store\.db"):
                await scene.submit(a_job())
            assert await scene.store.lanes() == []
        await scene.accepted(a_job())


def deleted(path: Path) -> None:
    path.unlink()


def moved_with_its_folder(path: Path) -> None:
    path.parent.rename(path.parent.with_name("elsewhere"))


def replaced(path: Path) -> None:
    copy = path.with_name("copy.db")
    shutil.copy(path, copy)
    copy.replace(path)


def without_its_wal(path: Path) -> None:
    path.with_name("store.db-wal").unlink()


@pytest.mark.parametrize("vanish", [deleted, moved_with_its_folder, replaced, without_its_wal])
async def test_nothing_is_accepted_by_a_file_that_is_not_in_its_place(
    tmp_path: Path, vanish: Callable[[Path], None]
) -> None:
    """G1: whatever is written to it is gone with the last process that has it open."""
    path = tmp_path / "folder" / "store.db"
    async with opened(SqliteStore(path)) as scene:
        await scene.accepted(a_job())
        vanish(path)
        with pytest.raises(StoreLost, match=r"store\.db was deleted, moved or replaced"):
            await scene.submit(a_job())
        with pytest.raises(StoreLost, match=r"start the dispatcher again"):
            await scene.store.renew(scene.dispatcher, "d")


async def test_file_behind_a_link_is_watched_too(tmp_path: Path) -> None:
    link = tmp_path / "link.db"
    link.symlink_to(tmp_path / "store.db")
    async with opened(SqliteStore(link)) as scene:
        await scene.accepted(a_job())
        (tmp_path / "store.db-wal").unlink()
        with pytest.raises(StoreLost, match=r"link\.db was deleted"):
            await scene.submit(a_job())


async def test_file_that_is_replaced_as_it_is_opened_is_refused(path: Path) -> None:
    store = SqliteStore(path)
    await store.migrate()
    connect = store._file._connect

    def replacing(mode: str) -> sqlite3.Connection:
        connection = connect(mode)
        replaced(path)
        return connection

    store._file._connect = replacing  # type: ignore[method-assign]
    with pytest.raises(StoreLost, match="replaced"):
        await store.open()
    await store.close()


async def test_file_that_becomes_read_only_is_lost(path: Path) -> None:
    async with opened(SqliteStore(path, runner=InlineRunner())) as scene:
        store = cast(SqliteStore, scene.store)
        store._opened(store._writer).execute("PRAGMA query_only = 1")
        with pytest.raises(StoreLost, match="cannot be written by this user"):
            await scene.submit(a_job())


async def test_transaction_that_fails_leaves_no_trace(path: Path) -> None:
    async with opened(SqliteStore(path, runner=InlineRunner())) as scene:
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("ALTER TABLE tally RENAME TO away")
            with pytest.raises(sqlite3.OperationalError, match="tally"):
                await scene.submit(a_job())
            other.execute("ALTER TABLE away RENAME TO tally")
        assert await scene.store.lanes() == []
        assert await scene.accepted(a_job()) == [1]
        assert await scene.store.queues() == [QueueView("default", False, {"ready": 1})]


async def test_job_that_the_database_refuses_does_not_take_the_others_with_it(path: Path) -> None:
    jobs = some_jobs(300)
    no_bytes = cast(bytes, "text where bytes belong")
    bad = {7: a_job(args=no_bytes), 8: a_job(args=no_bytes), 290: a_job(args=no_bytes)}
    for place, job in bad.items():
        jobs[place] = job
    async with opened(SqliteStore(path)) as scene:
        answers = await scene.submit(*jobs, bad[7])
        refused = [place for place, one in enumerate(answers) if isinstance(one, Refused)]
        assert refused == [*bad, 300]
        last = answers[300]
        assert isinstance(last, Refused)
        assert last.code == "invalid_input"
        assert "cannot store TEXT value in BLOB column" in last.message
        assert await scene.store.queues() == [QueueView("default", False, {"ready": 297})]


# its own clock


async def test_time_is_what_the_given_clock_says(path: Path) -> None:
    now = datetime(2030, 1, 1, tzinfo=UTC)
    store = SqliteStore(path, runner=InlineRunner(), utc=lambda: now)
    async with opened(store) as scene:
        job = a_job(delay_s=3600)
        await scene.accepted(job)
        assert await store.promote() == Promoted(0, frozenset(), 3600.0)
        now += timedelta(hours=1)
        assert await store.promote() == Promoted(1, frozenset({lane()}), None)
        shown = await scene.job(job.id)
        assert shown.created_at == datetime(2030, 1, 1, tzinfo=UTC)
        assert [entry.at for entry in shown.history] == [shown.created_at, now]


# several processes


async def spin(task: asyncio.Future[Hint]) -> None:
    """Lets a watcher that polls without waiting look many times."""
    for _ in range(100):
        if not task.done():
            await asyncio.sleep(0)


async def test_own_writes_give_no_hints_but_those_of_others_do(path: Path) -> None:
    store = SqliteStore(path, runner=InlineRunner(), poll_s=0)
    other = SqliteStore(path, runner=InlineRunner())
    async with opened(store) as scene, opened(other) as elsewhere:
        hints = store.watch()
        hint = asyncio.ensure_future(anext(hints))
        await scene.accepted(a_job())
        await spin(hint)
        assert not hint.done()
        await elsewhere.accepted(a_job())
        await spin(hint)
        # SQLite does not tell what changed.
        assert [await hint, *[await anext(hints) for _ in [*Hint][1:]]] == [*Hint]


PROCESSES = 4


def claim_all(path: Path, slots: int, all_claim: Barrier) -> list[tuple[str, int]]:
    """What one process claims, batch by batch, until nothing is left."""

    async def run() -> list[tuple[str, int]]:
        claimed = []
        async with opened(SqliteStore(path, poll_s=0.001)) as scene:
            slot = await scene.attend()
            await all_attend(scene.store)
            first = await scene.claim(slot)
            claimed += [(str(attempt.id), attempt.token) for attempt in first]
            all_claim.wait()
            while attempts := await scene.claim(slot, most=slots):
                claimed += [(str(attempt.id), attempt.token) for attempt in attempts]
        return claimed

    return asyncio.run(run())


async def all_attend(store: Store) -> None:
    """Every process has its worker by now."""
    if len(await store.workers()) < PROCESSES:
        async for _ in store.watch():
            if len(await store.workers()) == PROCESSES:
                return


async def test_processes_that_claim_at_once_never_claim_the_same(path: Path) -> None:
    """G2: each job has one owner, and no token is given twice."""
    jobs = some_jobs(600)
    async with opened(SqliteStore(path)) as scene:
        await scene.accepted(*jobs)
    loop = asyncio.get_running_loop()
    context = get_context("spawn")
    with context.Manager() as shared, ProcessPoolExecutor(PROCESSES, context) as pool:
        all_claim = shared.Barrier(PROCESSES)
        each = await asyncio.gather(
            *(
                loop.run_in_executor(pool, claim_all, path, 1 + n, all_claim)
                for n in range(PROCESSES)
            )
        )
    assert all(each)
    claimed = [one for claims in each for one in claims]
    assert sorted(id for id, _ in claimed) == sorted(str(job.id) for job in jobs)
    assert len({token for _, token in claimed}) == len(jobs)


async def test_processes_that_submit_at_once_get_numbers_of_their_own(path: Path) -> None:
    async with opened(SqliteStore(path)) as one, opened(SqliteStore(path)) as other:
        answers = await asyncio.gather(
            *(scene.submit(a_job()) for _ in range(50) for scene in (one, other))
        )
    numbers = [one.number for [one] in answers if isinstance(one, Submitted)]
    assert sorted(numbers) == list(range(1, 101))
