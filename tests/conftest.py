"""What tests share: real servers, started when first asked for."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from longshore.config import PREFIX
from longshore.testing.servers import PgBouncer, PostgresServer

_database_numbers = itertools.count(1)


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
