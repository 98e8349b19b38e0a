"""What tests share: real servers, started when first asked for."""

from __future__ import annotations

import asyncio
import itertools
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from longshore.config import PREFIX
from longshore.store.postgres.store import PostgresStore
from longshore.store.sqlite.store import SqliteStore
from longshore.testing.backends import migrate
from longshore.testing.engine import Engine
from longshore.testing.servers import PgBouncer, PostgresServer, memory_disk

MIGRATED = "migrated"
FILES_BYTES = 1024**3
_database_numbers = itertools.count(1)

# No test may fail because the machine is busy.
settings.register_profile(
    "any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("any machine")


def pytest_configure() -> None:
    """No process of a test listens for HTTP unless the test says where.

    Ctrl-C is heeded, though a shell has what it runs in the background ignore it.
    """
    os.environ[f"{PREFIX}HTTP"] = "off"
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A PostgreSQL of this test run alone."""
    with PostgresServer(fsync=False) as server:
        yield server


@pytest.fixture(scope="session")
def pgbouncer(postgres: PostgresServer) -> Iterator[PgBouncer]:
    """A pgbouncer in transaction mode before `postgres`."""
    with PgBouncer(postgres) as bouncer:
        yield bouncer


@pytest.fixture(scope="session")
def engine() -> Iterator[Engine]:
    """A container engine of this test run alone, which has an image with busybox (`IMAGE`).

    Where none can run, the tests that need it fail and say what is missing.
    """
    with Engine() as engine:
        engine.add_image()
        yield engine


@pytest.fixture
def postgres_database(postgres: PostgresServer) -> Iterator[str]:
    """The name of an empty database of this test alone, in `postgres`."""
    name = f"test_{next(_database_numbers)}"
    postgres.create_database(name)
    yield name
    postgres.drop_database(name)


@pytest.fixture
def postgres_url(postgres: PostgresServer, postgres_database: str) -> str:
    """The url of an empty database of this test alone."""
    return postgres.url(postgres_database)


@pytest.fixture(scope="session")
def postgres_template(postgres: PostgresServer) -> str:
    """The name of a migrated, empty database, from which others are copied."""
    asyncio.run(migrate(PostgresStore(postgres.create_database(MIGRATED))))
    return MIGRATED


@contextmanager
def _postgres_url(postgres: PostgresServer, template: str) -> Iterator[str]:
    name = f"test_{next(_database_numbers)}"
    yield postgres.create_database(name, template=template)
    postgres.drop_database(name)


@pytest.fixture
def migrated_postgres_url(postgres: PostgresServer, postgres_template: str) -> Iterator[str]:
    """The url of a migrated, empty database of this test alone."""
    with _postgres_url(postgres, postgres_template) as url:
        yield url


@pytest.fixture(scope="module")
def module_postgres_url(postgres: PostgresServer, postgres_template: str) -> Iterator[str]:
    """The url of a database that the tests of one file share, migrated and empty at first."""
    with _postgres_url(postgres, postgres_template) as url:
        yield url


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A migrated, empty SQLite file, from which others are copied."""
    path = tmp_path_factory.mktemp(MIGRATED) / "store.db"
    asyncio.run(migrate(SqliteStore(path)))
    return path


@contextmanager
def _sqlite_url(template: Path) -> Iterator[str]:
    """A copy of the template, in memory if there is enough: no test cuts the power."""
    with tempfile.TemporaryDirectory(prefix="longshore-", dir=memory_disk(FILES_BYTES)) as folder:
        yield f"sqlite:///{shutil.copy(template, folder)}"


@pytest.fixture
def migrated_sqlite_url(sqlite_template: Path) -> Iterator[str]:
    """The url of a migrated, empty SQLite file of this test alone."""
    with _sqlite_url(sqlite_template) as url:
        yield url


@pytest.fixture(scope="module")
def module_sqlite_url(sqlite_template: Path) -> Iterator[str]:
    """The url of a SQLite file that the tests of one file share, migrated and empty at first."""
    with _sqlite_url(sqlite_template) as url:
        yield url


@pytest.fixture
def pgbouncer_url(pgbouncer: PgBouncer, postgres_database: str) -> str:
    """The url of the same database, through pgbouncer in transaction mode."""
    return pgbouncer.url(postgres_database)


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder without settings, and none in the environment."""
    monkeypatch.chdir(tmp_path)
    for variable in [name for name in os.environ if name.startswith(PREFIX)]:
        monkeypatch.delenv(variable)
