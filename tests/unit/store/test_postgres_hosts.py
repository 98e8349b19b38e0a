"""A URL with several hosts: new connections find the one that writes, whatever the others do."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import asyncpg
import pytest

from longshore.errors import ConfigError, StoreUnavailable
from longshore.store.postgres.address import connect, parse_address
from longshore.store.postgres.connections import ConnectionPool, Transaction
from longshore.store.postgres.store import PostgresStore
from longshore.testing.builders import Scene, a_job
from longshore.testing.chaos.proxy import Cut, Proxy
from longshore.testing.servers import HOST, PostgresServer, PostgresStandby, free_port

MOST = 3
TIME_LIMIT_S = 2.0
WRITES = "target_session_attrs=read-write"


@pytest.mark.parametrize(
    ("given", "urls"),
    [
        ("postgresql://h/db", ("postgresql://h/db",)),
        (
            "postgresql://u:s@h:1,g:2/db?prepared=off",
            (f"postgresql://u:s@h:1/db?{WRITES}", f"postgresql://u:s@g:2/db?{WRITES}"),
        ),
        (
            "postgres://[::1]:1,[::1]/db?target_session_attrs=any",
            (
                "postgres://[::1]:1/db?target_session_attrs=any",
                "postgres://[::1]/db?target_session_attrs=any",
            ),
        ),
        (
            "postgresql:///db?host=h,g&port=1,2",
            (f"postgresql:/db?{WRITES}&host=h&port=1", f"postgresql:/db?{WRITES}&host=g&port=2"),
        ),
        (
            "postgresql:///db?host=h,g&port=1",
            (f"postgresql:/db?{WRITES}&host=h&port=1", f"postgresql:/db?{WRITES}&host=g&port=1"),
        ),
    ],
)
def test_each_host_of_a_url_is_asked_for_the_one_that_writes(
    given: str, urls: tuple[str, ...]
) -> None:
    assert parse_address(given).urls == urls


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("postgresql://u:secret@h,/db", "comma before or after nothing"),
        ("postgresql://,h/db", "comma before or after nothing"),
        ("postgresql:///db?host=a,b,c&port=1,2", "3 hosts and 2 ports"),
    ],
)
def test_a_list_of_hosts_that_makes_no_sense_is_told(given: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words) as caught:
        PostgresStore(given)
    assert "secret" not in str(caught.value)


@contextmanager
def silent() -> Iterator[int]:
    """A port that takes connections and never answers, as a frozen server does."""
    with socket.create_server((HOST, 0)) as listener:
        yield listener.getsockname()[1]


def at(*ports: int, database: str = "postgres") -> str:
    return f"postgresql://postgres@{','.join(f'{HOST}:{port}' for port in ports)}/{database}"


async def test_a_host_that_is_frozen_does_not_keep_the_others_waiting(
    postgres: PostgresServer,
) -> None:
    with silent() as frozen:
        address = parse_address(at(frozen, free_port(), postgres.port))
        connection = await connect(address, timeout_s=60)
        assert await connection.fetchval("SELECT 1") == 1
        await connection.close()


async def test_a_standby_is_passed_over_for_the_primary() -> None:
    with PostgresServer(fsync=False) as primary, PostgresStandby(primary) as standby:
        address = parse_address(at(standby.port, primary.port))
        for _ in range(5):
            connection = await connect(address, timeout_s=60)
            assert not await connection.fetchval("SELECT pg_is_in_recovery()")
            await connection.close()


async def test_what_every_host_says_is_told_if_none_will_do(postgres: PostgresServer) -> None:
    down = free_port()
    url = at(down, postgres.port, database="none_of_this_name")
    store = PostgresStore(url)
    with pytest.raises(StoreUnavailable, match="none_of_this_name") as caught:
        await store.open()
    assert f"{HOST}:{down}: " in str(caught.value)
    assert f"{HOST}:{postgres.port}: database " in str(caught.value)
    await store.close()


async def test_what_all_hosts_say_alike_is_told_as_by_one(postgres: PostgresServer) -> None:
    store = PostgresStore(at(postgres.port, postgres.port, database="none_of_this_name"))
    with pytest.raises(ConfigError, match="there is no such database"):
        await store.open()
    await store.close()


async def test_a_store_with_several_hosts_does_all_that_one_with_a_single_host_does(
    postgres_url: str,
) -> None:
    place, _, database = postgres_url.rpartition("/")
    port = int(place.rpartition(":")[2])
    with silent() as frozen:
        store = PostgresStore(at(frozen, port, database=database))
        await store.migrate()
        await store.open()
        scene = Scene(store)
        job = a_job()
        await scene.submit(job)
        found = await store.job(job.id)
        assert found is not None
        assert found.kind == job.kind
        await store.close()


class Backends:
    """The server's processes behind the connections of a pool."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.pool = ConnectionPool(parse_address(url), most=MOST, timeout_s=TIME_LIMIT_S)

    async def pids(self) -> set[int]:
        """Those of all connections, in use at once."""
        found: set[int] = set()
        together = asyncio.Barrier(MOST)

        async def work(tx: Transaction) -> None:
            found.add(await tx.connection.fetchval("SELECT pg_backend_pid()"))
            await together.wait()

        await asyncio.gather(*(self.pool.run(work) for _ in range(MOST)))
        return found


async def test_a_connection_that_the_server_closed_while_idle_costs_no_call(
    postgres: PostgresServer,
) -> None:
    backends = Backends(postgres.url())
    pids = await backends.pids()
    outside = await asyncpg.connect(postgres.url())
    for pid in pids:
        await outside.execute(f"SELECT pg_terminate_backend({pid}, 10000)")
    await outside.close()
    assert pids.isdisjoint(await backends.pids())
    await backends.pool.close()


async def test_once_a_server_does_not_answer_no_call_gets_an_idle_connection_to_it(
    postgres: PostgresServer,
) -> None:
    """Each would cost a call of its own, and its time limit, although another server took over."""
    proxy = Proxy("pool>postgres", postgres.port)
    await proxy.start()
    backends = Backends(at(proxy.port))
    pids = await backends.pids()
    await proxy.cut(Cut.BOTH)
    with pytest.raises(StoreUnavailable):
        await backends.pool.fetch("SELECT 1")
    await proxy.cut(Cut.NONE)
    assert pids.isdisjoint(await backends.pids())
    await backends.pool.close()
    await proxy.close()
