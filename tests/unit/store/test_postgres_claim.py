"""The claim's cost: rows read, counted by the database itself, never timed."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from longshore.model.ends import End
from longshore.model.job import JobState
from longshore.model.limits import JobLimit
from longshore.model.worker import SessionKey
from longshore.ports import Batch
from longshore.store.postgres import keeper_sql as postgres_keeper_sql
from longshore.store.postgres import kept_turns, limits_sql, plain_end
from longshore.store.postgres import sql as postgres_sql
from longshore.store.postgres.connections import Connection, Transaction
from longshore.store.postgres.planning import STEADY
from longshore.store.postgres.pump import Pump
from longshore.store.postgres.pump_result import PumpResult
from longshore.store.postgres.states import CODES
from longshore.store.postgres.store import PostgresStore
from longshore.testing.builders import Scene, a_claim, a_job, done, lane, some_jobs

MANY = 100_000
Reads = dict[str, tuple[int, int]]

# What this transaction has read so far: for an index, entries and the rows they led to; for a
# table, rows that were read in any other way.
READ = """
SELECT c.relname,
    pg_stat_get_xact_tuples_returned(c.oid) AS returned,
    pg_stat_get_xact_tuples_fetched(c.oid) AS fetched
FROM pg_class AS c WHERE c.relnamespace = 'longshore'::regnamespace AND c.relkind IN ('r', 'i')
"""

LOAD = """
INSERT INTO longshore.job (
    id, number, rank, lane, state, run_at, body_hash, kind, queue, target, options, args, history
)
SELECT gen_random_uuid(), 1000000 + i, 1000000 + i, $1, $2, now() + interval '1 day', 0, 'x', 'x',
    '', '', '', ''
FROM generate_series(1, $3) AS i
"""


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[PostgresStore]:
    store = PostgresStore(url)
    await store.migrate()
    await store.open()
    try:
        yield store
    finally:
        await store.close()


async def counted(scene: Scene, batch: Batch) -> tuple[PumpResult, Reads]:
    """Pumps a batch, and says what that read."""
    store = scene.store
    assert isinstance(store, PostgresStore)

    async def work(tx: Transaction) -> tuple[PumpResult, Reads]:
        before = {row["relname"]: row[1:] for row in await tx.fetch(READ)}
        drawn = await store._pump.run(tx, scene.dispatcher, batch)
        after = {row["relname"]: row[1:] for row in await tx.fetch(READ)}
        read = {
            name: tuple(b - a for a, b in zip(before[name], after[name], strict=True))
            for name in after
        }
        return drawn, {name: (n[0], n[1]) for name, n in read.items() if any(n)}

    drawn, reads = await store._pumping.run(work)
    store._pump.committed(drawn)
    return drawn, reads


async def cost_of_a_life(store: PostgresStore, kind: str) -> list[Reads]:
    """What it takes to submit 25 jobs, claim 10, and finish those."""
    scene = Scene(store)
    slot = await scene.attend()
    jobs = some_jobs(25, kind)
    _, submitting = await counted(scene, Batch(submits=jobs))
    drawn, claiming = await counted(scene, Batch(claims=[a_claim([slot] * 10, lane(kind=kind))]))
    attempts = drawn.pumped.claimed
    assert [attempt.id for attempt in attempts] == [job.id for job in jobs[:10]]
    _, finishing = await counted(scene, Batch(finishes=[done(one) for one in attempts]))
    # Entries of versions that are gone may or may not be removed by now; rows are certain.
    return [submitting, claiming, {name: (0, rows) for name, (_, rows) in finishing.items()}]


async def test_claim_reads_each_job_with_limits_by_its_id(postgres_url: str) -> None:
    """Not all ready jobs for each that starts; slots are counted once."""
    limits = (JobLimit("a=b", 1_000),)
    async with opened(postgres_url) as store:
        scene = Scene(store)
        slot = await scene.attend()
        await scene.accepted(*(a_job(limits=limits) for _ in range(200)))
        await scene.claim(slot, lane(), most=50)
        drawn, reads = await counted(scene, Batch(claims=[a_claim([slot] * 100, lane())]))
        assert len(drawn.pumped.claimed) == 100
        # Rows: 50 jobs that run, for the count, and 100 that start.
        assert reads["job_id"][1] == 150
        # Once by the claim that stops before them, and once by the one that goes on.
        assert reads["job_ready"][1] == 200
        assert "job" not in reads, "it was read past its indexes"


async def test_claim_reads_the_same_however_much_else_there_is(
    postgres_url: str, outside: Connection
) -> None:
    """Not one row more with ready jobs that nobody serves, finished and delayed ones.

    Neither with a plan from when all was empty, nor with a new one, nor with statistics.
    """
    async with opened(postgres_url) as old, opened(postgres_url) as other:
        empty = await cost_of_a_life(old, "a")
        _, claiming, finishing = empty
        assert claiming["job_ready"] == (10, 10)
        assert finishing == {"job_id": (0, 10)}
        assert "job" not in claiming, "it was read past its indexes"
        await outside.execute(LOAD, lane(kind="unserved"), CODES[JobState.READY], MANY)
        for kind in "bcdef":
            await outside.execute(LOAD, lane(kind=kind), CODES[JobState.DELAYED], MANY // 5)
            await outside.execute(LOAD, lane(kind=kind), CODES[JobState.SUCCEEDED], MANY // 5)
        assert await cost_of_a_life(old, "b") == empty
        assert await cost_of_a_life(other, "c") == empty
        await outside.execute("VACUUM ANALYZE longshore.job")
        assert await cost_of_a_life(old, "d") == empty
        async with opened(postgres_url) as new:
            assert await cost_of_a_life(new, "e") == empty


async def test_claim_that_finds_nothing_reads_no_job(postgres_url: str) -> None:
    async with opened(postgres_url) as store:
        scene = Scene(store)
        slot = await scene.attend()
        await scene.accepted(*some_jobs(50, "other"))
        _, reads = await counted(scene, Batch(claims=[a_claim([slot] * 10)]))
        assert "job" not in reads
        assert "job_ready" not in reads


async def test_claims_do_not_walk_over_what_an_old_snapshot_keeps(
    postgres_url: str, outside: Connection
) -> None:
    """An idle transaction keeps claimed jobs' entries in the index; claims begin behind them."""
    now = 1000.0
    async with opened(postgres_url) as store, outside.transaction(isolation="repeatable_read"):
        await outside.execute("SELECT")
        store._pump = Pump(10.0, lambda: now)
        scene = Scene(store)
        slots = [await scene.attend()] * 20
        finishes: list[End] = []
        entries = []
        for _ in range(60):
            batch = Batch(finishes, some_jobs(20), [a_claim(slots)])
            drawn, reads = await counted(scene, batch)
            assert len(drawn.pumped.claimed) == 20
            entries.append(reads["job_ready"][0])
            finishes = [done(attempt) for attempt in drawn.pumped.claimed]
            now += 0.1
        usual = sorted(entries)[len(entries) * 8 // 10]
        assert usual <= 20 * 8
        assert max(entries) > 20 * 30, "the snapshot kept nothing: this test shows nothing"


async def test_claim_that_runs_short_finds_what_another_put_back_before_its_mark(
    postgres_url: str, outside: Connection
) -> None:
    """A lane is not called empty by a claim that did not look at all of it."""
    now = 1000.0
    async with opened(postgres_url) as store:
        store._pump = Pump(10.0, lambda: now)
        scene = Scene(store)
        one, two = await scene.attend(), await scene.attend()
        await scene.accepted(*some_jobs(8))
        attempts = []
        for _ in range(4):
            attempts += await scene.claim(one)
            now += 0.3
        look = store._pump.cursors.look([lane()], now)
        assert not look.full
        ready = f"state = {CODES[JobState.READY]}"
        await outside.execute(f"UPDATE longshore.job SET {ready} WHERE id = $1", attempts[0].id)
        pumped = await scene.pump(claims=[a_claim([one, two, one, two, one, two])])
        assert len(pumped.claimed) == 5
        assert pumped.claimed[4].id == attempts[0].id
        slots = [attempt.worker for attempt in pumped.claimed]
        assert slots == [one.worker, two.worker, one.worker, two.worker, one.worker]


# These read all of the tally, which folding keeps short, and of the lanes, which have a limit. The
# one then rests fifty times as long, the other comes every prune_s.
RESTING = {"ADOPT_LANES", "FORGET_LANES"}

# Every way into a table must be an index and a condition, however small the table seems.
STATEMENTS = {
    name: text
    for module in (postgres_sql, postgres_keeper_sql, kept_turns, plain_end)
    for name, text in vars(module).items()
    if not name.startswith("_")
    and name not in RESTING
    and name != "CLAIM_FORM"  # of which the claims are made
    and isinstance(text, str)
    and re.match(r"\s*(SELECT|INSERT|UPDATE|DELETE|WITH)\b", text)
}
STATEMENTS |= {
    name: getattr(limits_sql, name)
    for name in ("START", "PUT_BEHIND", "COUNT", "FRONT", "TRY_KEYS", "LOCK_KEYS", "WAKE", "LEAVE")
}
# These take the first entry of an index, whichever it is.
FIRST_ENTRY = {"NEXT_DUE", "ORPHANED"}


@pytest.mark.parametrize("rows", [None, 0, 1, 30])
async def test_plan_is_by_index_whatever_the_statistics_say(
    postgres_url: str, outside: Connection, rows: int | None
) -> None:
    """Without statistics, and with those of an empty or tiny table, which it later outgrows."""
    async with opened(postgres_url):
        pass
    if rows is not None:
        for state in (CODES[JobState.READY], CODES[JobState.RUNNING]):
            await outside.execute(LOAD, 1, state, rows)
        await outside.execute("VACUUM ANALYZE")
    for name, value in STEADY.items():
        await outside.execute(f"SET {name} = {value}")
    for name, sql in STATEMENTS.items():
        await outside.execute(f"PREPARE p AS {sql}")
        parameters = {*re.findall(r"\$\d+", sql)}
        nulls = f"({', '.join(['NULL'] * len(parameters))})" if parameters else ""
        plan = [row[0] for row in await outside.fetch(f"EXPLAIN EXECUTE p{nulls}")]
        await outside.execute("DEALLOCATE p")
        assert_every_scan_has_a_condition(name, plan)


def assert_every_scan_has_a_condition(name: str, plan: list[str]) -> None:
    for line, following in zip(plan, [*plan[1:], ""], strict=True):
        assert "Seq Scan" not in line, f"{name}: {line}"
        if "Index" in line and "Scan" in line and name not in FIRST_ENTRY:
            assert "Index Cond" in following, f"{name}: {line} / {following}"
        if "Tid Scan" in line:
            assert "TID Cond" in following, f"{name}: {line}"


async def test_worker_that_is_being_lost_is_given_nothing_and_not_waited_for(
    postgres_url: str, outside: Connection
) -> None:
    """Whoever holds its row may be waiting for a job that this pump holds."""
    async with opened(postgres_url) as store:
        scene = Scene(store)
        held, free = await scene.attend(), await scene.attend()
        await scene.accepted(*some_jobs(3))
        async with outside.transaction():
            await outside.execute(
                "SELECT FROM longshore.worker WHERE id = $1 FOR UPDATE", held.worker
            )
            pumped = await scene.pump(claims=[a_claim([held, free, held, free])])
        assert [attempt.worker for attempt in pumped.claimed] == [free.worker] * 2


async def test_heartbeat_of_a_worker_is_no_hindrance(
    postgres_url: str, outside: Connection
) -> None:
    async with opened(postgres_url) as store:
        scene = Scene(store)
        slot = await scene.attend()
        await scene.accepted(*some_jobs(1))
        async with outside.transaction():
            await outside.execute(
                "UPDATE longshore.worker SET attended_at = now() WHERE id = $1", slot.worker
            )
            assert len(await scene.claim(slot)) == 1


async def test_job_that_another_holds_is_skipped_and_its_slot_is_not_wasted(
    postgres_url: str, outside: Connection
) -> None:
    async with opened(postgres_url) as store:
        scene = Scene(store)
        first, second = await scene.attend(), await scene.attend()
        jobs = some_jobs(3)
        await scene.accepted(*jobs)
        async with outside.transaction():
            await outside.execute("SELECT FROM longshore.job WHERE id = $1 FOR UPDATE", jobs[0].id)
            pumped = await scene.pump(claims=[a_claim([first, second, first])])
        placed = [(attempt.id, attempt.worker) for attempt in pumped.claimed]
        assert placed == [(jobs[1].id, first.worker), (jobs[2].id, second.worker)]
        assert pumped.contested == frozenset(a_claim([]).lanes)
        assert [one.id for one in await scene.claim(first)] == [jobs[0].id]


async def test_claim_that_meets_another_says_that_more_may_be_there(
    postgres_url: str, outside: Connection
) -> None:
    """What lies behind the jobs that another holds was not looked at."""
    async with opened(postgres_url) as store:
        scene = Scene(store)
        slot = await scene.attend()
        jobs = some_jobs(3)
        await scene.accepted(*jobs)
        async with outside.transaction():
            held = [job.id for job in jobs[:2]]
            await outside.execute("SELECT FROM longshore.job WHERE id = ANY($1) FOR UPDATE", held)
            pumped = await scene.pump(claims=[a_claim([slot] * 2)])
        assert pumped.claimed == []
        assert pumped.contested == frozenset(a_claim([]).lanes)
        pumped = await scene.pump(claims=[a_claim([slot] * 4)])
        assert len(pumped.claimed) == 3
        assert pumped.contested == frozenset()


async def test_slot_of_a_claim_are_filled_in_their_order(postgres_url: str) -> None:
    async with opened(postgres_url) as store:
        scene = Scene(store)
        attending = [await scene.attend() for _ in range(3)]
        stale = SessionKey(attending[0].worker, attending[0].session + 1)
        slots = [attending[2], stale, attending[0], attending[0], attending[1]]
        await scene.accepted(*some_jobs(9))
        pumped = await scene.pump(claims=[a_claim(slots)])
        found = [SessionKey(attempt.worker, attempt.session) for attempt in pumped.claimed]
        assert found == [slot for slot in slots if slot is not stale]
