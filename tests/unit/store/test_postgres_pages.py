"""What the pages of the dashboard read on PostgreSQL: never all jobs."""

from __future__ import annotations

import pytest

from longshore.store.postgres import depths, reads
from longshore.store.postgres.connections import Connection
from longshore.store.postgres.planning import BY_INDEX
from longshore.store.postgres.store import PostgresStore

READS = {
    "the counts of lanes": depths._DEPTHS,
    "the oldest ready job of lanes": depths._OLDEST,
    "a job by its id": reads._BY_ID,
    "a job by its number": reads._BY_NUMBER,
    "the log of a job": reads._LOGS.format(named="$1::uuid"),
}
PARAMETERS = {
    "the counts of lanes": "",
    "the oldest ready job of lanes": "(NULL)",
    "a job by its id": "(NULL)",
    "a job by its number": "(NULL)",
    "the log of a job": "(NULL, 0, 0, 0, 0, 1)",
}


@pytest.mark.parametrize("name", READS)
async def test_no_page_reads_all_jobs(postgres_url: str, outside: Connection, name: str) -> None:
    await PostgresStore(postgres_url).migrate()
    for setting, value in {**BY_INDEX, "plan_cache_mode": "force_generic_plan"}.items():
        await outside.execute(f"SET {setting} = {value}")
    await outside.execute(f"PREPARE p AS {READS[name]}")
    plan = [row[0] for row in await outside.fetch(f"EXPLAIN EXECUTE p{PARAMETERS[name]}")]
    await outside.execute("DEALLOCATE p")
    for table in ("job", "log", "job_number"):
        assert not any(f"Seq Scan on {table} " in line for line in plan), plan
