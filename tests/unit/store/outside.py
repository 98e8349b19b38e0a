"""PostgreSQL past any store: what another program, or an administrator, might do to it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

import asyncpg

from longshore.store.postgres.connections import Connection
from longshore.testing.servers import HOST

HOLD: Final = "SELECT FROM longshore.job WHERE id = $1 FOR UPDATE"

_WAITING: Final = "SELECT count(*) FROM pg_locks WHERE NOT granted"
_END_OTHERS: Final = """
SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid()
"""
_CANCEL_REQUEST: Final = (80877102).to_bytes(4, "big")
_FOR_STANDBY: Final = "FROM pg_stat_activity WHERE wait_event = 'SyncRep'"


async def execute(url: str, sql: str) -> None:
    """Runs statements on a connection of their own."""
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(sql)
    finally:
        await connection.close()


async def until_waiting(connection: Connection, number: int) -> None:
    """Returns once exactly so many transactions wait for a lock."""
    while await connection.fetchval(_WAITING) != number:
        pass


async def end_others(connection: Connection) -> None:
    """Every other connection to this database is cut, and the server has let go of it."""
    await connection.execute(_END_OTHERS)


async def until_waiting_for_standby(url: str, call: asyncio.Future[Any]) -> None:
    """Returns once a commit waits for the standby; the call must not have ended before."""
    connection = await asyncpg.connect(url)
    try:
        while not await connection.fetchval(f"SELECT count(*) {_FOR_STANDBY}"):
            assert not call.done(), f"it did not wait for the standby: {call}"
    finally:
        await connection.close()


async def end_waiting_for_standby(url: str) -> None:
    """Every backend whose commit waits for the standby is ended."""
    await execute(url, f"SELECT pg_terminate_backend(pid, 10000) {_FOR_STANDBY}")


class Tap:
    """Stands between a client and a server, and counts the requests to cancel that pass."""

    def __init__(self, server_port: int) -> None:
        self.cancels = 0
        self.port = 0
        self._server_port = server_port

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[Tap]:
        """It lets everything through until the block ends."""
        listener = await asyncio.start_server(self._carry, HOST, 0)
        self.port = listener.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            listener.close()

    async def _carry(self, client: asyncio.StreamReader, answers: asyncio.StreamWriter) -> None:
        server, requests = await asyncio.open_connection(HOST, self._server_port)
        with suppress(asyncio.IncompleteReadError, OSError):
            # A connection begins with a length and a code; a request to cancel is all it says.
            opening = await client.readexactly(8)
            self.cancels += opening[4:] == _CANCEL_REQUEST
            requests.write(opening)
            await asyncio.gather(_copy(client, requests), _copy(server, answers))


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while chunk := await reader.read(65_536):
            writer.write(chunk)
    writer.close()
