"""Reads of a group on PostgreSQL: each node costs the same, however many there are."""

from __future__ import annotations

import pytest

from longshore.store.postgres import groups_sql, node_pages
from longshore.store.postgres.connections import Connection
from longshore.store.postgres.planning import BY_INDEX
from longshore.store.postgres.store import PostgresStore

READS = {
    "NODES": (groups_sql.NODES, 3),
    "GROUP_COUNTS": (groups_sql.GROUP_COUNTS, 1),
    "WAITS_FOR": (groups_sql.WAITS_FOR, 2),
    "NODE_STATES": (groups_sql.NODE_STATES, 1),
    "a page of nodes": (node_pages._NODES, 3),
}

NODES = """
INSERT INTO longshore.node (job, group_id, body_hash, place, unmet, condition, key)
SELECT gen_random_uuid(), $1, 0, i, 0, 0, i::text FROM generate_series(1, 30) AS i
"""


@pytest.mark.parametrize("is_analyzed", [False, True])
@pytest.mark.parametrize("name", READS)
async def test_a_read_made_while_groups_were_small_does_not_freeze_when_they_are_large(
    postgres_url: str, outside: Connection, name: str, is_analyzed: bool
) -> None:
    """A plan may be older than the group: one that reads all nodes for each would never end."""
    await PostgresStore(postgres_url).migrate()
    if is_analyzed:
        await outside.execute(NODES, "00000000-0000-0000-0000-000000000001")
        await outside.execute("VACUUM ANALYZE")
    for setting, value in {**BY_INDEX, "plan_cache_mode": "force_generic_plan"}.items():
        await outside.execute(f"SET {setting} = {value}")
    sql, parameters = READS[name]
    await outside.execute(f"PREPARE p AS {sql}")
    nulls = ", ".join(["NULL"] * parameters)
    plan = [row[0] for row in await outside.fetch(f"EXPLAIN EXECUTE p({nulls})")]
    await outside.execute("DEALLOCATE p")
    for line, following in zip(plan, [*plan[1:], ""], strict=True):
        assert "Seq Scan" not in line, plan
        assert "Hash Join" not in line, plan
        assert "Merge Join" not in line, plan
        assert "Index" not in line or "Scan" not in line or "Index Cond" in following, plan
