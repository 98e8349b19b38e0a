"""All nodes of a group on PostgreSQL, read in pieces, each in a short transaction.

The pieces are of different moments, the later nodes of later ones. A node comes after those that it
depends on. So of a node and what it depends on, the node was never read first.
"""

from __future__ import annotations

from typing import Final
from uuid import UUID

import asyncpg

from longshore.store.postgres.connections import ConnectionPool

MOST_READ: Final = 5000


def parents_of_n(column: str) -> str:
    """SQL for this column of the nodes that node n depends on, by place.

    It goes from n to each of them by index, whatever the statistics say: a join that the planner
    may turn into a hash of all nodes would be made again for every n.
    """
    return f"""ARRAY(
    SELECT p.{column}
    FROM (SELECT parent FROM longshore.edge WHERE child = n.job OFFSET 0) AS e
    CROSS JOIN LATERAL (SELECT place, key FROM longshore.node WHERE job = e.parent OFFSET 0) AS p
    ORDER BY p.place
)"""


_NODES: Final = f"""
SELECT n.place, n.job, n.key, n.scope, l.state, l.kind, l.unique_key,
    {parents_of_n("place")} AS after
FROM (
    SELECT place, job, key, scope FROM longshore.node
    WHERE group_id = $1 AND place > $2 ORDER BY place LIMIT $3
) AS n
CROSS JOIN LATERAL (
    SELECT state, kind, unique_key FROM longshore.job WHERE id = n.job OFFSET 0
) AS l
ORDER BY n.place
"""


async def read_nodes(pool: ConnectionPool, group: UUID) -> list[asyncpg.Record]:
    """All nodes of a group, by place."""
    rows: list[asyncpg.Record] = []
    last = -1
    while found := await pool.fetch(_NODES, group, last, MOST_READ):
        rows += found
        last = found[-1]["place"]
    return rows
