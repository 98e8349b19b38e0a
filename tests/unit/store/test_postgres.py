"""What only PostgreSQL can get wrong: rows that change under a statement, hints, folded counts."""

from __future__ import annotations

import asyncio
import random
import string
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from tests.unit.store.outside import until_waiting

from longshore.errors import StoreUnavailable
from longshore.model.attempt import Attempt
from longshore.model.ends import Failed, Retried, Succeeded
from longshore.model.finding import Trouble
from longshore.model.group import GroupState
from longshore.model.job import JobFilter, JobPage, JobState, Refused, Submitted, Verdict
from longshore.model.retention import GroupsPruned, Retention
from longshore.ports import Batch, Hint
from longshore.store.postgres import keeper as postgres_keeper
from longshore.store.postgres import keeper_sql as postgres_keeper_sql
from longshore.store.postgres import listing as postgres_listing
from longshore.store.postgres.columns import columns
from longshore.store.postgres.connections import Connection
from longshore.store.postgres.hints import Listener
from longshore.store.postgres.sql import ENQUEUE
from longshore.store.postgres.states import CODES
from longshore.store.postgres.store import PostgresStore
from longshore.testing.builders import Scene, a_claim, a_group, a_job, done, some_jobs

S = JobState


@pytest.fixture
def scene(postgres_store: PostgresStore) -> Scene:
    return Scene(postgres_store)


ENDED = f"state = {CODES[S.SUCCEEDED]}"
STALE = Verdict.STALE
ALIKE = """state, result, error, worker, session, round, attempt, failures, crashes, history_length,
    regexp_replace(history, '[0-9]{16}', 'when', 'g'), expires_at, deadline_at, run_at IS NULL,
    ended_at IS NULL, ended_at - started_at = interval '0' AS is_instant"""
"""SQL for what two jobs that went the same way have in common."""


def plain(attempt: Attempt) -> Succeeded:
    """A success that brings only a result, as most ends are."""
    return Succeeded(attempt.id, attempt.token, b"\xc0", ran_s=0.0)


# A row that changes while a statement waits for it.

CHANGES = {
    "cancelled meanwhile": f"state = {CODES[S.CANCELLING]}",
    "taken away meanwhile": f"token = nextval('longshore.token'), state = {CODES[S.READY]}",
    "taken away and claimed again": "token = nextval('longshore.token')",
    "moved to another session": "session = session + 1",
    "ended meanwhile": f"{ENDED}, ended_at = now()",
}
ANSWERS = {
    "cancelled meanwhile": (Verdict.RECORDED, S.CANCELLED),
    "taken away meanwhile": (Verdict.STALE, None),
    "taken away and claimed again": (Verdict.STALE, None),
    "moved to another session": (Verdict.RECORDED, S.FAILED),
    "ended meanwhile": (Verdict.ALREADY_RECORDED, S.SUCCEEDED),
}


@pytest.mark.parametrize("change", CHANGES)
async def test_finish_goes_by_the_row_as_it_is_when_its_turn_comes(
    scene: Scene, outside: Connection, change: str
) -> None:
    """G2: a finish that had to wait is judged by what the other transaction committed."""
    slot = await scene.attend()
    await scene.accepted(*some_jobs(3))
    attempts = await scene.claim(slot, most=3)
    async with outside.transaction():
        await outside.execute(
            f"UPDATE longshore.job SET {CHANGES[change]} WHERE id = $1", attempts[1].id
        )
        finishes = [done(attempt, Failed) for attempt in attempts]
        call = asyncio.create_task(scene.finish(*finishes))
        await until_waiting(outside, 1)
    first, second, third = await call
    assert (second.verdict, second.state) == ANSWERS[change]
    assert {(answer.verdict, answer.state) for answer in (first, third)} == {
        (Verdict.RECORDED, S.FAILED)
    }


@pytest.mark.parametrize("change", CHANGES)
async def test_success_that_brings_only_a_result_goes_by_the_row_as_it_is(
    scene: Scene, outside: Connection, change: str
) -> None:
    """G2: whatever statement records an end, what another transaction committed counts."""
    slot = await scene.attend()
    await scene.accepted(*some_jobs(3))
    attempts = await scene.claim(slot, most=3)
    async with outside.transaction():
        await outside.execute(
            f"UPDATE longshore.job SET {CHANGES[change]} WHERE id = $1", attempts[1].id
        )
        call = asyncio.create_task(scene.pump(finishes=[plain(one) for one in attempts]))
        await until_waiting(outside, 1)
    pumped = await call
    first, second, third = pumped.finished
    verdict = ANSWERS[change][0]
    assert (second.verdict, second.state) == (verdict, None if verdict is STALE else S.SUCCEEDED)
    assert {(one.verdict, one.state) for one in (first, third)} == {(Verdict.RECORDED, S.SUCCEEDED)}
    recorded = [one for one in pumped.finished if one.verdict is Verdict.RECORDED]
    assert {one.id for one in pumped.ended} == {one.job for one in recorded}


async def test_a_success_is_stored_alike_by_every_statement(
    scene: Scene, outside: Connection
) -> None:
    slot = await scene.attend()
    jobs = [a_job(timeout_s=60, expires_s=60) for _ in range(4)]
    await scene.accepted(*jobs)
    for attempt in await scene.claim(slot, most=4):
        await scene.finish(done(attempt, Retried))
    await scene.store.promote()
    alone, other, beside, with_more = await scene.claim(slot, most=4)
    await scene.pump(finishes=[plain(alone)])
    await scene.pump(finishes=[plain(beside), done(other, Failed)])
    await scene.pump(finishes=[plain(with_more)], submits=[a_job()])
    query = f"SELECT {ALIKE} FROM longshore.job WHERE id = $1"
    stored = [await outside.fetch(query, one.id) for one in (alone, beside, with_more)]
    assert stored[0] == stored[1] == stored[2]
    [row] = stored[0]
    assert (row["state"], row["result"], row["error"]) == (CODES[S.SUCCEEDED], b"\xc0", None)
    [queue] = await scene.store.queues()
    assert {state: n for state, n in queue.counts.items() if n} == {
        S.SUCCEEDED: 3,
        S.FAILED: 1,
        S.READY: 1,
    }


async def test_a_success_that_is_told_twice_is_recorded_once(scene: Scene) -> None:
    """G2: also by the statement for successes that bring only a result."""
    ours, other = await scene.running(), await scene.being_cancelled()
    [first] = await scene.finish(plain(ours))
    before = await scene.job(ours.id)
    again, cancelled = await scene.finish(plain(ours), plain(other))
    assert [one.verdict for one in (first, again)] == [Verdict.RECORDED, Verdict.ALREADY_RECORDED]
    assert await scene.job(ours.id) == before
    assert (cancelled.verdict, cancelled.state) == (Verdict.RECORDED, S.SUCCEEDED)


async def test_the_success_of_a_job_of_a_group_reaches_those_that_depend_on_it(
    scene: Scene,
) -> None:
    group = await scene.submit_group(a_group({"one": "", "two": "one"}))
    await group.claim()
    await scene.finish(plain(group.running["one"]))
    assert await group.states() == {"one": S.SUCCEEDED, "two": S.READY}


async def test_a_job_whose_log_is_being_written_is_pruned_later_with_it(
    scene: Scene, outside: Connection
) -> None:
    ended = await scene.ended(Succeeded)
    everything = Retention(seconds={S.SUCCEEDED: 0.0})
    async with outside.transaction():
        columns = [ended.id], [ended.token], [1], [0], [b"late"]
        await outside.execute(postgres_keeper_sql.LOG, *columns)
        async with asyncio.timeout(10):
            assert (await scene.store.prune(everything)).removed == {}
    assert (await scene.store.prune(everything)).removed == {S.SUCCEEDED: 1}
    assert await outside.fetchval("SELECT count(*) FROM longshore.log") == 0


async def test_a_job_of_a_group_whose_log_is_being_written_goes_later(
    scene: Scene, outside: Connection
) -> None:
    """The others go, and nobody waits."""
    group = await scene.submit_group(a_group({"a": "", "b": "a"}))
    await group.claim()
    first = group.running["a"]
    await group.end("a")
    await group.claim()
    await group.end("b")
    await group.settle()
    everything = Retention(seconds={S.SUCCEEDED: 0.0})
    async with outside.transaction():
        columns = [first.id], [first.token], [1], [0], [b"late"]
        await outside.execute(postgres_keeper_sql.LOG, *columns)
        async with asyncio.timeout(10):
            steps = [await scene.store.prune_groups(everything) for _ in range(3)]
    assert steps == [GroupsPruned(1, 0, False), GroupsPruned(0, 1, False), GroupsPruned(0, 0, True)]
    assert await scene.store.prune_groups(everything) == GroupsPruned(0, 1, False)
    for table in ("log", "job", "node", "edge", "group_count", "job_group"):
        assert await outside.fetchval(f"SELECT count(*) FROM longshore.{table}") == 0


async def test_a_group_that_is_retried_while_it_is_marked_stays(
    scene: Scene, outside: Connection
) -> None:
    group = await scene.submit_group(a_group({"a": ""}))
    await group.claim()
    await group.end("a", how=Failed)
    await group.settle()
    everything = Retention(seconds={S.FAILED: 0.0})
    async with outside.transaction():
        await outside.fetch("SELECT FROM longshore.job_group WHERE id = $1 FOR UPDATE", group.id)
        async with asyncio.timeout(10):
            assert await scene.store.prune_groups(everything) == GroupsPruned(0, 0, True)
        call = asyncio.create_task(scene.store.retry_group(group.id))
        await until_waiting(outside, 1)
    assert await call is not None
    assert await scene.store.prune_groups(everything) == GroupsPruned(0, 0, True)
    await group.settle()
    assert await group.claim() == {"a"}


async def test_a_group_that_is_marked_while_its_retry_waits_is_not_retried(
    scene: Scene, outside: Connection
) -> None:
    group = await scene.submit_group(a_group({"a": ""}))
    await scene.store.cancel_group(group.id)
    await group.settle()
    async with outside.transaction():
        await outside.execute("UPDATE longshore.job_group SET is_gone = true")
        call = asyncio.create_task(scene.store.retry_group(group.id))
        await until_waiting(outside, 1)
    assert await call is None


async def test_a_group_that_lost_a_count_ends_after_a_repair(
    scene: Scene, outside: Connection
) -> None:
    group = await scene.submit_group(a_group({"a": "", "b": ""}))
    await group.claim()
    await group.end("a", "b", how=Failed)
    await outside.execute("DELETE FROM longshore.group_count")
    await group.settle()
    [found] = await scene.store.examine_group(group.id, repair=True)
    assert found.trouble is Trouble.COUNT
    await group.settle()
    assert await group.group_state() is GroupState.FAILED


async def test_a_log_that_is_being_written_is_in_no_finishs_way(
    scene: Scene, outside: Connection
) -> None:
    attempt = await scene.running()
    async with outside.transaction():
        columns = [attempt.id], [attempt.token], [1], [0], [b"said"]
        await outside.execute(postgres_keeper_sql.LOG, *columns)
        async with asyncio.timeout(10):
            [finished] = await scene.finish(done(attempt))
    assert finished.verdict is Verdict.RECORDED


async def test_submit_waits_for_another_that_holds_its_key(
    scene: Scene, outside: Connection, postgres_url: str
) -> None:
    other = PostgresStore(postgres_url)
    await scene.running(a_job(unique_key="u"))
    async with outside.transaction():
        await outside.execute(f"UPDATE longshore.job SET {ENDED}")
        call = asyncio.create_task(Scene(other).submit(a_job(unique_key="u"), a_job()))
        await until_waiting(outside, 1)
    held, plain = await call
    assert isinstance(held, Submitted)
    assert isinstance(plain, Submitted)
    assert not held.existing
    await other.close()


async def test_attend_waits_for_a_claim_under_way_and_finds_it_placed(
    scene: Scene, postgres_store: PostgresStore, outside: Connection
) -> None:
    """G8: a claim lands before the worker moves, or not at all."""
    slot = await scene.attend()
    job = a_job(kind="new lane")
    async with outside.transaction():
        # Holds up the pump after its claim, at the insert of the tally.
        await outside.execute("LOCK TABLE longshore.tally")
        claiming = asyncio.create_task(scene.running(job, slot))
        await until_waiting(outside, 1)
        [info] = [view.info for view in await postgres_store.workers()]
        attending = asyncio.create_task(scene.store.attend(scene.dispatcher, info))
        await until_waiting(outside, 2)
    attempt = await claiming
    answer = await attending
    assert [placed.token for placed in getattr(answer, "placed", ())] == [attempt.token]


@pytest.mark.parametrize("started", [True, False])
async def test_what_is_placed_is_read_after_what_is_under_way_for_those_slots(
    scene: Scene, outside: Connection, started: bool
) -> None:
    """G1: whoever asks may have given up on that pump, and will not ask again."""
    await scene.running(a_job(unique_key="u"))
    await scene.accepted(a_job())
    slot = await scene.attend()
    keyed = Batch(submits=[a_job(unique_key="u")], slots=[slot])
    async with outside.transaction():
        # One waits for the key, the other at the insert of the tally.
        await outside.execute(f"UPDATE longshore.job SET {ENDED} WHERE unique_key = 'u'")
        await outside.execute("SELECT" if started else "LOCK TABLE longshore.tally")
        batch = keyed if started else Batch(claims=[a_claim([slot])])
        pumping = asyncio.create_task(scene.store.pump(scene.dispatcher, batch))
        await until_waiting(outside, 1)
        reading = asyncio.create_task(scene.store.placed([slot]))
        await until_waiting(outside, 2)
    pumped = await pumping
    [attempt] = [*pumped.started, *pumped.claimed]
    assert [one.token for one in await reading] == [attempt.token]


# Items that the database refuses, though nothing about them is wrong in general.


async def test_item_that_only_the_database_refuses_is_found_and_the_rest_is_stored(
    scene: Scene,
) -> None:
    noise = random.Random(1)
    too_long = "".join(noise.choices(string.ascii_letters + string.digits, k=9000))
    jobs = some_jobs(20)
    jobs[3] = a_job(unique_key=too_long)
    jobs[17] = a_job(queue=too_long, unique_key=too_long)
    attempt = await scene.running(a_job(kind="cause"))
    pumped = await scene.pump(
        finishes=[done(attempt, outbox=[a_job(kind="child"), jobs[3]])], submits=jobs
    )
    refused = [
        place for place, answer in enumerate(pumped.submitted) if isinstance(answer, Refused)
    ]
    assert refused == [3, 17]
    assert [answer.id for answer in pumped.submitted] == [job.id for job in jobs]
    assert await scene.state(attempt.id) is S.SUCCEEDED
    assert "outbox item 1 refused" in (await scene.job(attempt.id)).history[-1].info
    [queue] = await scene.store.queues()
    assert queue.counts == {"succeeded": 1, "ready": 19}


# Counts.


async def churn(scene: Scene, rounds: int) -> None:
    slots = [await scene.attend()] * 3
    attempts: list[Attempt] = []
    for _ in range(rounds):
        finishes = [done(attempt) for attempt in attempts]
        attempts = (await scene.pump(finishes, some_jobs(3), [a_claim(slots)])).claimed


async def test_counts_are_folded_and_stay_the_same(
    scene: Scene,
    postgres_store: PostgresStore,
    outside: Connection,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(postgres_keeper, "FOLD_AT", 10)
    monkeypatch.setattr(postgres_keeper, "MOST_FOLDED", 25)
    await churn(scene, 30)
    before = await postgres_store.queues()
    rows = await outside.fetchval("SELECT count(*) FROM longshore.tally")
    for _ in range(5):
        postgres_store._tallied = 10
        await postgres_store.promote()
        assert await postgres_store.queues() == before
    folded = await outside.fetchval("SELECT count(*) FROM longshore.tally")
    assert folded < rows / 2
    assert before[0].counts == {"succeeded": 87, "running": 3}


async def test_counts_that_another_writes_are_not_waited_for(
    scene: Scene, postgres_store: PostgresStore, outside: Connection
) -> None:
    await churn(scene, 5)
    before = await postgres_store.queues()
    async with outside.transaction():
        await outside.execute("SELECT FROM longshore.tally FOR UPDATE")
        postgres_store._tallied = postgres_keeper.FOLD_AT
        await postgres_store.promote()
    assert await postgres_store.queues() == before


# Lists.


@pytest.mark.parametrize("newest", [1, 3, 1000])
async def test_list_is_the_same_by_either_way(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, newest: int
) -> None:
    """Whether the walk through the newest fills the page, or the indexes are asked."""
    monkeypatch.setattr(postgres_listing, "NEWEST", newest)
    await scene.accepted(*some_jobs(4))
    failed = [await scene.ended(Failed, a_job(priority=1)) for _ in range(3)]
    await scene.accepted(*some_jobs(4, "other"), a_job(delay_s=60))
    listed = (await scene.store.jobs(JobFilter(states=(S.FAILED,), limit=2))).jobs
    assert [job.id for job in listed] == [failed[2].id, failed[1].id]
    ready = (await scene.store.jobs(JobFilter(states=(S.READY, S.DELAYED), limit=20))).jobs
    assert len(ready) == 9
    assert [job.number for job in ready] == sorted((job.number for job in ready), reverse=True)
    assert await scene.store.jobs(JobFilter(states=(S.WAITING,))) == JobPage()


# Hints.


@asynccontextmanager
async def watching(store: PostgresStore) -> AsyncIterator[AsyncIterator[Hint]]:
    """The hints of a store that is closed afterwards."""
    try:
        yield store.watch()
    finally:
        await store.close()


async def heard(hints: AsyncIterator[Hint], wanted: Hint) -> None:
    async for hint in hints:
        if hint is wanted:
            return


async def test_listener_comes_back_after_its_connection_was_cut(
    scene: Scene, postgres_store: PostgresStore, outside: Connection, postgres_url: str
) -> None:
    other = PostgresStore(postgres_url)
    async with watching(other) as hints, asyncio.timeout(60):
        await heard(hints, Hint.WORK)
        await outside.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'LISTEN%'"
        )
        # It tells of everything once it listens again, since it may have missed anything.
        await heard(hints, Hint.CANCEL)


async def test_own_hints_are_not_heard(scene: Scene, postgres_store: PostgresStore) -> None:
    told: list[set[str]] = []
    postgres_store._listener._tell = lambda hints: told.append(set(hints))  # type: ignore[method-assign]
    own, other = postgres_store._sender.name, "0" * 32
    postgres_store._listener._heard(None, 1, "longshore", f"{own} work")
    postgres_store._listener._heard(None, 1, "longshore", f"{other} ended work some-later-word")
    assert told == [{Hint.ENDED, Hint.WORK}]


async def test_every_watcher_hears_and_no_unknown_word_ends_a_watch() -> None:
    async def glance() -> int:
        return 0

    listener = Listener("0" * 32, None, glance, timeout_s=1.0)

    async def collected() -> list[Hint]:
        return [hint async for hint in listener.watch()]

    watching = [asyncio.create_task(collected()) for _ in range(2)]
    for words in ("some-later-word", "ended"):
        await asyncio.sleep(0)
        listener._heard(None, 1, "longshore", f"{'1' * 32} {words}")
        await asyncio.sleep(0)
    await listener.close()
    assert await asyncio.gather(*watching) == [[Hint.ENDED], [Hint.ENDED]]


async def test_watch_ends_when_the_store_is_closed(postgres_url: str, scene: Scene) -> None:
    other = PostgresStore(postgres_url)
    seen: list[Hint] = []

    async def watch() -> None:
        async for hint in other.watch():
            seen.append(hint)
            if set(seen) == set(Hint):
                await other.close()

    async with asyncio.timeout(60):
        await watch()


async def test_hints_are_sent_together(scene: Scene, postgres_store: PostgresStore) -> None:
    sent: list[str] = []

    async def send(sql: str) -> None:
        sent.append(sql)

    postgres_store._sender._send = send
    for _ in range(20):
        postgres_store._sender.tell(Hint.WORK)
        postgres_store._sender.tell(Hint.ENDED, Hint.WORK)
    await postgres_store._sender.close()
    assert len(sent) == 1
    assert f"{postgres_store._sender.name} ended work" in sent[0]


async def test_poll_hears_what_changed_where_nobody_can_listen(
    pgbouncer_url: str, scene: Scene
) -> None:
    pooled = PostgresStore(f"{pgbouncer_url}?prepared=off")
    async with watching(pooled) as hints, asyncio.timeout(60):
        hint = asyncio.create_task(heard(hints, Hint.WORK))
        while not hint.done():
            await scene.accepted(a_job())


# Transactions of an application that do not end.


@pytest.mark.parametrize("started", [False, True])
async def test_key_held_by_an_open_transaction_holds_up_nobody_else(
    postgres_store: PostgresStore, postgres_url: str, outside: Connection, started: bool
) -> None:
    """Whoever enqueues in a transaction of his own may keep it open for hours."""
    store = PostgresStore(postgres_url, timeout_s=3.0)
    scene = Scene(store)
    slot = await scene.attend()
    attempt = await scene.running(slot=slot)
    held, mine = a_job(unique_key="theirs"), a_job(unique_key="theirs")
    others = [a_job(), a_job(unique_key="mine")]
    jobs = [others[0], mine, others[1]]
    async with outside.transaction():
        await outside.fetch(ENQUEUE, *columns([(held, 1)]))
        batch = Batch([done(attempt)], jobs, (), [slot] * 3 if started else ())
        pumped = await scene.store.pump(scene.dispatcher, batch)
        alone = await scene.pump(submits=[mine], slots=[slot] if started else ())
    assert [end.verdict for end in pumped.finished] == [Verdict.RECORDED]
    first, refused, last = pumped.submitted
    assert [first.id, last.id] == [job.id for job in others]
    assert isinstance(refused, Refused)
    assert refused.code == StoreUnavailable.code
    assert "has not ended" in refused.message
    assert alone.submitted == [refused]
    assert len(pumped.started) == (2 if started else 0)
    again = (await scene.submit(mine))[0]
    assert isinstance(again, Submitted)
    assert (again.id, again.existing) == (held.id, True)
    await store.close()
