"""Which lanes rules for kinds and queues limit, and what runs in them (see `core.lane_rules`).

What runs in a lane is the sum of its tally, which every move writes in its own transaction. So a
claim that has locked a key, and looks in a later statement, sees all that other claims have started
for it. What its own transaction has counted so far it writes first (`Transaction.write_tally`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

import asyncpg

from longshore.core.key_limits import rule_for
from longshore.core.lane_rules import is_of_lanes, keys_of, lane_keys, names_in, rules_only
from longshore.model.limits import LimitRule
from longshore.store.postgres.connections import ConnectionPool, Transaction
from longshore.store.postgres.start_rules import lane_named
from longshore.store.postgres.states import OWNED, READY

_LANES: Final = f"""
SELECT i.lane, n.queue, n.kind
FROM unnest($1::bigint[]) AS i (lane) CROSS JOIN LATERAL ({lane_named("i.lane")}) AS n
"""
_OWNED: Final = f"""
SELECT n.queue, n.kind, o.owned
FROM (
    SELECT lane, sum(delta)::bigint AS owned FROM longshore.tally
    WHERE state IN ({OWNED}) GROUP BY lane HAVING sum(delta) > 0
    OFFSET 0
) AS o
CROSS JOIN LATERAL (
    (SELECT k.queue, k.kind FROM longshore.lane AS k WHERE k.hash = o.lane)
    UNION ALL
    (SELECT k.queue, k.kind FROM longshore.job AS k
        WHERE k.state IN ({OWNED}) AND k.lane = o.lane LIMIT 1)
    LIMIT 1
) AS n
WHERE n.kind = ANY ($1::text[]) OR n.queue = ANY ($2::text[])
"""
"""A lane may not be stored, because it was forgotten at the moment its job came: a job names it."""
_WITH_SLOT: Final = f"""
SELECT h.key, count(*) AS held
FROM longshore.hold AS h
CROSS JOIN LATERAL (
    SELECT FROM longshore.job AS j
    WHERE j.id = h.job AND j.token = h.token AND j.state IN ({OWNED})
        AND h.key IN ('kind=' || j.kind, 'queue=' || j.queue)
    OFFSET 0
) AS l
WHERE h.key = ANY ($1::text[])
GROUP BY h.key
"""
_READY: Final = f"""
SELECT l.hash AS lane, l.queue, l.kind FROM longshore.lane AS l
WHERE (l.kind = ANY ($1::text[]) OR l.queue = ANY ($2::text[]))
    AND EXISTS (
        SELECT FROM longshore.job AS j
        WHERE j.state = {READY} AND j.blocked_on IS NULL AND j.lane = l.hash
    )
"""
_READY_RULED: Final = f"""
SELECT l.hash AS lane, l.queue, l.kind FROM longshore.lane AS l
WHERE EXISTS (
        SELECT FROM longshore.job AS j
        WHERE j.state = {READY} AND j.blocked_on IS NULL AND j.lane = l.hash
    )
"""
_RUNNING: Final = f"""
SELECT j.number, (extract(epoch FROM j.started_at) * 1000000)::bigint AS began
FROM longshore.job AS j
WHERE j.state IN ({OWNED}) AND (j.kind = ANY ($1::text[]) OR j.queue = ANY ($2::text[]))
"""

LaneKeys = Mapping[int, Sequence[str]]
"""Lanes, each with those of its keys that rules limit."""


async def named_lanes(
    tx: Transaction, lanes: Iterable[int], rules: Collection[LimitRule]
) -> LaneKeys:
    """The keys of these lanes that rules limit, of some none.

    It leaves out lanes of which neither a row nor a ready job tells the name.
    """
    rules = rules_only(rules)
    rows = await tx.fetch(_LANES, list(lanes))
    return {row["lane"]: lane_keys(row["queue"], row["kind"], rules) for row in rows}


async def ready_lanes(
    pool: ConnectionPool | Transaction,
    rules: Collection[LimitRule],
    keys: Collection[str] | None = None,
) -> LaneKeys:
    """The lanes under rules that hold ready jobs; with `keys`, only those that count for one."""
    rules = rules_only(rules)
    if not rules:
        return {}
    if keys is None:
        return _ruled(await pool.fetch(_READY_RULED), rules)
    named = names_in(keys)
    return _ruled(await pool.fetch(_READY, *named), rules) if any(named) else {}


async def others(
    tx: Transaction, keys: Iterable[str], rules: Collection[LimitRule]
) -> Counter[str]:
    """How many attempts count for these keys without a slot: they only run in lanes of them."""
    ruled = [key for key in keys if is_of_lanes(key) and rule_for(key, rules) is not None]
    if not ruled:
        return Counter()
    await tx.write_tally()
    found: Counter[str] = Counter()
    for row in await tx.fetch(_OWNED, *names_in(ruled)):
        for key in keys_of(row["queue"], row["kind"]):
            found[key] += row["owned"]
    for row in await tx.fetch(_WITH_SLOT, ruled):
        found[row["key"]] -= row["held"]
    return Counter({key: found[key] for key in ruled})


async def running(
    reading: ConnectionPool, key: str, rules: Collection[LimitRule]
) -> list[tuple[int, int]]:
    """The jobs that run in the lanes of a key for which there is a rule, and since when."""
    if not is_of_lanes(key) or rule_for(key, rules) is None:
        return []
    return [tuple(row) for row in await reading.fetch(_RUNNING, *names_in([key]))]


def _ruled(rows: Iterable[asyncpg.Record], rules: Collection[LimitRule]) -> LaneKeys:
    found = {row["lane"]: lane_keys(row["queue"], row["kind"], rules) for row in rows}
    return {lane: keys for lane, keys in found.items() if keys}
