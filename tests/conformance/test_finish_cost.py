"""What is written when a job of a group ends does not grow with the group.

Counted in rows that are inserted, changed or removed, for PostgreSQL in each table.
"""

from __future__ import annotations

import sqlite3
from typing import Any

import pytest

from longshore.model.ends import End, Failed, Succeeded
from longshore.model.group import Condition
from longshore.model.worker import OpenSlots
from longshore.ports import Batch
from longshore.store.postgres.connections import ConnectionPool, Transaction, Work
from longshore.store.postgres.plain_end import END_ONE
from longshore.store.postgres.plain_ends import END_PLAIN
from longshore.store.postgres.store import PostgresStore
from longshore.store.sqlite.store import SqliteStore
from longshore.testing.backends import PostgresBackend
from longshore.testing.builders import GroupScene, Scene, a_group, done

from .test_dependents import open_slots
from .test_flatness import sqlite_store

__all__ = ["sqlite_store"]

FEW, MANY = 100, 3_000
WRITTEN = """
SELECT relname, (n_tup_ins + n_tup_upd + n_tup_del)::bigint AS rows FROM pg_stat_xact_user_tables
WHERE schemaname = 'longshore' AND n_tup_ins + n_tup_upd + n_tup_del > 0
"""

WAYS: dict[str, tuple[str, type[End]]] = {
    "one": ("step", Succeeded),
    "plain": ("fan", Succeeded),
    "general": ("fan", Failed),
}
"""Which job ends, and how, so that PostgreSQL takes each of its ways."""


async def a_large_group(scene: Scene, jobs: int) -> GroupScene:
    """A group in which `fan` and `step` run, and many others wait for one that does not.

    One job waits for all of them.
    """
    near = {
        "fan": "",
        "a": "fan",
        "b": "fan",
        "c": "fan",
        "step": "",
        "d": "step",
        "rest": "",
        "one": "",
    }
    others = {f"n{place}": "rest" for place in range(jobs)}
    all_of_them = " ".join(key for key in (*near, *others) if key not in ("step", "d"))
    on = dict.fromkeys(("a", "b", "c", "all"), Condition.ENDED)
    group = await scene.submit_group(a_group(near | others | {"all": all_of_them}, on))
    assert await group.claim() == {"fan", "step", "rest", "one"}
    await group.end("one")  # PostgreSQL takes the shorter ways after a batch with such an end.
    return group


async def end(
    scene: Scene, group: GroupScene, key: str, how: type[End], slots: list[OpenSlots]
) -> None:
    """Ends a job as its worker told, and offers slots for what depends on it."""
    ends = [done(group.running.pop(key), how, by="")]
    await scene.store.pump(scene.dispatcher, Batch(ends, for_dependents=slots))


class Measured(BaseException):
    """Ends a transaction before its commit, and says what it wrote and in which way."""

    def __init__(self, way: str, rows: dict[str, int]) -> None:
        super().__init__(way)
        self.way, self.rows = way, rows


def measure(monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on every transaction ends as `Measured`."""
    run = ConnectionPool.run

    async def measured(pool: ConnectionPool, way: str, work: Work[Any], first: str = "") -> Any:
        async def gauged(tx: Transaction) -> Any:
            answer = await work(tx)
            if way != "general" and not answer:
                return answer
            if writes := tx.ending().removesuffix("COMMIT"):
                await tx.connection.execute(writes)
            rows = await tx.fetch(WRITTEN)
            raise Measured(way, {row["relname"]: row["rows"] for row in rows})

        return await run(pool, gauged, first)

    async def in_general(pool: ConnectionPool, work: Work[Any], first: str = "") -> Any:
        return await measured(pool, "general", work, first)

    async def alone(pool: ConnectionPool, sql: str, *values: object) -> Any:
        way = {END_ONE: "one", END_PLAIN: "plain"}.get(sql, "none of a group")
        return await measured(pool, way, lambda tx: tx.fetch(sql, *values))

    monkeypatch.setattr(ConnectionPool, "run", in_general)
    monkeypatch.setattr(ConnectionPool, "alone", alone)


@pytest.mark.parametrize("way", WAYS)
async def test_postgres_writes_as_much_at_an_end_in_a_large_group(
    postgres_backend: PostgresBackend, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    await postgres_backend.clear()
    key, how = WAYS[way]
    async with postgres_backend.opened() as store:
        assert isinstance(store, PostgresStore)
        scene, written = Scene(store), []
        for jobs in (FEW, MANY):
            group = await a_large_group(scene, jobs)
            slots = open_slots(await scene.attend(), 10)
            with monkeypatch.context() as patch:
                measure(patch)
                with pytest.raises(Measured) as found:
                    await end(scene, group, key, how, slots)
            assert found.value.way == way
            written.append(found.value.rows)
        few, many = written
        assert many == few
        assert few["job"] >= 2, "the job, and what starts by its end"


@pytest.mark.parametrize("way", WAYS)
async def test_sqlite_writes_as_much_at_an_end_in_a_large_group(
    sqlite_store: SqliteStore, way: str
) -> None:
    key, how = WAYS[way]
    scene, written = Scene(sqlite_store), []
    for jobs in (FEW, MANY):
        group = await a_large_group(scene, jobs)
        slots = open_slots(await scene.attend(), 10)
        before = _writer(sqlite_store).total_changes
        await end(scene, group, key, how, slots)
        written.append(_writer(sqlite_store).total_changes - before)
    few, many = written
    assert many == few > 0


def _writer(store: SqliteStore) -> sqlite3.Connection:
    assert store._writer is not None
    return store._writer
