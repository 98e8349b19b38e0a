"""A store on PostgreSQL, and a connection past it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import asyncpg
import pytest

from longshore.store.postgres.connections import Connection
from longshore.store.postgres.store import PostgresStore


@pytest.fixture
async def postgres_store(postgres_url: str) -> AsyncIterator[PostgresStore]:
    """A store on a database of this test alone."""
    store = PostgresStore(postgres_url)
    await store.migrate()
    await store.open()
    yield store
    await store.close()


@pytest.fixture
async def outside(postgres_url: str) -> AsyncIterator[Connection]:
    """A connection to the same database, past any store."""
    connection: Connection = await asyncpg.connect(postgres_url)
    yield connection
    await connection.close()
