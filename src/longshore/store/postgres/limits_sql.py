"""The SQL of limits on PostgreSQL."""

from __future__ import annotations

from typing import Final

from longshore.model.waited import KEY_WAITS_KEPT_S, MOST_STAYS
from longshore.store.postgres.sql import (
    CLAIMED_COLUMNS,
    CLAIMED_JOB,
    MAY_TAKE,
    TALLIED,
    inserted,
)
from longshore.store.postgres.start_rules import lane_may_start
from longshore.store.postgres.states import OWNED, READY

_IS_HELD: Final = f"""EXISTS (
    SELECT FROM longshore.job AS j WHERE j.id = h.job AND j.token = h.token AND j.state IN ({OWNED})
)"""

SUBMIT_LIMITED: Final = f"""{inserted(started=False, limited=True)}
SELECT id, number, state, lane, token FROM new
"""
"""Stores jobs with limits, which only a claim starts."""

SUBMIT_LIMITED_EACH: Final = f"""{inserted(started=False, limited=True, each=True)}
SELECT id, number, state, lane, token FROM new
"""
"""`SUBMIT_LIMITED` for jobs most of which have other keys than the others."""

SUBMIT_LIMITED_TURNS: Final = f"""{inserted(started=False, turns=True, limited=True)}
SELECT id, number, state, lane, token FROM new
"""
"""Stores turns of actors that have limits."""

ENQUEUE_LIMITED: Final = f"""{inserted(started=False, limited=True)},{TALLIED}
SELECT id, number FROM new
"""
"""`ENQUEUE`, if some of the jobs have limits."""

FRONT: Final = f"""
SELECT l.*
FROM unnest($1::bigint[], $2::smallint[], $3::bigint[], $4::bigint[], $5::smallint[])
    AS i (lane, urgency, rank, number, last_urgency)
CROSS JOIN LATERAL (
    SELECT j.id, j.lane, j.options, octet_length(j.args) AS size, ~j.priority AS urgency, j.rank,
        j.number
    FROM longshore.job AS j
    WHERE j.state = {READY} AND j.blocked_on IS NULL
        AND j.lane = i.lane
        AND (~j.priority, j.rank, j.number) > (i.urgency, i.rank, i.number)
        AND ~j.priority <= i.last_urgency
        AND coalesce(j.deadline_at > statement_timestamp(), true)
    ORDER BY ~j.priority, j.rank, j.number
    LIMIT $6
) AS l
WHERE {lane_may_start("i.lane")}
ORDER BY l.urgency, l.rank, l.number
LIMIT $6
"""
"""The first so many jobs of these lanes, with and without limits, in the order of claims."""

ADD_KEYS: Final = """
INSERT INTO longshore.limit_key (key) SELECT key FROM unnest($1::text[]) AS i (key) ORDER BY key
ON CONFLICT DO NOTHING
"""
TRY_KEYS: Final = """
SELECT key FROM longshore.limit_key WHERE key = ANY ($1::text[])
ORDER BY key FOR UPDATE SKIP LOCKED
"""
"""Locks those of these keys that nobody else has. Whoever counts does so in a later statement."""
LOCK_KEYS: Final = """
SELECT key FROM longshore.limit_key WHERE key = ANY ($1::text[]) ORDER BY key FOR UPDATE
"""
KEY_STATES: Final = f"""
SELECT k.key, k.even_at, ARRAY(
        SELECT h.slot FROM longshore.hold AS h WHERE h.key = k.key AND {_IS_HELD}
    ) AS slots,
    (extract(epoch FROM statement_timestamp()) * 1000000)::bigint AS now
FROM longshore.limit_key AS k WHERE k.key = ANY ($1::text[])
"""
COUNT: Final = f"""
WITH seen AS MATERIALIZED (
    SELECT h.ctid AS tid, h.key, h.slot,
        coalesce(l.token = h.token AND l.state IN ({OWNED}), false) AS is_held
    FROM longshore.hold AS h
    LEFT JOIN LATERAL (
        SELECT j.token, j.state FROM longshore.job AS j WHERE j.id = h.job OFFSET 0
    ) AS l ON true
    WHERE h.key = ANY ($1::text[])
),
dropped AS (
    DELETE FROM longshore.hold AS h USING seen WHERE h.ctid = seen.tid AND NOT seen.is_held
)
SELECT key, NULL::bigint AS even_at, array_agg(slot) AS slots, NULL::bigint AS now
FROM seen WHERE is_held GROUP BY key
UNION ALL
SELECT key, even_at, NULL, (extract(epoch FROM statement_timestamp()) * 1000000)::bigint
FROM longshore.limit_key WHERE key = ANY ($1::text[])
"""
"""The slots of these keys, which are locked, and the keys; slots that nobody holds are deleted."""
RULES: Final = """
SELECT pattern, concurrency, rate_units, rate_per_s, rate_burst, set_at, weight
FROM longshore.limit_rule
ORDER BY pattern
"""
_FREE_JOB: Final = f"""
    SELECT ctid AS tid FROM longshore.job
    WHERE id = i.id AND CASE WHEN state = {READY} AND blocked_on IS NULL THEN true END
    FOR UPDATE SKIP LOCKED
"""
"""SQL that locks the job i.id if a claim may start it.

The CASE keeps the index of ready jobs out: it would seem to be the way to one, by reading all.
"""
START: Final = f"""
WITH slot AS MATERIALIZED (
    SELECT ARRAY(
        SELECT wish.place
        FROM unnest($3::integer[]) WITH ORDINALITY AS wish (place, turn)
        WHERE ({MAY_TAKE.format(workers="$1", sessions="$2", dispatcher="$4")})[wish.place]
        ORDER BY wish.turn
    ) AS places
),
locked AS (
    SELECT l.tid, row_number() OVER (ORDER BY i.turn) AS turn
    FROM unnest($5::uuid[]) WITH ORDINALITY AS i (id, turn)
    CROSS JOIN LATERAL ({_FREE_JOB}) AS l
),
taken AS (
    UPDATE longshore.job AS j
    SET {CLAIMED_COLUMNS.format(place="(SELECT places FROM slot)[l.turn]", margin="$6")}
    FROM locked AS l
    WHERE j.ctid = l.tid AND l.turn <= (SELECT cardinality(places) FROM slot)
    RETURNING l.turn, (SELECT places FROM slot)[l.turn] AS place, {CLAIMED_JOB}
)
SELECT NULL AS seen, NULL AS barred, NULL AS ruled, t.* FROM taken AS t ORDER BY t.turn
"""
"""Starts these jobs, as far as they are ready, on these slots; answers as `CLAIM` does."""

HOLD: Final = """
INSERT INTO longshore.hold (key, slot, job, token)
SELECT * FROM unnest($1::text[], $2::bigint[], $3::uuid[], $4::bigint[])
"""
PASS: Final = """
UPDATE longshore.limit_key AS k SET even_at = i.even_at
FROM unnest($1::text[], $2::bigint[]) AS i (key, even_at) WHERE k.key = i.key
"""
PUT_BEHIND: Final = f"""
UPDATE longshore.job AS j SET blocked_on = n.key, blocked_at = statement_timestamp()
FROM (
    SELECT l.tid, i.key
    FROM unnest($1::uuid[], $2::text[]) AS i (id, key)
    CROSS JOIN LATERAL ({_FREE_JOB}) AS l
    OFFSET 0
) AS n
WHERE j.ctid = n.tid AND j.state = {READY}
"""
"""A job that is behind a key already stays there: how long it waits counts from when it came."""

_BEHIND: Final = f"b.state = {READY} AND b.blocked_on IS NOT NULL"
WAITED_FOR: Final = f"""
SELECT i.key FROM unnest($1::text[]) AS i (key)
WHERE EXISTS (SELECT FROM longshore.job AS b WHERE {_BEHIND} AND b.blocked_on = i.key)
"""
KEYS_BEHIND: Final = f"""
WITH RECURSIVE found AS (
    (SELECT b.blocked_on AS key FROM longshore.job AS b
    WHERE {_BEHIND} AND b.blocked_on > $1 ORDER BY b.blocked_on LIMIT 1)
    UNION ALL
    SELECT n.key FROM found CROSS JOIN LATERAL (
        SELECT b.blocked_on AS key FROM longshore.job AS b
        WHERE {_BEHIND} AND b.blocked_on > found.key ORDER BY b.blocked_on LIMIT 1
    ) AS n
)
SELECT key FROM found LIMIT $2
"""
"""The first so many keys after one behind which jobs wait, each by one look into the index."""
KNOWN_KEYS: Final = "SELECT key FROM longshore.limit_key WHERE key > $1 ORDER BY key LIMIT $2"
"""The row of a key stays while its slots are held, jobs wait for it, or its rate counts."""
LANES_BEHIND: Final = f"""
WITH RECURSIVE found AS (
    SELECT i.key, f.lane
    FROM unnest($1::text[]) AS i (key)
    CROSS JOIN LATERAL (
        SELECT b.lane FROM longshore.job AS b
        WHERE {_BEHIND} AND b.blocked_on = i.key ORDER BY b.lane LIMIT 1
    ) AS f
    UNION ALL
    SELECT found.key, n.lane FROM found CROSS JOIN LATERAL (
        SELECT b.lane FROM longshore.job AS b
        WHERE {_BEHIND} AND b.blocked_on = found.key AND b.lane > found.lane
        ORDER BY b.lane LIMIT 1
    ) AS n
)
SELECT found.key, found.lane, o.options
FROM found
CROSS JOIN LATERAL (
    SELECT b.options FROM longshore.job AS b
    WHERE {_BEHIND} AND b.blocked_on = found.key AND b.lane = found.lane
    ORDER BY ~b.priority, b.rank, b.number LIMIT 1
) AS o
"""
"""For keys the lanes with jobs behind them, and the options of the first of each."""


def _us(time: str) -> str:
    """SQL for a time in microseconds since 1970."""
    return f"(extract(epoch FROM {time}) * 1000000)::bigint"


def _added_up(which: str, also: str = "") -> str:
    """SQL that adds to keys, which are locked, how long jobs waited for them.

    `which` of the rows that others left are added, and `also` what this selects.
    """
    return f"""left_over AS (
    DELETE FROM longshore.key_wait WHERE {which} RETURNING key, waited_us, stays
),
sums AS MATERIALIZED (
    SELECT key, sum(waited_us)::bigint AS waited_us, sum(stays)::bigint AS stays
    FROM ({also} SELECT key, waited_us, stays FROM left_over) AS r GROUP BY key
),
summed AS (
    UPDATE longshore.limit_key AS k
    SET (waited_us, stays) = (
            SELECT k.waited_us + s.waited_us, k.stays + s.stays FROM sums AS s WHERE s.key = k.key
        ),
        waited_at = statement_timestamp()
    WHERE k.key = ANY (ARRAY(SELECT key FROM sums))
)"""


_STAY_US: Final = """coalesce(
        (extract(epoch FROM statement_timestamp() - n.blocked_at) * 1000000)::bigint, 0)"""
_STAYS: Final = "coalesce(j.stays, '[]'::jsonb)"
_LEAVE: Final = f"""blocked_on = NULL, blocked_at = NULL, stays = CASE
        WHEN n.blocked_at IS NULL THEN j.stays
        WHEN jsonb_array_length({_STAYS}) < {MOST_STAYS} THEN {_STAYS}
        ELSE {_STAYS} - 0 END || CASE WHEN n.blocked_at IS NOT NULL THEN jsonb_build_array(
            jsonb_build_array(n.key, {_us("n.blocked_at")}, {_us("statement_timestamp()")})
        ) ELSE '[]'::jsonb END"""
"""SQL that takes row j away from its key; row n has the key, and since when j was behind it."""

WAKE: Final = f"""
WITH woken AS (
    UPDATE longshore.job AS j SET {_LEAVE}
    FROM (
        SELECT l.tid, i.key, l.blocked_at
        FROM unnest($1::text[], $2::bigint[], $3::bigint[]) AS i (key, lane, most)
        CROSS JOIN LATERAL (
            SELECT b.ctid AS tid, b.blocked_at FROM longshore.job AS b
            WHERE {_BEHIND} AND b.blocked_on = i.key AND b.lane = i.lane
                AND coalesce(b.deadline_at > statement_timestamp(), true)
            ORDER BY ~b.priority, b.rank, b.number LIMIT i.most
            FOR UPDATE SKIP LOCKED
        ) AS l
        OFFSET 0
    ) AS n
    WHERE j.ctid = n.tid AND j.state = {READY}
    RETURNING j.lane, ~j.priority AS urgency, j.rank, j.number, n.key, {_STAY_US} AS waited_us
),
{_added_up("key = ANY ($1::text[])", "SELECT key, waited_us, 1 AS stays FROM woken UNION ALL")}
SELECT lane, urgency, rank, number FROM woken
"""
"""Lets so many jobs of a lane go before claims. Those past their deadline would take the room.

Their keys are locked. So it also adds up what others have left to be added (`LEAVE`).
"""
LEAVE: Final = f"""
WITH gone AS (
    UPDATE longshore.job AS j SET {_LEAVE}
    FROM (
        SELECT l.tid, l.key, l.blocked_at
        FROM unnest($1::uuid[]) AS i (id)
        CROSS JOIN LATERAL (
            SELECT ctid AS tid, blocked_on AS key, blocked_at FROM longshore.job
            WHERE id = i.id AND blocked_on IS NOT NULL OFFSET 0
        ) AS l
        OFFSET 0
    ) AS n
    WHERE j.ctid = n.tid
    RETURNING n.key, {_STAY_US} AS waited_us
)
INSERT INTO longshore.key_wait (key, waited_us, stays)
SELECT key, sum(waited_us)::bigint, count(*) FROM gone GROUP BY key
"""
"""Takes jobs, which are locked, away from their keys, because they are ready no more.

It adds nothing to the rows of the keys: whoever has one may wait for a job that this one holds.
"""
ADD_UP: Final = f"""
WITH mine AS (
    SELECT k.key FROM longshore.limit_key AS k
    WHERE k.key = ANY (ARRAY(SELECT DISTINCT key FROM longshore.key_wait LIMIT $1))
    ORDER BY k.key FOR UPDATE SKIP LOCKED
),
{_added_up("key IN (SELECT key FROM mine)")}
SELECT key FROM mine
"""
"""Adds up what was left to be added, for keys that nobody waits for any more."""
HOLDERS: Final = f"""
SELECT j.number, (extract(epoch FROM j.started_at) * 1000000)::bigint AS began, j.options
FROM longshore.hold AS h JOIN longshore.job AS j ON j.id = h.job
WHERE h.key = $1 AND j.token = h.token AND j.state IN ({OWNED}) ORDER BY j.number
"""
EVEN_AT: Final = """
SELECT coalesce((SELECT even_at FROM longshore.limit_key WHERE key = $1), 0) AS even_at,
    (extract(epoch FROM statement_timestamp()) * 1000000)::bigint AS now
"""
FORGET_HOLDS: Final = f"""
WITH gone AS (
    DELETE FROM longshore.hold WHERE ctid = ANY (ARRAY(
        SELECT h.ctid FROM longshore.hold AS h WHERE NOT {_IS_HELD} LIMIT $1 FOR UPDATE SKIP LOCKED
    )) RETURNING 1
)
SELECT count(*) AS n FROM gone
"""
FORGET_KEYS: Final = f"""
WITH gone AS (
    DELETE FROM longshore.limit_key WHERE key = ANY (ARRAY(
        SELECT k.key FROM longshore.limit_key AS k
        WHERE k.even_at < (extract(epoch FROM statement_timestamp()) * 1000000)::bigint
            AND coalesce(k.waited_at < now() - interval '{KEY_WAITS_KEPT_S} s', true)
            AND NOT EXISTS (SELECT FROM longshore.key_wait AS w WHERE w.key = k.key)
            AND NOT EXISTS (SELECT FROM longshore.hold AS h WHERE h.key = k.key)
            AND NOT EXISTS (
                SELECT FROM longshore.job AS b WHERE {_BEHIND} AND b.blocked_on = k.key
            )
        LIMIT $1 FOR UPDATE SKIP LOCKED
    )) RETURNING 1
)
SELECT count(*) AS n FROM gone
"""
"""Removes rows of keys that hold nothing, and for which no job has waited for long.

Whoever needs one again adds it: it says nothing else.
"""
WAITS_OF_KEY: Final = f"""
SELECT k.waited_us + w.waited_us AS waited_us, k.stays + w.stays AS stays, b.jobs, b.now_us
FROM (
    SELECT coalesce(sum(waited_us), 0)::bigint AS waited_us,
        coalesce(sum(stays), 0)::bigint AS stays
    FROM longshore.limit_key WHERE key = $1
) AS k, (
    SELECT coalesce(sum(waited_us), 0)::bigint AS waited_us,
        coalesce(sum(stays), 0)::bigint AS stays
    FROM longshore.key_wait WHERE key = $1
) AS w, (
    SELECT count(*) AS jobs, coalesce(
        extract(epoch FROM sum(statement_timestamp() - blocked_at)) * 1000000, 0
    )::bigint AS now_us
    FROM (
        SELECT b.blocked_at FROM longshore.job AS b WHERE {_BEHIND} AND b.blocked_on = $1
        ORDER BY b.lane, ~b.priority, b.rank, b.number LIMIT $2
    ) AS behind
) AS b
"""
"""How long jobs waited for a key, and the first so many of those that wait now."""
SET_RULE: Final = """
INSERT INTO longshore.limit_rule
    (pattern, concurrency, rate_units, rate_per_s, rate_burst, set_at, weight)
VALUES ($1, $2, $3, $4, $5, statement_timestamp(), $6)
ON CONFLICT (pattern) DO UPDATE SET concurrency = excluded.concurrency,
    rate_units = excluded.rate_units, rate_per_s = excluded.rate_per_s,
    rate_burst = excluded.rate_burst, set_at = excluded.set_at, weight = excluded.weight
"""
REMOVE_RULE: Final = "DELETE FROM longshore.limit_rule WHERE pattern = $1 RETURNING pattern"
LOCK_GATE: Final = """
SET LOCAL lock_timeout = '2s'; LOCK TABLE longshore.limit_gate IN EXCLUSIVE MODE
"""
"""Waits for all transactions that start jobs, and holds up others so long (see `start_rules`)."""
TELL_NEWS: Final = "SELECT nextval('longshore.tally_number')"
"""The next number of the tally is news for processes that cannot listen (see `hints`)."""
