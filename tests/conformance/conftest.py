"""One suite over every store: whatever a test says of `store` holds for each of them."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from longshore.ports import Store
from longshore.store.postgres.store import PostgresStore
from longshore.testing.backends import Backend, MemoryBackend, PostgresBackend, SqliteBackend
from longshore.testing.builders import Scene
from longshore.testing.servers import PgBouncer, PostgresServer

DATABASE = "conformance"
BACKENDS = ["memory", "sqlite", "postgres", "pgbouncer"]
ALSO_IN_STEPS = pytest.mark.parametrize("backend", [*BACKENDS, "in_steps"], indirect=True)
"""For tests of retries: PostgreSQL retries large groups in another way than small ones."""
UNENCRYPTED = "?sslmode=disable"
MEMORY_DISK = Path("/dev/shm")


@pytest.fixture(scope="session")
def sqlite_backend() -> Iterator[SqliteBackend]:
    """One file for the whole suite, in memory if there is such a disk: no test cuts the power."""
    disk = MEMORY_DISK if MEMORY_DISK.is_dir() else None
    with tempfile.TemporaryDirectory(prefix="longshore-", dir=disk) as folder:
        yield SqliteBackend(Path(folder) / "store.db", Path(folder) / "template.db")


@pytest.fixture(scope="session")
def postgres_backend(postgres: PostgresServer) -> PostgresBackend:
    """One database for the whole suite; not asking for encryption first is quicker."""
    return PostgresBackend(postgres.create_database(DATABASE) + UNENCRYPTED)


@pytest.fixture(scope="session")
def pgbouncer_backend(postgres_backend: PostgresBackend, pgbouncer: PgBouncer) -> PostgresBackend:
    """The same database, reached through a pgbouncer in transaction mode."""
    return PostgresBackend(postgres_backend.url, pooled_url=pgbouncer.url(DATABASE) + UNENCRYPTED)


class _InSteps(PostgresBackend):
    """A PostgreSQL whose store retries groups of any size in steps, of one job each."""

    def connect(self) -> Store:
        store = super().connect()
        assert isinstance(store, PostgresStore)
        store.most_reopened = 1
        return store


@pytest.fixture(scope="session")
def in_steps_backend(postgres_backend: PostgresBackend) -> PostgresBackend:
    """The same database, with a store that takes the smallest steps; for tests that ask for it."""
    return _InSteps(postgres_backend.url)


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> Backend:
    """One database; what earlier tests left is still in it."""
    if request.param == "memory":
        return MemoryBackend()
    found: Backend = request.getfixturevalue(f"{request.param}_backend")
    return found


@pytest.fixture
async def store(backend: Backend) -> AsyncIterator[Store]:
    """A store, open, and empty before each test."""
    await backend.clear()
    async with backend.opened() as store:
        yield store


@pytest.fixture
def scene(store: Store) -> Scene:
    """The store as a dispatcher uses it."""
    return Scene(store)
