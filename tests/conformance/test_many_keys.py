"""Many live keys: claims read no more for them, and those that nobody needs are forgotten in time.

Counted in rows that PostgreSQL reads and in steps that SQLite's machine takes, as in
`test_flatness`.
"""

from __future__ import annotations

from longshore.model.limits import JobLimit, LimitRule, Rate
from longshore.model.worker import SessionKey
from longshore.store.postgres.store import PostgresStore
from longshore.store.sqlite.store import SqliteStore
from longshore.testing.backends import PostgresBackend
from longshore.testing.builders import Scene, a_job, done

from .test_flatness import TAKEN, PostgresGauge, SqliteGauge, sqlite_store, started

MANY = 5_000
AT_ONCE = 500

__all__ = ["sqlite_store"]


async def with_keys(scene: Scene, name: str, number: int = TAKEN, first: int = 0) -> None:
    """Submits so many jobs, each of a key of its own."""
    await scene.accepted(
        *(a_job(limits=(JobLimit(f"{name}={first + n}", 1),)) for n in range(number))
    )


async def many_keys(scene: Scene, slot: SessionKey) -> None:
    """Of so many keys one job runs, and another waits behind it."""
    for first in range(0, MANY, AT_ONCE):
        await with_keys(scene, "t", AT_ONCE, first)
        assert len(await scene.claim(slot, most=AT_ONCE)) == AT_ONCE
        await with_keys(scene, "t", AT_ONCE, first)
        assert await scene.claim(slot, most=AT_ONCE) == []


async def test_sqlite_claim_of_a_key_costs_the_same_among_many_keys(
    sqlite_store: SqliteStore,
) -> None:
    scene, slot = await started(sqlite_store)
    gauge = SqliteGauge(sqlite_store, scene, slot)
    costs = []
    for name in ("x", "y"):
        await with_keys(scene, name)
        await gauge.claim()  # It drops slots that ended attempts left.
        await with_keys(scene, f"{name}{name}")
        taken, cost = await gauge.claim()
        assert len(taken) == TAKEN
        _, in_vain = await gauge.claim()
        costs.append((cost, in_vain))
        if name == "x":
            await many_keys(scene, slot)
    assert costs[1] == costs[0] > (0, 0)


async def test_postgres_claim_of_a_key_reads_the_same_among_many_keys(
    postgres_backend: PostgresBackend,
) -> None:
    await postgres_backend.clear()
    async with postgres_backend.opened() as store:
        assert isinstance(store, PostgresStore)
        scene, slot = await started(store)
        gauge = PostgresGauge(store, scene.dispatcher, slot)
        costs = []
        for name in ("x", "y"):
            await with_keys(scene, name)
            await gauge.claim()  # It reads once more what other processes may have changed.
            await with_keys(scene, f"{name}{name}")
            taken, cost = await gauge.claim()
            assert len(taken) == TAKEN
            _, in_vain = await gauge.claim()
            costs.append((cost, in_vain))
            if name == "x":
                await many_keys(scene, slot)
        # Small tables may be read whole, with what earlier tests left in them: never less than so.
        (alone, alone_in_vain), (among_many, in_vain) = costs
        assert TAKEN <= among_many <= alone
        assert 0 < in_vain <= alone_in_vain
    await postgres_backend.clear()


async def test_keys_that_nobody_needs_are_forgotten_however_many(scene: Scene) -> None:
    """More of them than one transaction forgets; those that are held or not even stay."""
    slot = await scene.attend()
    await scene.store.set_limit(LimitRule("t=*", 1, Rate(1000, 1.0, 1000)))
    await scene.store.set_limit(LimitRule("slow=*", rate=Rate(1, 3600.0, 1)))
    await with_keys(scene, "slow", 1)
    await with_keys(scene, "held", 1)
    slow = (await scene.claim(slot, most=2))[0]
    await scene.finish(done(slow))
    await with_keys(scene, "t", 500)
    for attempt in await scene.claim(slot, most=500):
        await scene.finish(done(attempt))
    await scene.store.forget_lanes(most=10)
    assert await scene.store.limit_keys(most=1000) == ["held=0", "slow=0"]
    view = await scene.store.limit_key("held=0")
    assert view.held == 1
