"""PostgreSQL past any store: what another program, or an administrator, might do to it."""

from __future__ import annotations

from typing import Final

from longshore.store.postgres_lines import Connection

HOLD: Final = "SELECT FROM longshore.job WHERE id = $1 FOR UPDATE"

_WAITING: Final = "SELECT count(*) FROM pg_locks WHERE NOT granted"
_END_OTHERS: Final = """
SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid()
"""


async def until_waiting(connection: Connection, number: int) -> None:
    """Returns once exactly so many transactions wait for a lock."""
    while await connection.fetchval(_WAITING) != number:
        pass


async def end_others(connection: Connection) -> None:
    """Every other connection to this database is cut, and the server has let go of it."""
    await connection.execute(_END_OTHERS)
