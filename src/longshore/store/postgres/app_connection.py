"""Connections that the application lends to Longshore, of whatever driver it uses.

No driver is imported here. The class of a connection says which driver it is of, so that only the
application's own driver must be installed.

The code is written once, for drivers that are awaited. `talk` runs it for drivers that block: as
nothing in it then waits, its first step is its last.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Generator, Sequence
from functools import lru_cache
from inspect import isawaitable
from typing import Any, Final, TypeVar
from uuid import UUID

from longshore.errors import ConfigError, InvalidInput, LongshoreError, SchemaMismatch, WouldBlock
from longshore.store.postgres.enqueue import Ask, Rows

T = TypeVar("T")
Conversation = Generator[Ask, Rows, T]
Fetch = Callable[[Ask], Awaitable[Rows]]

KNOWN_DRIVERS: Final = (
    "a connection of asyncpg, of psycopg 3, or of SQLAlchemy over one of these or psycopg2 "
    "(Connection, AsyncConnection, Session or AsyncSession)"
)
_CONNECTIONS: Final = {
    "asyncpg": {"Connection", "PoolConnectionProxy"},
    "psycopg": {"Connection", "AsyncConnection"},
    "sqlalchemy": {
        "Connection",
        "Session",
        "scoped_session",
        "AsyncConnection",
        "AsyncSession",
        "async_scoped_session",
    },
}
_SCHEMA_MISSING: Final = frozenset({"3F000", "42P01", "42703"})
_NOT_ALLOWED: Final = "42501"
_ABORTED: Final = "25P02"
_READ_ONLY: Final = "25006"
_DIALECTS: Final = frozenset({"asyncpg", "psycopg", "psycopg_async", "psycopg2"})
_PLACE: Final = re.compile(r"\$(\d+)")


def talk(connection: Any, conversation: Conversation[T]) -> T:
    """Holds the conversation over a connection that blocks."""
    try:
        _talk(connection, conversation, in_loop=False).send(None)
    except StopIteration as end:
        answers: T = end.value
        return answers
    raise AssertionError(f"{type(connection).__name__} blocks, and was awaited all the same")


async def talk_async(connection: Any, conversation: Conversation[T]) -> T:
    """Holds the conversation over a connection that is awaited."""
    return await _talk(connection, conversation, in_loop=True)


async def _talk(connection: Any, conversation: Conversation[T], *, in_loop: bool) -> T:
    fetch = await _fetching(connection, in_loop)
    try:
        ask = next(conversation)
        while True:
            ask = conversation.send(await _fetched(fetch, ask))
    except StopIteration as end:
        answers: T = end.value
        return answers


async def _fetched(fetch: Fetch, ask: Ask) -> Rows:
    try:
        return await fetch(ask)
    except Exception as error:
        raise _explained(error) from error


async def _fetching(connection: Any, in_loop: bool) -> Fetch:
    library, name, is_async = _origin(connection)
    if is_async and not in_loop:
        raise WouldBlock(
            f"{name} is a connection for an event loop; await enqueue_async(…), or another "
            "method with _async at its end, instead"
        )
    if in_loop and not is_async:
        raise WouldBlock(
            f"{name} is a connection that blocks, and would stop the event loop; call enqueue(…), "
            "or another method without _async at its end, instead, from a thread"
        )
    if library == "asyncpg":
        return _asyncpg(connection)
    if library == "psycopg":
        return _psycopg(connection, is_async)
    # A session of SQLAlchemy has a connection, or takes one.
    if not hasattr(connection, "exec_driver_sql"):
        connection = await _result(connection.connection())
    return _sqlalchemy(connection, name)


# which driver it is


def _origin(connection: object) -> tuple[str, str, bool]:
    """The library of a connection, the name of its class, and whether it is awaited."""
    kind = type(connection)
    name = f"{kind.__module__.partition('.')[0]}.{kind.__name__}"
    for parent in kind.__mro__:
        library = parent.__module__.partition(".")[0]
        if library in _CONNECTIONS and parent.__name__ in _CONNECTIONS[library]:
            is_async = library == "asyncpg" or parent.__name__.lower().startswith("async")
            return library, name, is_async
    raise _unsupported(name)


def _unsupported(name: str) -> InvalidInput:
    if name.endswith("Engine"):
        return InvalidInput(
            f"{name} is not a connection; give the one you work with, as in `with engine.begin() "
            "as connection`"
        )
    if name.endswith("Pool"):
        return InvalidInput(
            f"{name} is not a connection; give the one you work with, taken from the pool"
        )
    return InvalidInput(f"a job cannot be enqueued through {name}; give {KNOWN_DRIVERS}")


# how each is spoken with


async def _result(call: Any) -> Any:
    """What a call to a driver answers, whether it blocks or is awaited."""
    return await call if isawaitable(call) else call


def _asyncpg(connection: Any) -> Fetch:
    async def fetch(ask: Ask) -> Rows:
        rows: Rows = await connection.fetch(ask.sql, *ask.values)
        return rows

    return fetch


def _psycopg(connection: Any, is_async: bool) -> Fetch:
    # Not `connection.cursor()`: the application may have set what cursors and rows are.
    from psycopg import AsyncCursor, Cursor
    from psycopg.rows import tuple_row

    make: Any = AsyncCursor if is_async else Cursor

    async def fetch(ask: Ask) -> Rows:
        cursor = make(connection, row_factory=tuple_row)
        try:
            await _result(cursor.execute(_formatted(ask.sql), _named(ask.values)))
            rows: Rows = await _result(cursor.fetchall())
            return rows
        finally:
            await _result(cursor.close())

    return fetch


def _sqlalchemy(connection: Any, name: str) -> Fetch:
    adapted = _adapting(connection.dialect, name)

    async def fetch(ask: Ask) -> Rows:
        rows: Rows = (await _result(connection.exec_driver_sql(*adapted(ask)))).fetchall()
        return rows

    return fetch


def _adapting(dialect: Any, name: str) -> Callable[[Ask], tuple[str, Any]]:
    """How statements are given to the driver beneath SQLAlchemy."""
    if dialect.name != "postgresql":
        raise InvalidInput(
            f"this {name} is of a {dialect.name} database; a job can be enqueued only in the "
            "PostgreSQL database that is Longshore's store"
        )
    if dialect.driver not in _DIALECTS:
        raise InvalidInput(
            f"this {name} uses the driver {dialect.driver}; a job can be enqueued through "
            f"{KNOWN_DRIVERS}"
        )
    if dialect.driver == "asyncpg":
        return lambda ask: (ask.sql, tuple(ask.values))
    return lambda ask: (_formatted(ask.sql), _named(ask.values))


@lru_cache(maxsize=16)
def _formatted(sql: str) -> str:
    """A statement with its parameters by name, as psycopg wants them."""
    return _PLACE.sub(r"%(p\1)s", sql.replace("%", "%%"))


def _named(values: Sequence[Any]) -> dict[str, Any]:
    return {f"p{place}": _plain(value) for place, value in enumerate(values, start=1)}


def _plain(value: Any) -> Any:
    """A list with numbers of one type, and with ids as text: drivers need no adapter for these."""
    if not isinstance(value, list):
        return value
    if any(isinstance(item, float) for item in value):
        return [None if item is None else float(item) for item in value]
    return [str(item) if isinstance(item, UUID) else item for item in value]


# what can go wrong


def _explained(error: Exception) -> Exception:
    """The driver's error, or one that says what to do if the cause is known."""
    match _sqlstate(error):
        case state if state in _SCHEMA_MISSING:
            return SchemaMismatch(
                f"this database has no Longshore schema that this version knows ({_said(error)}); "
                "connect to the database that is Longshore's store, or run `longshore migrate` on "
                "it, and roll this transaction back"
            )
        case state if state == _NOT_ALLOWED:
            return ConfigError(
                f"this connection's user may not enqueue jobs ({_said(error)}); "
                "docs/transactions.md says what to grant"
            )
        case state if state == _ABORTED:
            return LongshoreError(
                "an earlier statement of this transaction failed, so that nothing can be enqueued "
                "in it; roll it back"
            )
        case state if state == _READ_ONLY:
            return ConfigError("this transaction only reads; enqueue in one that may write")
        case _:
            return error


def _sqlstate(error: BaseException | None) -> str | None:
    """The five letters by which PostgreSQL names an error, however deep a driver has put it."""
    for found in (error, getattr(error, "orig", None), getattr(error, "__cause__", None)):
        state = getattr(found, "sqlstate", None) or getattr(found, "pgcode", None)
        if isinstance(state, str):
            return state
    return None


def _said(error: Exception) -> str:
    return str(getattr(error, "orig", None) or error).strip().splitlines()[0]
