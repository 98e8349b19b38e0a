"""What the pages of the dashboard read on PostgreSQL: never a whole table that grows."""

from __future__ import annotations

import pytest

from longshore.store.postgres import access, actors_sql, depths, files_sql, limits_sql, reads
from longshore.store.postgres import schedules as schedules_sql
from longshore.store.postgres.connections import Connection
from longshore.store.postgres.planning import BY_INDEX
from longshore.store.postgres.store import PostgresStore

READS = {
    "the counts of lanes": (depths._DEPTHS, 0),
    "the oldest ready job of lanes": (depths._OLDEST, 1),
    "a job by its id": (reads._BY_ID, 1),
    "a job by its number": (reads._BY_NUMBER, 1),
    "the log of a job": (reads._LOGS.format(named="$1::uuid"), 6),
    "actors": (actors_sql.PAGES[False, False], 3),
    "actors after a place": (actors_sql.PAGES[False, True], 3),
    "actors of a type after a place": (actors_sql.PAGES[True, True], 3),
    "actors that are listed by a field": (actors_sql.LISTED_PAGE, 5),
    "an actor": (actors_sql.ONE, 2),
    "the turns of an actor": (actors_sql.TURNS, 3),
    "the mailbox of an actor": (actors_sql.MAIL, 3),
    "schedules by name": (schedules_sql._LIST, 3),
    "a schedule": (schedules_sql._BY_NAME, 1),
    "known keys of limits": (limits_sql.KNOWN_KEYS, 2),
    "keys that jobs wait for": (limits_sql.KEYS_BEHIND, 2),
    "the lanes behind keys": (limits_sql.LANES_BEHIND, 1),
    "who holds a key": (limits_sql.HOLDERS, 1),
    "the rate of a key": (limits_sql.EVEN_AT, 1),
    "the audit": (access._LIST, 6),
    "filesets": (files_sql.FILESETS, 2),
    "the versions of a fileset": (files_sql.VERSIONS, 3),
}
"""The statements, and how many parameters each has."""
LARGE = (
    *("job", "log", "job_number", "actor", "turn", "message", "listed_field", "schedule", "fire"),
    *("limit_key", "hold", "audit", "fileset", "fileset_version"),
)


@pytest.mark.parametrize("name", READS)
async def test_no_page_reads_a_whole_table(
    postgres_url: str, outside: Connection, name: str
) -> None:
    await PostgresStore(postgres_url).migrate()
    for setting, value in {**BY_INDEX, "plan_cache_mode": "force_generic_plan"}.items():
        await outside.execute(f"SET {setting} = {value}")
    statement, count = READS[name]
    await outside.execute(f"PREPARE p AS {statement}")
    given = f"({', '.join(['NULL'] * count)})" if count else ""
    plan = [row[0] for row in await outside.fetch(f"EXPLAIN EXECUTE p{given}")]
    await outside.execute("DEALLOCATE p")
    for table in LARGE:
        assert not any(f"Seq Scan on {table} " in line for line in plan), plan
