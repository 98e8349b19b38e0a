"""What a simulated cluster stands on: the model in memory, or a real SQLite file run inline.

The checks read a store's rows past its verbs: they are not to trust what they check.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable
from datetime import datetime
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, Protocol
from uuid import UUID

from longshore.model.group import GroupState
from longshore.model.job import JobState
from longshore.model.web_worker import ENDED_WEB_STATES
from longshore.ports import Store
from longshore.store.actor_rows import unpack_timers
from longshore.store.sqlite.runner import InlineRunner
from longshore.store.sqlite.store import SqliteStore
from longshore.testing.memory import MemoryStore
from longshore.testing.simulation.database import at_once
from longshore.testing.simulation.snapshots import (
    ActorShot,
    MailShot,
    Snapshot,
    WebShot,
    shot_of,
    shot_of_actor,
)

Utc = Callable[[], datetime]
Key = tuple[str, str | None]
"""A job's kind and its unique key, if it has one."""


class Stores(Protocol):
    """One database, the ways to open it, and its rows as they are."""

    def open(self) -> Store:
        """The store as one more process has it."""

    def shots(self) -> dict[UUID, Snapshot]:
        """Every job there is."""

    def key_of(self, job: UUID) -> Key:
        """A job's kind and unique key, which never change."""

    def groups(self) -> dict[UUID, GroupState]:
        """Every group there is."""

    def actors(self) -> dict[UUID, ActorShot]:
        """Every actor there is."""

    def web(self) -> dict[UUID, WebShot]:
        """Every registration of a web worker."""

    def new_logs(self) -> Iterable[tuple[UUID, int]]:
        """The jobs and tokens of log entries that were not there the last time."""

    def close(self) -> None:
        """Nothing is left of it."""


class ModelStores:
    """The model in memory, one for all."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store
        self._logs = 0

    def open(self) -> Store:
        return self._store

    def shots(self) -> dict[UUID, Snapshot]:
        return {job: shot_of(row) for job, row in self._store._jobs.items()}

    def key_of(self, job: UUID) -> Key:
        submission = self._store._jobs[job].submission
        return submission.kind, submission.unique_key

    def groups(self) -> dict[UUID, GroupState]:
        return {id: row.state for id, row in self._store._groups.items()}

    def actors(self) -> dict[UUID, ActorShot]:
        return {row.id: shot_of_actor(row) for row in self._store._actors.values()}

    def web(self) -> dict[UUID, WebShot]:
        return {
            id: WebShot(row.worker, row.gateway, row.adoptions, row.state in ENDED_WEB_STATES)
            for id, row in self._store._web.items()
        }

    def new_logs(self) -> Iterable[tuple[UUID, int]]:
        logs = self._store._logs
        before, self._logs = self._logs, len(logs)
        return [(job, token) for job, token, _ in islice(logs, before, None)]

    def close(self) -> None:
        """It was memory only."""


_MEMORY: Final = Path("/dev/shm")
_SHOTS: Final = (
    "SELECT id, state, token, worker, session, round, attempt, failures, crashes, result "
    "FROM job ORDER BY number"
)
_ACTORS: Final = (
    "SELECT number, id, type, key, status, turn.n, state, starts, timers FROM actor "
    "JOIN turn ON turn.actor = actor.number "
    "AND turn.n = (SELECT max(n) FROM turn WHERE turn.actor = actor.number) ORDER BY number"
)
_MAIL: Final = "SELECT number, id, name, due_at FROM message WHERE actor = ? ORDER BY number"
_KEY: Final = "SELECT kind, unique_key FROM job WHERE id = ?"
_WEB: Final = (
    "SELECT id, worker, gateway, adoptions, ended_at IS NOT NULL FROM web_worker ORDER BY number"
)
_LOGS: Final = (
    "SELECT job.id, log.token, log.seq FROM log JOIN job ON job.number = log.job "
    "ORDER BY log.job, log.token, log.seq"
)


class SqliteStores:
    """A SQLite file that every process opens for itself. What is asked is done at once."""

    def __init__(self, utc: Utc) -> None:
        self._utc = utc
        # In memory where that is possible: nobody is to wait for a disk.
        self._folder = TemporaryDirectory(dir=_MEMORY if _MEMORY.is_dir() else None)
        self._path = Path(self._folder.name) / "store.db"
        self._opened: list[SqliteStore] = []
        self._seen_logs: set[tuple[bytes, int, int]] = set()
        at_once(SqliteStore(self._path, runner=InlineRunner()).migrate())
        self._reader = sqlite3.connect(self._path, isolation_level=None)
        # A seed is one run: no secret of this one may differ from that of another.
        self._reader.execute("UPDATE secret SET value = zeroblob(32)")

    def open(self) -> Store:
        store = SqliteStore(self._path, runner=InlineRunner(), utc=self._utc)
        at_once(store.open())
        self._opened.append(store)
        return store

    def shots(self) -> dict[UUID, Snapshot]:
        return {
            UUID(bytes=id): Snapshot(
                JobState(state), token, worker and UUID(bytes=worker), session or 0, *rest
            )
            for id, state, token, worker, session, *rest in self._reader.execute(_SHOTS)
        }

    def key_of(self, job: UUID) -> Key:
        kind, key = self._reader.execute(_KEY, [job.bytes]).fetchone()
        return kind, key

    def groups(self) -> dict[UUID, GroupState]:
        rows = self._reader.execute("SELECT id, state FROM job_group ORDER BY number")
        return {UUID(bytes=id): GroupState(state) for id, state in rows}

    def actors(self) -> dict[UUID, ActorShot]:
        return {
            UUID(bytes=id): ActorShot(
                type,
                key,
                status == "paused",
                status == "stopping",
                turn,
                state,
                bool(starts),
                unpack_timers(timers),
                self._mail(number),
            )
            for number, id, type, key, status, turn, state, starts, timers in self._reader.execute(
                _ACTORS
            )
        }

    def _mail(self, actor: int) -> tuple[MailShot, ...]:
        rows = self._reader.execute(_MAIL, [actor])
        return tuple(MailShot(number, UUID(bytes=id), *rest) for number, id, *rest in rows)

    def web(self) -> dict[UUID, WebShot]:
        return {
            UUID(bytes=id): WebShot(
                UUID(bytes=worker), gateway and UUID(bytes=gateway), adoptions, bool(has_ended)
            )
            for id, worker, gateway, adoptions, has_ended in self._reader.execute(_WEB)
        }

    def new_logs(self) -> Iterable[tuple[UUID, int]]:
        logs = self._reader.execute(_LOGS).fetchall()
        fresh = [entry for entry in logs if entry not in self._seen_logs]
        self._seen_logs.update(fresh)
        return [(UUID(bytes=job), token) for job, token, _ in fresh]

    def close(self) -> None:
        self._reader.close()
        for store in self._opened:
            at_once(store.close())
        self._folder.cleanup()
