"""The PostgreSQL cluster of a run: its members as parts to be broken, and a probe that times it."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress

import asyncpg

from longshore.testing.chaos.history import StoreAway, Writer
from longshore.testing.chaos.parts import signal_all
from longshore.testing.patroni import Member, PatroniCluster
from longshore.testing.servers import HOST

LEASE_S = 45.0
"""Longer than a cluster takes whose primary is frozen."""
EVERY_S = 40.0
"""From one fault to the next: a failover, and a while in which all is well."""
LONGEST_S = 30.0
PROBE_S = 0.2
PATIENCE_S = 1.0
AWAY_S = 0.5
"""A shorter time without a commit is none."""
FOUND_S = 60.0


class Role:
    """A place in the cluster that one of its members has: who, is asked when it is struck."""

    sort = "cluster"
    ended_by_itself = None
    is_running = True

    def __init__(self, name: str, cluster: PatroniCluster) -> None:
        self.name = self.label = name
        self._cluster = cluster

    def holder(self) -> MemberPart:
        """Who has this role; waits until one has."""
        deadline = time.monotonic() + FOUND_S
        while True:
            cluster = self._cluster
            found = cluster.primary() if self.name == "primary" else cluster.standby()
            if found is not None:
                return MemberPart(found, cluster)
            if time.monotonic() > deadline:
                return MemberPart(cluster.members[0], cluster)
            time.sleep(PROBE_S)


class MemberPart:
    """One member, as a part to be broken."""

    sort = "cluster"
    ended_by_itself = None

    def __init__(self, member: Member, cluster: PatroniCluster) -> None:
        self.name = self.label = member.name
        self._member = member
        self._cluster = cluster

    def start(self) -> None:
        """Its Patroni runs."""
        self._member.start()

    @property
    def is_running(self) -> bool:
        """Whether its Patroni does."""
        return self._member.patroni.pid is not None

    def pids(self, *, children: bool) -> list[int]:
        """Those of Patroni and of PostgreSQL, which is no child of it."""
        return self._member.pids()

    def kill(self) -> None:
        """kill -9 of both."""
        self._member.kill()

    def kill_server(self) -> None:
        """kill -9 of PostgreSQL alone."""
        self._member.kill_server()

    def leave(self) -> None:
        """As `kill`: a member that leaves in good order is a switchover."""
        self._member.kill()

    def close(self) -> None:
        """It is down."""
        self._member.close()

    def switch_over(self) -> None:
        """The synchronous standby takes over."""
        self._cluster.switch_over()

    def strand(self) -> Callable[[], None]:
        """Commits wait for the frozen standby, their backends end, and this member dies.

        What those wrote is on this member alone. Nobody was told of it. Answers what wakes the
        standby, which takes over, and starts this member again.
        """
        standby = self._cluster.standby()
        frozen = standby.pids() if standby is not None else []
        signal_all(frozen, signal.SIGSTOP)
        _end_those_that_wait(self._member.port)
        self._member.kill()

        def undo() -> None:
            signal_all(reversed(frozen), signal.SIGCONT)
            self._member.start()

        return undo


def _end_those_that_wait(port: int) -> None:
    url = f"postgresql://postgres@{HOST}:{port}/postgres?sslmode=disable"
    with suppress(OSError, subprocess.SubprocessError):
        subprocess.run(
            [sys.executable, "-c", _END_WAITING, url], timeout=8, check=False, capture_output=True
        )


_END_WAITING = """
import asyncio, sys, asyncpg
async def main():
    connection = await asyncpg.connect(sys.argv[1], timeout=3)
    async with asyncio.timeout(4):
        while not await connection.fetch(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
        ):
            await asyncio.sleep(0.05)
asyncio.run(main())
"""


class Probe:
    """Commits on each member again and again, and notes when none of them could."""

    def __init__(self, cluster: PatroniCluster, writer: Writer) -> None:
        self._ports = [member.port for member in cluster.members]
        self._writer = writer
        self._last = time.monotonic()

    async def run(self) -> None:
        """Probes until it is cancelled."""
        self._last = time.monotonic()
        await asyncio.gather(*(self._member(port) for port in self._ports))

    async def _member(self, port: int) -> None:
        while True:
            with suppress(OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError):
                await self._visit(port)
            await asyncio.sleep(PROBE_S)

    async def _visit(self, port: int) -> None:
        """Commits on one member for as long as that works."""
        url = f"postgresql://postgres@{HOST}:{port}/postgres?sslmode=disable"
        connection = await asyncpg.connect(url, timeout=PATIENCE_S)
        try:
            while True:
                async with asyncio.timeout(PATIENCE_S):
                    await connection.execute("SELECT pg_logical_emit_message(true, 'probe', '')")
                self._committed()
                await asyncio.sleep(PROBE_S)
        finally:
            connection.terminate()

    def _committed(self) -> None:
        now = time.monotonic()
        if now - self._last > AWAY_S:
            self._writer.add(StoreAway(seconds=now - self._last))
        self._last = now
