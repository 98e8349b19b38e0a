"""Very many messages to one actor: nothing grows with how many it had, or how many wait.

Costs are counted as in `test_flatness.py`: in rows that PostgreSQL reads and in steps that SQLite's
machine takes. `ACTOR_MESSAGES=1000000` takes the life of one actor to its full length.
"""

from __future__ import annotations

import asyncio
import math
import os
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Sequence
from contextlib import closing
from typing import cast

import asyncpg
import pytest
from msgspec import structs

from longshore.core.turns import MOST_EVENTS, turn_kind
from longshore.model.actor import Message, Sent
from longshore.model.attempt import Attempt
from longshore.model.batch import BatchResult
from longshore.model.ends import End
from longshore.ports import Batch
from longshore.store.postgres.connections import ConnectionPool, Transaction
from longshore.store.postgres.pump_result import PumpResult
from longshore.store.postgres.store import PostgresStore
from longshore.store.postgres.turn_inputs import filled_turns
from longshore.store.sqlite.store import SqliteStore
from longshore.testing.actor_builders import TYPE, ActorScene, a_message, given, taken
from longshore.testing.backends import Backend, PostgresBackend, SqliteBackend
from longshore.testing.builders import Scene, a_claim, lane
from tests.conformance.test_flatness import ROWS_READ

AT_ONCE = 50_000
FEW = 2 * MOST_EVENTS
"""Enough for one turn that another one follows."""
SENT_TOGETHER = 1_000
LIFE = int(os.environ.get("ACTOR_MESSAGES", "4000"))
"""How many messages one actor gets over its life."""
CHUNK = 20
HOUR = 1_000
"""So many come in an hour; then the ids of earlier ones are forgotten."""
HOUR_S = 3_700.0

KIND = lane(kind=turn_kind(TYPE, 1))


class Gauge(ABC):
    """A store, one actor in it, and what its turns cost."""

    def __init__(self, actors: ActorScene, backend: Backend) -> None:
        self.actors = actors
        self.backend = backend
        self._last = 0

    def messages(self, many: int) -> list[Message]:
        """So many messages, each with the next number."""
        self._last += many
        numbers = range(self._last - many, self._last)
        return [a_message(args=number.to_bytes(4, "big")) for number in numbers]

    async def turn(self) -> tuple[list[int], int]:
        """Takes a turn; answers the numbers that it read, and what that cost in all."""
        claimed, to_claim = await self._pump(claims=True)
        [attempt] = claimed.claimed
        _, to_end = await self._pump(taken(attempt))
        return numbers(attempt), to_claim + to_end

    @abstractmethod
    async def _pump(self, *ends: End, claims: bool = False) -> tuple[BatchResult, int]:
        """One batch, and what it cost."""

    @abstractmethod
    async def rows(self) -> dict[str, int]:
        """How many rows each table has."""

    async def hour(self) -> None:
        """An hour passes, and dispatchers do what they do now and then."""
        await self.backend.pass_time(HOUR_S)
        while (await self.actors.store.tend_actors()).more:
            pass

    def _batch(self, ends: Sequence[End], claims: bool) -> Batch:
        wanted = [a_claim([self.actors.slot], KIND)] if claims else []
        return Batch(ends, claims=wanted)


def numbers(attempt: Attempt) -> list[int]:
    return [int.from_bytes(event.args, "big") for event in given(attempt).events]


class SqliteGauge(Gauge):
    """Counts the steps of SQLite's machine."""

    def __init__(self, store: SqliteStore, backend: SqliteBackend, actors: ActorScene) -> None:
        super().__init__(actors, backend)
        self._path = backend.path
        self._writer = store._writer
        self._steps = 0

    def _step(self) -> int:
        self._steps += 1
        return 0

    async def _pump(self, *ends: End, claims: bool = False) -> tuple[BatchResult, int]:
        assert self._writer is not None
        self._steps = 0
        self._writer.set_progress_handler(self._step, 10)
        batch = self._batch(ends, claims)
        answer = await self.actors.store.pump(self.actors.scene.dispatcher, batch)
        self._writer.set_progress_handler(None, 1)
        return answer, self._steps

    async def rows(self) -> dict[str, int]:
        with closing(sqlite3.connect(self._path)) as connection:
            tables = connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")
            return {
                name: connection.execute(f'SELECT count(*) FROM "{name}"').fetchone()[0]
                for (name,) in tables.fetchall()
            }


class PostgresGauge(Gauge):
    """Counts the rows that PostgreSQL reads."""

    def __init__(self, store: PostgresStore, backend: PostgresBackend, actors: ActorScene) -> None:
        super().__init__(actors, backend)
        self._url = backend.url
        self._store = store

    async def _pump(self, *ends: End, claims: bool = False) -> tuple[BatchResult, int]:
        batch = self._batch(ends, claims)

        async def work(tx: Transaction) -> tuple[PumpResult, BatchResult, int]:
            before = await tx.connection.fetchval(ROWS_READ)
            drawn = await self._store._pump.run(tx, self.actors.scene.dispatcher, batch)
            # In the transaction, so that its counts have it; a store does it just after.
            filled = await filled_turns(cast(ConnectionPool, tx.connection), drawn.pumped.claimed)
            after = await tx.connection.fetchval(ROWS_READ)
            return drawn, structs.replace(drawn.pumped, claimed=filled), after - before

        drawn, pumped, rows = await self._store._pumping.run(work)
        self._store._pump.committed(drawn)
        return pumped, rows

    async def rows(self) -> dict[str, int]:
        connection = await asyncpg.connect(self._url)
        try:
            tables = await connection.fetch(
                "SELECT relname FROM pg_stat_user_tables WHERE schemaname = 'longshore'"
            )
            return {
                name: await connection.fetchval(f"SELECT count(*) FROM longshore.{name}")
                for (name,) in tables
            }
        finally:
            await connection.close()

    async def hour(self) -> None:
        self._store._folded_at = -math.inf
        await self._store.promote()
        await super().hour()


@pytest.fixture(params=["sqlite", "postgres"])
async def gauge(request: pytest.FixtureRequest) -> AsyncIterator[Gauge]:
    """An actor that sleeps, in an empty store."""
    backend = request.getfixturevalue(f"{request.param}_backend")
    await backend.clear()
    async with backend.opened() as store:
        actors = await ActorScene.begin(Scene(store))
        await actors.sleeping()
        kind = SqliteGauge if request.param == "sqlite" else PostgresGauge
        yield kind(store, backend, actors)


async def test_50_000_messages_to_one_key_at_once(gauge: Gauge) -> None:
    """All are in, each is read once, and a turn costs with 50,000 behind it what it costs alone."""
    await gauge.actors.send(*gauge.messages(FEW))
    (_, alone), _ = await gauge.turn(), await gauge.turn()
    made = gauge.messages(AT_ONCE)
    parts = [made[n : n + SENT_TOGETHER] for n in range(0, AT_ONCE, SENT_TOGETHER)]
    sent = await asyncio.gather(*(gauge.actors.send(*part, max_mailbox=AT_ONCE) for part in parts))
    assert all(isinstance(one, Sent) for part in sent for one in part)
    assert (await gauge.actors.actor()).unread == AT_ONCE
    read: list[int] = []
    costs: list[int] = []
    while len(read) < AT_ONCE:
        some, cost = await gauge.turn()
        read += some
        costs.append(cost)
    assert sorted(read) == list(range(FEW, FEW + AT_ONCE))
    for first in range(FEW, FEW + AT_ONCE, SENT_TOGETHER):
        part = [one for one in read if first <= one < first + SENT_TOGETHER]
        assert part == sorted(part), "what one sender sent is read in its order"
    assert max(costs) <= alone * 1.05


@pytest.mark.timeout(120 + LIFE / 100)
async def test_1_000_000_messages_to_one_actor_over_its_life(gauge: Gauge) -> None:
    """Rows and cost are after a thousand messages what they are after all."""
    seen: list[tuple[dict[str, int], int]] = []
    cost = 0
    for first in range(0, LIFE, CHUNK):
        made = gauge.messages(CHUNK)
        await gauge.actors.send(*made)
        read, cost = await gauge.turn()
        assert read == list(range(first, first + CHUNK))
        if (first + CHUNK) % HOUR == 0:
            await gauge.hour()
            seen.append((await gauge.rows(), cost))
    assert len(seen) == LIFE // HOUR
    rows, least = seen[0]
    assert all(one == rows for one, _ in seen)
    assert max(cost for _, cost in seen) <= least * 1.05
    assert sum(rows.values()) < 60, rows
