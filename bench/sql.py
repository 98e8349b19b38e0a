"""Questions to PostgreSQL from outside of any store, one at a time."""

from __future__ import annotations

import asyncio
from typing import Any

import asyncpg


async def _ask(url: str, sql: str, values: tuple[object, ...]) -> list[dict[str, Any]]:
    connection = await asyncpg.connect(url)
    try:
        if not values:
            *before, sql = sql.split(";")
            for statement in before:
                await connection.execute(statement)
        return [dict(row) for row in await connection.fetch(sql, *values)]
    finally:
        await connection.close()


def ask(url: str, sql: str, *values: object) -> list[dict[str, Any]]:
    """The rows that a statement answers; several, divided by semicolons, are run in their order."""
    return asyncio.run(_ask(url, sql, values))


def ask_one(url: str, sql: str, *values: object) -> dict[str, Any]:
    """The one row that a statement answers."""
    [row] = ask(url, sql, *values)
    return row
