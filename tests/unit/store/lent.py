"""Connections of an application's own, one way for each driver that can be lent to Longshore.

Each way enqueues the calls in a transaction, beside a row of the application's, and then ends it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import asyncpg
import psycopg
import sqlalchemy
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session
from sqlalchemy.pool import NullPool

from longshore import App, Call, Handle

Calls = list[Call[Any]]
Way = Callable[[App, str, Calls, bool], Awaitable[list[Handle[Any]]]]

GRANTS = """
GRANT USAGE ON SCHEMA longshore TO shop;
GRANT SELECT, INSERT ON longshore.job TO shop;
GRANT SELECT, INSERT ON longshore.enqueued_send TO shop;
GRANT INSERT ON longshore.job_number, longshore.tally TO shop;
GRANT USAGE ON SEQUENCE longshore.number, longshore.tally_number TO shop;
"""
"""What docs/transactions.md says that a user needs."""

ROW = "INSERT INTO orders VALUES (1)"


def sqlalchemy_url(url: str, driver: str) -> str:
    return url.replace("postgresql://", f"postgresql+{driver}://")


async def by_asyncpg(app: App, url: str, calls: Calls, commit: bool) -> list[Handle[Any]]:
    connection = await asyncpg.connect(url)
    try:
        transaction = connection.transaction()
        await transaction.start()
        await connection.execute(ROW)
        handles = await app.enqueue_many_async(connection, calls)
        await (transaction.commit() if commit else transaction.rollback())
    finally:
        await connection.close()
    return handles


async def by_asyncpg_pool(app: App, url: str, calls: Calls, commit: bool) -> list[Handle[Any]]:
    async with asyncpg.create_pool(url, min_size=1) as pool, pool.acquire() as connection:
        transaction = connection.transaction()
        await transaction.start()
        await connection.execute(ROW)
        handles = await app.enqueue_many_async(connection, calls)
        await (transaction.commit() if commit else transaction.rollback())
        return handles


async def by_psycopg(app: App, url: str, calls: Calls, commit: bool) -> list[Handle[Any]]:
    with psycopg.connect(url, row_factory=psycopg.rows.dict_row) as connection:
        connection.execute(ROW)
        handles = app.enqueue_many(connection, calls)
        connection.commit() if commit else connection.rollback()
    return handles


async def by_psycopg_async(app: App, url: str, calls: Calls, commit: bool) -> list[Handle[Any]]:
    async with await psycopg.AsyncConnection.connect(url) as connection:
        await connection.execute(ROW)
        handles = await app.enqueue_many_async(connection, calls)
        await (connection.commit() if commit else connection.rollback())
    return handles


def by_sqlalchemy(driver: str) -> Way:
    async def way(app: App, url: str, calls: Calls, commit: bool) -> list[Handle[Any]]:
        engine = sqlalchemy.create_engine(sqlalchemy_url(url, driver), poolclass=NullPool)
        with engine.connect() as connection:
            handles = app.enqueue_many(connection, calls)
            connection.execute(sqlalchemy.text(ROW))
            connection.commit() if commit else connection.rollback()
        return handles

    return way


async def by_session(app: App, url: str, calls: Calls, commit: bool) -> list[Handle[Any]]:
    engine = sqlalchemy.create_engine(sqlalchemy_url(url, "psycopg"), poolclass=NullPool)
    with Session(engine) as session:
        handles = app.enqueue_many(session, calls)
        session.execute(sqlalchemy.text(ROW))
        session.commit() if commit else session.rollback()
    return handles


def by_sqlalchemy_async(driver: str) -> Way:
    async def way(app: App, url: str, calls: Calls, commit: bool) -> list[Handle[Any]]:
        engine = create_async_engine(sqlalchemy_url(url, driver), poolclass=NullPool)
        async with engine.connect() as connection:
            handles = await app.enqueue_many_async(connection, calls)
            await connection.execute(sqlalchemy.text(ROW))
            await (connection.commit() if commit else connection.rollback())
        return handles

    return way


async def by_async_session(app: App, url: str, calls: Calls, commit: bool) -> list[Handle[Any]]:
    engine = create_async_engine(sqlalchemy_url(url, "asyncpg"), poolclass=NullPool)
    async with AsyncSession(engine) as session:
        handles = await app.enqueue_many_async(session, calls)
        await session.execute(sqlalchemy.text(ROW))
        await (session.commit() if commit else session.rollback())
    return handles


async def by_run_sync(app: App, url: str, calls: Calls, commit: bool) -> list[Handle[Any]]:
    engine = create_async_engine(sqlalchemy_url(url, "asyncpg"), poolclass=NullPool)
    async with engine.connect() as connection:
        handles: list[Handle[Any]] = await connection.run_sync(
            lambda inner: app.enqueue_many(inner, calls)
        )
        await connection.execute(sqlalchemy.text(ROW))
        await (connection.commit() if commit else connection.rollback())
    return handles


WAYS: dict[str, Way] = {
    "asyncpg": by_asyncpg,
    "asyncpg pool": by_asyncpg_pool,
    "psycopg": by_psycopg,
    "psycopg async": by_psycopg_async,
    "sqlalchemy psycopg": by_sqlalchemy("psycopg"),
    "sqlalchemy psycopg2": by_sqlalchemy("psycopg2"),
    "sqlalchemy session": by_session,
    "sqlalchemy async asyncpg": by_sqlalchemy_async("asyncpg"),
    "sqlalchemy async psycopg": by_sqlalchemy_async("psycopg_async"),
    "sqlalchemy async session": by_async_session,
    "sqlalchemy run_sync": by_run_sync,
}
