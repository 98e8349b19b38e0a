"""The SQL of fairness on PostgreSQL."""

from __future__ import annotations

from typing import Final

from longshore.core.fairness import ALL, LOOKED_AT, NEW
from longshore.store.postgres.sql import inserted
from longshore.store.postgres.states import READY

SUBMIT_RANKED: Final = f"""{inserted(started=False, limited=True, ranked=True)}
SELECT id, number, state, lane, token FROM new
"""
"""Stores ready jobs whose turns are known."""

_KEYS: Final = "unnest($1::bigint[], $2::smallint[], $3::text[]) AS i (lane, priority, key)"
ADD_ACCOUNTS: Final = f"""
INSERT INTO longshore.fair_key (lane, priority, key)
SELECT lane, priority, key FROM {_KEYS} ORDER BY 1, 2, 3
ON CONFLICT DO NOTHING
"""
_ACCOUNTS: Final = f"""
SELECT k.lane, k.priority, k.key, k.finish, k.owed, k.open_jobs, k.open_cost, k.runs, k.mean_s
FROM longshore.fair_key AS k
WHERE (k.lane, k.priority, k.key) IN (SELECT lane, priority, key FROM {_KEYS})
ORDER BY k.lane, k.priority, k.key FOR UPDATE
"""
LOCK_ACCOUNTS: Final = _ACCOUNTS
TRY_ACCOUNTS: Final = f"{_ACCOUNTS.rstrip()} OF k SKIP LOCKED\n"
"""Locks those that nobody else has. What depends on the lock is read in a later statement."""

GROUNDS: Final = f"""
WITH level AS MATERIALIZED (
    SELECT i.lane, i.priority, f.*, coalesce(u.mean_s, 0) AS usual_s
    FROM unnest($4::bigint[], $5::smallint[], $6::bigint[], $7::bigint[])
        AS i (lane, priority, rank, number)
    CROSS JOIN LATERAL (
        SELECT min(w.rank) FILTER (WHERE w.fair IS NOT NULL AND w.attempt = 0) AS first_fair,
            max(w.rank) AS furthest, count(*) AS seen
        FROM (
            SELECT j.rank, j.fair, j.attempt FROM longshore.job AS j
            WHERE j.state = {READY} AND j.blocked_on IS NULL AND j.lane = i.lane
                AND ~j.priority = ~i.priority AND (j.rank, j.number) > (i.rank, i.number)
            ORDER BY j.rank, j.number LIMIT {LOOKED_AT}
        ) AS w
    ) AS f
    LEFT JOIN longshore.fair_key AS u
        ON u.lane = i.lane AND u.priority = i.priority AND u.key = '{ALL}'
)
SELECT i.lane, i.priority, i.key, l.first_fair, l.furthest, l.seen, l.usual_s,
    (SELECT last_value + 1 FROM longshore.number) AS number, (
        SELECT j.rank FROM longshore.job AS j
        WHERE j.state = {READY} AND j.fair IS NOT NULL AND j.blocked_on IS DISTINCT FROM '{NEW}'
            AND j.fair = i.key AND j.lane = i.lane AND ~j.priority = ~i.priority
        ORDER BY j.rank DESC, j.number DESC LIMIT 1
    ) AS last
FROM {_KEYS} JOIN level AS l ON l.lane = i.lane AND l.priority = i.priority
"""
"""What turns of these keys depend on. The lanes come with how far claims came there."""

KEEP_ACCOUNTS: Final = """
UPDATE longshore.fair_key AS k
SET finish = i.finish, owed = i.owed, open_jobs = i.open_jobs, open_cost = i.open_cost,
    runs = i.runs, mean_s = i.mean_s, noted_at = statement_timestamp()
FROM unnest($1::bigint[], $2::smallint[], $3::text[], $4::float8[], $5::float8[], $6::bigint[],
    $7::float8[], $8::bigint[], $9::float8[])
    AS i (lane, priority, key, finish, owed, open_jobs, open_cost, runs, mean_s)
WHERE k.lane = i.lane AND k.priority = i.priority AND k.key = i.key
"""
READIED: Final = f"""
SELECT l.id, l.lane, l.priority, l.fair, l.number
FROM unnest($1::bigint[]) AS i (lane)
CROSS JOIN LATERAL (
    SELECT j.id, j.lane, j.priority, j.fair, j.number FROM longshore.job AS j
    WHERE j.state = {READY} AND j.blocked_on = '{NEW}' AND j.lane = i.lane
    ORDER BY ~j.priority, j.rank, j.number LIMIT $2
    FOR UPDATE SKIP LOCKED
) AS l
LIMIT $2
"""
"""Locks jobs of these lanes that became ready and have no turn yet."""

GIVE_TURNS: Final = f"""
UPDATE longshore.job AS j
SET rank = i.rank, fair = i.key, blocked_on = NULL,
    concurrency_key = nullif(j.concurrency_key, '')
FROM unnest($1::uuid[], $2::bigint[], $3::text[]) AS i (id, rank, key)
WHERE j.id = i.id AND j.state = {READY}
"""
BEFORE: Final = f"""
SELECT (
    SELECT count(*) FROM (
        SELECT FROM longshore.job AS a
        WHERE a.state = {READY} AND a.fair IS NOT NULL AND a.blocked_on IS DISTINCT FROM '{NEW}'
            AND a.fair = j.fair AND a.lane = j.lane AND ~a.priority = ~j.priority
            AND (a.rank, a.number) < (j.rank, j.number)
        LIMIT $2
    ) AS found
) AS before, j.blocked_on IS NOT DISTINCT FROM '{NEW}' AS is_new
FROM longshore.job AS j WHERE j.id = $1 AND j.state = {READY}
"""
"""How many jobs of the same key are before a ready one, up to a bound."""

FORGET_ACCOUNTS: Final = f"""
DELETE FROM longshore.fair_key WHERE ctid = ANY (ARRAY(
    SELECT k.ctid FROM longshore.fair_key AS k
    WHERE k.noted_at < statement_timestamp() - $2 * interval '1 s' AND NOT EXISTS (
        SELECT FROM longshore.job AS j
        WHERE j.state = {READY} AND j.fair IS NOT NULL AND j.blocked_on IS DISTINCT FROM '{NEW}'
            AND j.fair = k.key AND j.lane = k.lane AND ~j.priority = ~k.priority
    )
    LIMIT $1 FOR UPDATE SKIP LOCKED
))
"""
"""Forgets keys of which nothing was heard for so long, and of which no job waits."""
