"""Connections to PostgreSQL: where to, how many, and what becomes of one that breaks.

A `ConnectionPool` is a handful of connections for one purpose. Work on it runs in a transaction of
its own. If anything goes wrong half-way, the pool drops the connection, and the next call makes a
new one. So no call ever sees what another call left behind. The session holds no state, so that a
pgbouncer in transaction mode may stand in between.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from copy import copy
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar
from uuid import UUID

import asyncpg

from longshore.errors import (
    ConfigError,
    InvalidInput,
    LongshoreError,
    SchemaMismatch,
    StoreUnavailable,
)
from longshore.model.access import AuditEntry
from longshore.model.group import GroupState
from longshore.store.access_rows import entry_texts
from longshore.store.postgres.address import EXAMPLE, Address, connect
from longshore.store.postgres.address import Connection as Connection
from longshore.store.postgres.sql import MARK
from longshore.store.postgres.states import CANCELLED, FAILED_CODES, GROUP_CODES

T = TypeVar("T")

TURNS: Final = 5

_BEGIN: Final = "BEGIN ISOLATION LEVEL READ COMMITTED, READ WRITE"
_SAVEPOINT: Final = "SAVEPOINT s; SET LOCAL lock_timeout = '50ms'"
_STATEMENTS: Final = {
    "default_transaction_isolation": "read committed",
    "default_transaction_read_only": "off",
}
"""What `_BEGIN` says, for statements outside of a transaction."""


if TYPE_CHECKING:
    _Driver = asyncpg.Connection[asyncpg.Record]
else:
    _Driver = asyncpg.Connection


class _Line(_Driver):
    """A connection that never asks the server to cancel what it is doing.

    A commit that is cancelled while it waits for a synchronous standby is visible all the same, but
    only on this server. So a caller that stops waiting drops the connection, and the commit ends by
    itself.
    """

    def _cancel_current_command(self, *_: object) -> None:
        """Where the driver would send the request."""


_HOLD_AGAIN: Final = f"""UPDATE longshore.job_group SET sweep_from = 0, sweep_again = true
WHERE state = {GROUP_CODES[GroupState.PAUSED]}"""


_NOTE_WATCHED: Final = """
INSERT INTO longshore.notice (subject, is_group, round, state, options, error, result)
SELECT id, false, round, state, options, error, result FROM longshore.job"""


_WRITE_ENTRY: Final = """
INSERT INTO longshore.audit (at, request, fingerprint, principal, action, subject, detail)
VALUES (now(), $1, $2, $3, $4, $5, $6) ON CONFLICT DO NOTHING
"""


class Transaction:
    """One verb between BEGIN and COMMIT. With `isolate_bad_items` it finds these one by one."""

    def __init__(self, connection: Connection, *, isolate_bad_items: bool = False) -> None:
        self.connection = connection
        self.isolate_bad_items = isolate_bad_items
        self._rests_on_found = False
        self._tally: Counter[tuple[int, int]] = Counter()
        self._written = 0
        """How many rows it has written to the tally."""
        self._ended: Counter[tuple[UUID, int]] = Counter()
        self._notes: list[tuple[UUID, bool]] = []
        self._woken: set[UUID] = set()
        self._watched: list[UUID] = []
        self.has_noted_groups = False
        """Whether a group ended that is watched."""

    async def fetch(self, sql: str, *values: object) -> list[asyncpg.Record]:
        """The rows a statement answers."""
        return await self.connection.fetch(sql, *values)

    def count(self, lane: int, before: int | None, after: int | None, by: int = 1) -> None:
        """Remembers for the tally that jobs changed their state, appeared or disappeared."""
        if before is not None:
            self._tally[lane, before] -= by
        if after is not None:
            self._tally[lane, after] += by

    def ended(self, group: UUID, job: UUID, state: int, *, settled: bool = False) -> None:
        """A job of a group ended. Unless it is `settled`, its dependents are to hear of it."""
        self._ended[group, state] += 1
        if not settled:
            self.note(job)

    def note(self, job: UUID, *, is_early: bool = False) -> None:
        """Others are to hear of this node of a group: that it ended, or of a failure in its scope.

        The latter is told before the node is closed, so it `is_early`.
        """
        self._notes.append((job, is_early))

    def watched_end(self, job: UUID) -> None:
        """A job ended that is watched. Its watchers are to hear of it."""
        self._watched.append(job)

    @property
    def has_watched_ends(self) -> bool:
        """Whether a job or a group ended that is watched."""
        return bool(self._watched) or self.has_noted_groups

    def woke(self, group: UUID) -> None:
        """A job of a group is to run again. If the group is paused, a sweep must hold the job."""
        self._woken.add(group)

    @asynccontextmanager
    async def savepoint(self) -> AsyncIterator[None]:
        """Undoes what fails within, and goes on. A statement within waits for no lock for long."""
        await self.connection.execute(_SAVEPOINT)
        try:
            yield
        except Exception:
            await self.connection.execute("ROLLBACK TO SAVEPOINT s")
            raise
        await self.connection.execute("RELEASE SAVEPOINT s")

    def rest_on_found(self) -> None:
        """Says that the answer rests on rows that another transaction wrote.

        Those rows may be on this server only: if a backend ends while its commit waits for a
        synchronous standby, the commit is visible all the same. A commit that writes nothing waits
        for no standby. So this one writes a mark, and then waits for the rows that it found too.
        """
        self._rests_on_found = True

    @property
    def tallied(self) -> int:
        """How many rows the tally grows by."""
        return self._written + sum(1 for delta in self._tally.values() if delta)

    async def write_tally(self) -> None:
        """Writes what was counted so far, for a statement that reads the tally."""
        written = [(lane, state, delta) for (lane, state), delta in self._tally.items() if delta]
        for text in _insert("tally (lane, state, delta)", written):
            await self.connection.execute(text)
        self._written += len(written)
        self._tally.clear()

    def ending(self) -> str:
        """The last message of the transaction: the counts travel with the commit."""
        changes = [(lane, state, delta) for (lane, state), delta in self._tally.items() if delta]
        notes = self._notes
        writes = [
            *_insert("tally (lane, state, delta)", changes),
            *_insert("group_count (group_id, ended, failed, cancelled)", self._group_counts()),
            *_insert("unsettled (job, is_early)", [(f"'{job}'", early) for job, early in notes]),
        ]
        if self._watched:
            jobs = ", ".join(f"'{job}'" for job in self._watched)
            writes.append(f"{_NOTE_WATCHED} WHERE id IN ({jobs})")
        if self._woken:
            groups = ", ".join(f"'{group}'" for group in sorted(self._woken))
            writes.append(f"{_HOLD_AGAIN} AND id IN ({groups})")
        if not writes and self._rests_on_found:
            writes = [MARK]
        return "; ".join([*writes, "COMMIT"])

    def _group_counts(self) -> list[tuple[object, ...]]:
        groups = dict.fromkeys(group for group, _ in self._ended)
        counts: list[tuple[object, ...]] = []
        for group in groups:
            states = {state: n for (one, state), n in self._ended.items() if one == group}
            failed = sum(n for state, n in states.items() if state in FAILED_CODES)
            counts.append((f"'{group}'", sum(states.values()), failed, states.get(CANCELLED, 0)))
        return counts


def _insert(table: str, rows: Sequence[tuple[object, ...]]) -> list[str]:
    """SQL that inserts these rows of numbers and quoted ids; none if there are no rows."""
    values = ", ".join(f"({', '.join(map(str, row))})" for row in rows)
    return [f"INSERT INTO longshore.{table} VALUES {values}"] if rows else []


class Again(Exception):
    """Makes the pool repeat a transaction: what it rests on has just changed."""


Work: TypeAlias = Callable[[Transaction], Awaitable[T]]

DATA_ERRORS: Final = (
    asyncpg.DataError,
    asyncpg.ProgramLimitExceededError,
    asyncpg.CheckViolationError,
    asyncpg.NotNullViolationError,
    UnicodeEncodeError,
    OverflowError,
)
"""Errors of items that the database cannot store; see also `is_data_error`."""

_REPEATED: Final = (
    asyncpg.TransactionRollbackError,
    asyncpg.UniqueViolationError,
    asyncpg.InvalidCachedStatementError,
    asyncpg.OutdatedSchemaCacheError,
    Again,
)
"""Errors that another transaction caused at the same moment: a repeat may succeed."""

_AWAY: Final = (
    asyncpg.PostgresConnectionError,
    asyncpg.OperatorInterventionError,
    asyncpg.InsufficientResourcesError,
    asyncpg.ObjectNotInPrerequisiteStateError,
    asyncpg.ReadOnlySQLTransactionError,
    asyncpg.IdleInTransactionSessionTimeoutError,
    asyncpg.PostgresSystemError,
    asyncpg.InternalClientError,
    asyncpg.InterfaceError,
    OSError,
    TimeoutError,
)


_SERVER_GONE: Final = (
    asyncpg.PostgresConnectionError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.CannotConnectNowError,
    asyncpg.ReadOnlySQLTransactionError,
    OSError,
)
"""Errors after which other connections to that server are likely of no use either."""


def is_data_error(error: Exception) -> bool:
    """Whether a value was refused, by the database or already by the driver's encoder."""
    refused_by_encoder = isinstance(error, asyncpg.InterfaceError) and isinstance(error, ValueError)
    return refused_by_encoder or isinstance(error, DATA_ERRORS)


def is_held(error: Exception) -> bool:
    """Whether a statement gave up waiting for a lock of another transaction."""
    return isinstance(error, asyncpg.LockNotAvailableError)


class ConnectionPool:
    """At most `most` connections to one database, for one purpose.

    A `bare` pool only reads, one statement at a time. A statement waits for a lock of another
    transaction for `lock_s`; without it, for `timeout_s`.
    """

    def __init__(
        self,
        address: Address,
        *,
        most: int,
        timeout_s: float,
        connect_s: float | None = None,
        settings: Mapping[str, str] | None = None,
        bare: bool = False,
        lock_s: float | None = None,
    ) -> None:
        milliseconds = _milliseconds(timeout_s)
        self._address = address
        self._timeout_s = timeout_s
        self._connect_s = timeout_s if connect_s is None else connect_s
        self._settings = {
            **(settings or {}),
            "statement_timeout": milliseconds,
            "idle_in_transaction_session_timeout": milliseconds,
            "lock_timeout": milliseconds if lock_s is None else _milliseconds(lock_s),
        }
        self._begin = _begin(address, self._settings)
        self._settings |= _STATEMENTS
        # Without prepared statements parse and execute are two messages, which only a transaction
        # keeps on one connection of the server; with them, a read needs none.
        self._bare = bare and address.prepared
        self._most = most
        self._room = asyncio.Semaphore(most)
        self._idle: list[Connection] = []
        self._entry: AuditEntry | None = None
        self._closed = False

    async def run(self, work: Work[T], first: str = "") -> T:
        """Runs `work` in one transaction; answers what it answers.

        What `first` says, a statement or several, is sent with the message that begins it.

        The pool repeats it if another transaction got in its way. It repeats it once with
        `isolate_bad_items` if an item cannot be stored, or if a transaction that does not end
        holds it.
        """
        isolate_bad_items = False
        for turn in range(TURNS):
            try:
                return await self._attempt(work, isolate_bad_items, first)
            except _REPEATED:
                await asyncio.sleep(random.random() * 0.02 * turn)
            except Exception as error:
                if not (is_data_error(error) or (is_held(error) and not isolate_bad_items)):
                    raise _translated(error, self._address) from error
                if isolate_bad_items:
                    raise InvalidInput(
                        f"{self._address.name} cannot store this: {error}"
                    ) from error
                isolate_bad_items = True
        raise StoreUnavailable(
            f"{self._address.name}: other transactions got in the way {TURNS} times; try again"
        )

    async def fetch(self, sql: str, *values: object) -> list[asyncpg.Record]:
        """The rows of one statement, run as `run` runs work."""
        return await self.run(lambda tx: tx.fetch(sql, *values))

    async def alone(self, sql: str, *values: object) -> list[asyncpg.Record] | None:
        """The rows of a statement that is a transaction of its own; None if `run` must do it.

        That is so where sessions are shared, and after an error that `run` would handle.
        """
        return await self._fetched_alone(lambda line: line.fetch(sql, *values))

    async def _fetched_alone(
        self, fetch: Callable[[Connection], Awaitable[list[asyncpg.Record]]]
    ) -> list[asyncpg.Record] | None:
        if not self._address.prepared:
            return None
        try:
            async with self._connection() as connection:
                return await fetch(connection)
        except _REPEATED:
            return None
        except Exception as error:
            if is_data_error(error) or is_held(error):
                return None
            raise _translated(error, self._address) from error

    async def locked(
        self, sql: str, locks: Sequence[object], values: Sequence[object]
    ) -> list[asyncpg.Record] | None:
        """The rows of a statement that is sent twice, as one transaction; None if `run` must do it.

        With `locks` it only locks. With `values` it then sees what those left that held the locks
        before. Both travel to the server at once, and the commit with them.
        """
        return await self._fetched_alone(lambda line: line.fetchmany(sql, [locks, values]))

    async def execute(self, sql: str) -> None:
        """Sends one message of statements that answer nothing."""
        try:
            async with self._connection() as connection:
                await connection.execute(sql)
        except Exception as error:
            raise _translated(error, self._address) from error

    def audited(self, entry: AuditEntry) -> ConnectionPool:
        """This pool, of which each transaction leaves an entry of the audit."""
        pool = copy(self)
        pool._entry = entry
        return pool

    async def _attempt(self, work: Work[T], isolate_bad_items: bool, first: str) -> T:
        async with self._connection() as connection:
            transaction = Transaction(connection, isolate_bad_items=isolate_bad_items)
            if self._bare:
                return await work(transaction)
            await connection.execute(f"{self._begin}; {first}" if first else self._begin)
            answer = await work(transaction)
            if (entry := self._entry) is not None:
                key = (entry.request, entry.fingerprint)
                await transaction.fetch(_WRITE_ENTRY, *key, *entry_texts(entry))
            await connection.execute(transaction.ending())
            return answer

    @asynccontextmanager
    async def _connection(self) -> AsyncIterator[Connection]:
        """A connection for one caller. The pool keeps it only if all went well."""
        async with asyncio.timeout(self._timeout_s) as limit, self._room:
            if self._closed:
                raise StoreUnavailable(f"{self._address.name}: this store is closed")
            connection = self._idle_one() or await self.connect()
            try:
                yield connection
            except BaseException as error:
                connection.terminate()
                if limit.expired() or isinstance(error, _SERVER_GONE):
                    self._forget_idle()
                raise
            self._idle.append(connection)

    def _idle_one(self) -> Connection | None:
        """An idle connection that the server has not closed meanwhile."""
        while self._idle:
            connection = self._idle.pop()
            if not connection.is_closed():
                return connection
        return None

    def _forget_idle(self) -> None:
        """Drops what leads to a server that does not answer, or may not write any more."""
        for connection in self._idle:
            connection.terminate()
        self._idle.clear()

    async def connect(self) -> Connection:
        """A new connection with this pool's settings."""
        prepared = self._address.prepared
        try:
            return await connect(
                self._address,
                timeout_s=self._connect_s,
                statement_cache_size=100 if prepared else 0,
                max_cached_statement_lifetime=0,
                max_cacheable_statement_size=0,
                server_settings=self._settings if prepared else None,
                connection_class=_Line,
            )
        except ValueError as error:
            message = f"{self._address.name} cannot be connected to: {error}; give {EXAMPLE}"
            raise ConfigError(message) from error

    async def close(self) -> None:
        """Waits for what is under way, then lets go of every connection."""
        self._closed = True
        for _ in range(self._most):
            await self._room.acquire()
        idle, self._idle = self._idle, []
        for connection in idle:
            with suppress(Exception):
                await connection.close(timeout=self._timeout_s)
        for _ in range(self._most):
            self._room.release()


def _milliseconds(seconds: float) -> str:
    return str(max(1, round(seconds * 1000)))


def _begin(address: Address, settings: Mapping[str, str]) -> str:
    """The first message of a transaction; where sessions are shared, it brings the settings."""
    if address.prepared:
        return _BEGIN
    locals = [f"SET LOCAL {name} = {value}" for name, value in settings.items()]
    return "; ".join([_BEGIN, *locals])


def _translated(error: Exception, address: Address) -> LongshoreError:
    """A driver's or a server's error as one of ours, which says what to do."""
    where = address.name
    match error:
        case LongshoreError():
            return error
        case asyncpg.InvalidCatalogNameError():
            return ConfigError(f"{where}: there is no such database; create it, or correct the URL")
        case asyncpg.InvalidAuthorizationSpecificationError():
            return ConfigError(f"{where} refuses the user or password in the URL: {error}")
        case asyncpg.ProtocolViolationError() if "startup parameter" in str(error):
            return ConfigError(
                f"{where} seems to be a pgbouncer: add ?prepared=off to its URL, and give the "
                "server's own address as listen_url"
            )
        case asyncpg.InvalidSchemaNameError() | asyncpg.UndefinedTableError():
            return SchemaMismatch(
                f"{where} holds no Longshore schema; run `longshore migrate` first"
            )
        case asyncpg.InsufficientPrivilegeError():
            return ConfigError(f"{where}: the user of the URL may not do this: {error}")
        case asyncpg.CantChangeRuntimeParamError() | asyncpg.UndefinedObjectError():
            return ConfigError(f"{where} does not know something in its URL: {error}")
        case _ if isinstance(error, _AWAY):
            why = str(error) or type(error).__name__
            return StoreUnavailable(
                f"{where} does not answer: {why}; check that it runs and can be reached"
            )
        case _:
            return LongshoreError(f"{where} answered what was not expected: {error!r}")
