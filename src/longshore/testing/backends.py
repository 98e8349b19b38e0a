"""The databases that the conformance suite runs on, and what it must do to them behind the port.

What a test needs that no verb does: time that passes, a harvest that died half-way, a job in a
state that nothing leads to yet, and a look at all that was logged.
"""

from __future__ import annotations

import shutil
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import ClassVar
from uuid import UUID
from weakref import WeakSet

import asyncpg
from msgspec import structs

from longshore.model.job import JobState
from longshore.ports import Store
from longshore.store.actor_rows import NEVER, pack_timers, unpack_timers
from longshore.store.postgres.due_cursor import DueCursor
from longshore.store.postgres.states import CODES
from longshore.store.postgres.store import PostgresStore
from longshore.store.sqlite.store import SqliteStore
from longshore.testing.memory import MemoryStore


def timers_earlier(packed: bytes, micros: int) -> bytes:
    """Stored timers that are so much nearer."""
    timers = unpack_timers(packed)
    return pack_timers([structs.replace(one, at=(one.at or 0) - micros) for one in timers])


async def migrate(store: Store) -> None:
    """The database of this store is migrated; the store is closed."""
    await store.migrate()
    await store.close()


class Backend(ABC):
    """One database, and how stores reach it."""

    @abstractmethod
    def connect(self) -> Store:
        """A store on this database, not opened yet."""

    @abstractmethod
    async def clear(self) -> None:
        """The database is migrated and holds nothing; stores made before must not be used."""

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[Store]:
        """A store on this database, as another process would have it."""
        store = self.connect()
        await store.open()
        try:
            yield store
        finally:
            await store.close()

    @abstractmethod
    async def pass_time(self, seconds: float) -> None:
        """Whatever waits for a time is so much nearer to it."""

    @abstractmethod
    async def half_harvest(self, worker: UUID) -> None:
        """A worker is declared lost, and whoever did so died before it freed the jobs."""

    @abstractmethod
    async def force(self, job: UUID, state: JobState) -> None:
        """A job is in this state, however it came there."""

    @abstractmethod
    async def force_unmet(self, job: UUID, unmet: int) -> None:
        """A job of a group counts so many that it waits for, whatever is true."""

    @abstractmethod
    async def force_open(self, job: UUID, open: int) -> None:
        """A job of a group counts so many open jobs in its scope, whatever is true."""

    @abstractmethod
    async def logged(self) -> int:
        """How many log entries are kept: no verb shows those of an earlier attempt."""

    @abstractmethod
    async def group_rows(self) -> int:
        """How many rows there are of groups and their nodes, of any kind, and numbers of jobs."""


class MemoryBackend(Backend):
    """One store in memory, shared by all who open it."""

    def __init__(self) -> None:
        self._ahead = timedelta()
        self._store = MemoryStore(self._utc)

    async def clear(self) -> None:
        self._store = MemoryStore(self._utc)

    def _utc(self) -> datetime:
        return datetime.now(UTC) + self._ahead

    def connect(self) -> Store:
        return self._store

    async def pass_time(self, seconds: float) -> None:
        self._ahead += timedelta(seconds=seconds)

    async def half_harvest(self, worker: UUID) -> None:
        row = self._store._workers[worker]
        self._store._workers[worker] = structs.replace(row, alive=False)

    async def force(self, job: UUID, state: JobState) -> None:
        row = self._store._jobs[job]
        row.job = structs.replace(row.job, state=state)

    async def force_unmet(self, job: UUID, unmet: int) -> None:
        node = self._store._jobs[job].node
        assert node is not None
        node.unmet = unmet

    async def force_open(self, job: UUID, open: int) -> None:
        node = self._store._jobs[job].node
        assert node is not None
        node.open = open

    async def logged(self) -> int:
        return len(self._store._logs)

    async def group_rows(self) -> int:
        return len(self._store._groups) + len(self._store._unsettled) + len(self._store._jobs)


class SqlBackend(Backend):
    """A database that can be changed from outside of any store.

    `schema` goes before the name of a table.
    """

    schema: ClassVar[str]

    @abstractmethod
    async def execute(self, sql: str, *values: object) -> None:
        """Runs one statement and commits it."""


class SqliteBackend(SqlBackend):
    """A file, and a migrated empty one to begin from."""

    schema = ""

    def __init__(self, path: Path, template: Path) -> None:
        self.path = path
        self._template = template
        self._migrated = False

    async def clear(self) -> None:
        if not self._migrated:
            await SqliteStore(self._template).migrate()
            self._migrated = True
        self._begin_anew()

    def _begin_anew(self) -> None:
        for suffix in ("-wal", "-shm"):
            Path(f"{self.path}{suffix}").unlink(missing_ok=True)
        shutil.copy(self._template, self.path)

    def connect(self) -> Store:
        return SqliteStore(self.path, poll_s=0.02)

    async def pass_time(self, seconds: float) -> None:
        await self.execute(
            "UPDATE job SET run_at = run_at - ?1, expires_at = expires_at - ?1,"
            " deadline_at = deadline_at - ?1, created_at = created_at - ?1,"
            " started_at = started_at - ?1, ended_at = ended_at - ?1, blocked_at = blocked_at - ?1",
            round(seconds * 1_000_000),
        )
        await self.execute(
            "UPDATE job_group SET staged_at = staged_at - ?1, ended_at = ended_at - ?1",
            round(seconds * 1_000_000),
        )
        await self.execute("UPDATE worker SET ended_at = ended_at - ?", round(seconds * 1_000_000))
        await self.execute(
            "UPDATE fair_key SET noted_at = noted_at - ?", round(seconds * 1_000_000)
        )
        self._pass_time_of_actors(round(seconds * 1_000_000))

    def _pass_time_of_actors(self, micros: int) -> None:
        with closing(sqlite3.connect(self.path)) as connection, connection:
            connection.execute(
                "UPDATE message SET at = at - ?1, due_at = CASE WHEN due_at = ?2 THEN due_at"
                " ELSE due_at - ?1 END",
                (micros, NEVER),
            )
            connection.execute("UPDATE receipt SET at = at - ?1 WHERE at <> ?2", (micros, NEVER))
            rows = connection.execute("SELECT rowid, timers FROM turn").fetchall()
            moved = [(timers_earlier(timers, micros), row) for row, timers in rows]
            connection.executemany("UPDATE turn SET timers = ? WHERE rowid = ?", moved)

    async def half_harvest(self, worker: UUID) -> None:
        await self.execute("UPDATE worker SET alive = 0, ended_at = 0 WHERE id = ?", worker.bytes)

    async def force(self, job: UUID, state: JobState) -> None:
        await self.execute("UPDATE job SET state = ? WHERE id = ?", state.value, job.bytes)

    async def force_unmet(self, job: UUID, unmet: int) -> None:
        which = "job = (SELECT number FROM job WHERE id = ?)"
        await self.execute(f"UPDATE node SET unmet = ? WHERE {which}", unmet, job.bytes)

    async def force_open(self, job: UUID, open: int) -> None:
        which = "job = (SELECT number FROM job WHERE id = ?)"
        await self.execute(f"UPDATE node SET open = ? WHERE {which}", open, job.bytes)

    async def logged(self) -> int:
        return await self._count("log")

    async def group_rows(self) -> int:
        return sum([await self._count(table) for table in (*_OF_GROUPS, "job")])

    async def _count(self, table: str) -> int:
        with closing(sqlite3.connect(self.path)) as connection:
            count: int = connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
        return count

    async def execute(self, sql: str, *values: object) -> None:
        with closing(sqlite3.connect(self.path)) as connection, connection:
            connection.execute(sql, values)


class PostgresBackend(SqlBackend):
    """A database of a PostgreSQL server; stores may reach it through a pgbouncer."""

    schema = "longshore."
    _stores: ClassVar[WeakSet[PostgresStore]] = WeakSet()
    """The stores of this process. A backend itself can be sent to another one."""

    def __init__(self, url: str, *, pooled_url: str | None = None) -> None:
        self.url = url
        self._pooled_url = pooled_url
        self._migrated = False

    def connect(self) -> Store:
        if self._pooled_url is not None:
            store = PostgresStore(self._pooled_url, prepared=False, listen_url=self.url)
        else:
            store = PostgresStore(self.url)
        self._stores.add(store)
        return store

    async def clear(self) -> None:
        if not self._migrated:
            await migrate(PostgresStore(self.url))
            self._migrated = True
        await self.execute(_EMPTY_ALL)

    async def pass_time(self, seconds: float) -> None:
        # Here the times come nearer, not the clock: so must the mark up to which all was due.
        for store in self._stores:
            store._due = DueCursor()
        await self.execute(
            "UPDATE longshore.job SET run_at = run_at - $1::interval,"
            " expires_at = expires_at - $1::interval, deadline_at = deadline_at - $1::interval,"
            " created_at = created_at - $1::interval, started_at = started_at - $1::interval,"
            " ended_at = ended_at - $1::interval, blocked_at = blocked_at - $1::interval",
            timedelta(seconds=seconds),
        )
        await self.execute(
            "UPDATE longshore.job_group SET staged_at = staged_at - $1::interval,"
            " ended_at = ended_at - $1::interval",
            timedelta(seconds=seconds),
        )
        await self.execute(
            "UPDATE longshore.worker SET ended_at = ended_at - $1::interval",
            timedelta(seconds=seconds),
        )
        for table, columns in (
            ("message", ("at", "due_at")),
            ("receipt", ("at",)),
            ("turn", ("at",)),
            ("fair_key", ("noted_at",)),
        ):
            moved = ", ".join(f"{column} = {column} - $1::interval" for column in columns)
            await self.execute(f"UPDATE longshore.{table} SET {moved}", timedelta(seconds=seconds))
        await self._bring_timers_closer(seconds)

    async def _bring_timers_closer(self, seconds: float) -> None:
        """Timers are packed, so no statement can move them."""
        connection = await asyncpg.connect(self.url)
        try:
            rows = await connection.fetch("SELECT actor, n, timers FROM longshore.turn")
            micros = round(seconds * 1e6)
            moved = [(*which, timers_earlier(timers, micros)) for *which, timers in rows]
            await connection.executemany(
                "UPDATE longshore.turn SET timers = $3 WHERE actor = $1 AND n = $2", moved
            )
        finally:
            await connection.close()

    async def half_harvest(self, worker: UUID) -> None:
        await self.execute(
            "UPDATE longshore.worker SET alive = false, ended_at = now() WHERE id = $1", worker
        )

    async def force(self, job: UUID, state: JobState) -> None:
        await self.execute("UPDATE longshore.job SET state = $1 WHERE id = $2", CODES[state], job)

    async def force_unmet(self, job: UUID, unmet: int) -> None:
        await self.execute("UPDATE longshore.node SET unmet = $1 WHERE job = $2", unmet, job)

    async def force_open(self, job: UUID, open: int) -> None:
        await self.execute("UPDATE longshore.node SET open = $1 WHERE job = $2", open, job)

    async def logged(self) -> int:
        return await self._count("log")

    async def group_rows(self) -> int:
        tables = (*_OF_GROUPS, "group_reopening", "group_count", "job_number", "job")
        return sum([await self._count(table) for table in tables])

    async def _count(self, table: str) -> int:
        connection = await asyncpg.connect(self.url)
        try:
            count: int = await connection.fetchval(f"SELECT count(*) FROM longshore.{table}")
        finally:
            await connection.close()
        return count

    async def execute(self, sql: str, *values: object) -> None:
        connection = await asyncpg.connect(self.url)
        try:
            await connection.execute(sql, *values)
        finally:
            await connection.close()


_OF_GROUPS = ("job_group", "node", "edge", "unsettled", "group_retry", "group_run")
_OF_ACTORS = ("actor", "turn", "message", "receipt", "notice", "listed_field", "enqueued_send")

# Quicker than TRUNCATE, which makes new files, as long as there is little to delete.
_EMPTY_ALL = "; ".join(
    f"DELETE FROM longshore.{table}"
    for table in (
        "job",
        "job_number",
        *_OF_GROUPS,
        "group_reopening",
        *_OF_ACTORS,
        "group_count",
        "web_worker",
        "fair_key",
        "web_gateway",
        "blob",
        "manifest",
        "manifest_blob",
        "manifest_pin",
        "fileset",
        "fileset_version",
        "job_input",
        "file_place",
        "schedule",
        "fire",
        "bulk",
        "key_wait",
        "pause",
        "queue_wait",
        "log",
        "lane",
        "queue",
        "tally",
        "dispatcher",
        "heartbeat",
        "run_time",
        "peak",
        "log_part",
        "access_token",
        "audit",
        "limit_rule",
        "limit_key",
        "hold",
        "worker",
    )
)
