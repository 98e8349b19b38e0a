"""What a job cannot do without: one commit, and two ZeroMQ hops, measured alone.

Client to dispatcher and dispatcher to worker are two hops; to another process and back are two as
well. Each sample is one round trip through our own links, then one commit, as idle as a job's.
"""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import asyncpg
import uvloop
import zmq
from msgspec import Struct

from bench.helper import Helper
from bench.percentiles import Times, pooled, times_of
from longshore.links.zeromq import Dealer

DATA = b"x" * 100
WARM_UP = 20


class Hops(Struct, frozen=True):
    """One commit, one round trip, and both one after the other."""

    commit: Times
    round_trip: Times
    both: Times

    @staticmethod
    def pooled(slices: Sequence[Hops]) -> Hops:
        """All samples of several as one."""
        return Hops(
            pooled([part.commit for part in slices]),
            pooled([part.round_trip for part in slices]),
            pooled([part.both for part in slices]),
        )


class Echo:
    """A peer in another process that sends everything back."""

    def __init__(self, address: str) -> None:
        self._answered = asyncio.Event()
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._link = Dealer(self._context, address, self._heard)

    def _heard(self, messages: object) -> None:
        self._answered.set()

    async def ask(self) -> None:
        """There and back."""
        self._answered.clear()
        self._link.send(b"", [b"", b"PING", DATA])
        await self._answered.wait()

    def close(self) -> None:
        """Lets go of the socket."""
        self._link.close()
        self._context.term()


def measure_hops(url: str, samples: int, pause_s: float) -> Hops:
    """Samples of both on this store, which gets a table for them."""
    with Helper("echo") as echo:
        address = echo.answer()
        return uvloop.run(_sample(url, address, samples, pause_s))


async def _sample(url: str, address: str, samples: int, pause_s: float) -> Hops:
    echo = Echo(address)
    commit = _sqlite(url) if url.startswith("sqlite") else await _postgres(url)
    trips, commits = [], []
    for _ in range(samples + WARM_UP):
        await asyncio.sleep(pause_s)
        began = time.perf_counter()
        await echo.ask()
        between = time.perf_counter()
        await commit()
        trips.append((between - began) * 1e3)
        commits.append((time.perf_counter() - between) * 1e3)
    echo.close()
    trips, commits = trips[WARM_UP:], commits[WARM_UP:]
    both = [trip + commit_ms for trip, commit_ms in zip(trips, commits, strict=True)]
    return Hops(times_of(commits), times_of(trips), times_of(both))


async def _postgres(url: str) -> Callable[[], Awaitable[object]]:
    connection = await asyncpg.connect(url)
    await connection.execute("CREATE TABLE IF NOT EXISTS probe (data bytea)")
    insert = await connection.prepare("INSERT INTO probe VALUES ($1)")
    return lambda: insert.fetch(DATA)


def _sqlite(url: str) -> Callable[[], Awaitable[object]]:
    path = Path(url.removeprefix("sqlite:///"))
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("CREATE TABLE IF NOT EXISTS probe (data BLOB)")

    async def commit() -> None:
        connection.execute("INSERT INTO probe VALUES (?)", (DATA,))

    return commit
