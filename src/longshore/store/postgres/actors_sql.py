"""The statements of actors on PostgreSQL.

Theory of the locks. A transaction that changes an actor first locks its row, with those of all
other actors that it changes, in one statement and by id. Only then does it read mailboxes, in later
statements: these see whatever committed before the lock was granted. After the actors come the
jobs that workers own, then the jobs of next turns that have to change, then what `groups_sql` says.
A worker's job is locked without its actor by ends that are no turns (a failure, a loss); so whoever
holds an actor never waits for a job that it saw running.

Numbers. A mailbox is read from the number behind that which the newest turn has read. Under an old
snapshot the entries of read messages stay in the index, and no lookup passes over them. The newest
turn is the last entry of its index.
"""

from __future__ import annotations

from typing import Final

from longshore.model.actor import TURNS_KEPT
from longshore.store.actor_rows import NEVER
from longshore.store.postgres.states import ACTIVE, CODES, OWNED, STOPPING, S


def micros(at: str) -> str:
    """SQL for a time as microseconds since 1970."""
    return f"(extract(epoch FROM {at}) * 1000000)::bigint"


NOW: Final = micros("statement_timestamp()")

_NAMED: Final = """
    SELECT l.id FROM unnest($1::text[], $2::text[]) AS i (type, key)
    CROSS JOIN LATERAL (
        SELECT id FROM longshore.actor WHERE type = i.type AND key = i.key OFFSET 0
    ) AS l
"""
HOLD: Final = f"""
SELECT a.*
FROM (
    SELECT f.id
    FROM ({_NAMED} UNION SELECT unnest($3::uuid[])) AS f
    ORDER BY f.id OFFSET 0
) AS f
CROSS JOIN LATERAL (
    SELECT number, id, type, key, status, terms FROM longshore.actor WHERE id = f.id FOR UPDATE
) AS a
"""
"""Locks actors by type and key, and by id, in the order of ids."""

NEWEST: Final = """
    SELECT n, at, worker, read_up_to, version, starts, timers FROM longshore.turn
    WHERE actor = {actor} ORDER BY actor DESC, n DESC LIMIT 1
"""
"""SQL for what the newest turn of an actor left, all but the state."""
FIRST_DUE: Final = f"""
    SELECT CASE WHEN due_at < 'infinity' THEN {micros("due_at")} ELSE {NEVER} END
    FROM longshore.message
    WHERE actor = {{actor}} AND due_at IS NOT NULL ORDER BY due_at LIMIT 1
"""
"""SQL for when the first delayed message of an actor is due; parked ones are due never."""

_FIRST_LEFT: Final = FIRST_DUE.format(actor="i.actor").replace(
    "ORDER BY",
    """AND NOT CASE WHEN due_at < 'infinity' THEN number = ANY (ARRAY(
            SELECT d.number FROM unnest($8::bigint[], $9::bigint[]) AS d (actor, number)
            WHERE d.actor = i.actor
        )) ELSE false END ORDER BY""",
)
"""`FIRST_DUE` of the messages that `KEEP` does not remove."""

LOOK: Final = f"""
SELECT i.actor, t.n, t.worker, t.read_up_to, t.version, t.starts, t.timers, {NOW} AS now,
    coalesce((
        SELECT number FROM longshore.message
        WHERE actor = i.actor AND number > t.read_up_to ORDER BY actor DESC, number DESC LIMIT 1
    ), t.read_up_to) AS last,
    EXISTS (
        SELECT FROM longshore.message
        WHERE actor = i.actor AND number > t.read_up_to AND CASE WHEN due_at IS NULL THEN true END
    ) AS has_mail,
    ({FIRST_DUE.format(actor="i.actor")}) AS delayed_at
FROM unnest($1::bigint[]) AS i (actor)
CROSS JOIN LATERAL ({NEWEST.format(actor="i.actor")}) AS t
"""
"""What the next turns of these actors, which are locked, depend on."""

JOBS: Final = f"""
SELECT j.id, j.number, j.token, j.state, j.lane, j.failures, {micros("j.run_at")} AS run_at, j.error
FROM unnest($1::uuid[]) AS i (id)
CROSS JOIN LATERAL (
    SELECT id, number, token, state, lane, failures, run_at, error FROM longshore.job
    WHERE id = i.id OFFSET 0
) AS j
"""
"""The jobs of turns, as far as there are any."""
LOCK_JOBS: Final = f"""
SELECT j.id, j.number, j.state, j.token, j.lane, ~j.priority AS urgency, j.rank, j.worker,
    j.round, j.options, j.group_id, j.watched, j.failures, j.blocked_on,
    {micros("j.run_at")} AS run_at
FROM unnest($1::uuid[]) AS i (id)
CROSS JOIN LATERAL (
    SELECT * FROM longshore.job AS j WHERE j.id = i.id FOR UPDATE
) AS j
"""
OF_JOBS: Final = """
SELECT i.id, j.args
FROM unnest($1::uuid[]) AS i (id)
CROSS JOIN LATERAL (
    SELECT args, actor_id FROM longshore.job WHERE id = i.id OFFSET 0
) AS j
WHERE j.actor_id IS NOT NULL
"""
"""The arguments of these jobs, which name their actors, as far as they are turns."""

# a turn

HOLD_ENDING: Final = f"""
SELECT l.id
FROM (
    SELECT * FROM unnest($1::uuid[], $2::bigint[]) AS i (job, token) ORDER BY i.job
) AS i
CROSS JOIN LATERAL (
    SELECT id FROM longshore.job
    WHERE id = i.job AND token = i.token AND CASE WHEN state IN ({OWNED}) THEN true END
    FOR UPDATE
) AS l
"""
"""Locks the jobs of all ends of a batch that own them, by id."""
TAKE: Final = f"""
WITH gone AS (
    DELETE FROM longshore.job AS j
    USING (
        SELECT i.place, i.token, l.tid, l.state
        FROM (
            SELECT * FROM unnest($1::integer[], $2::uuid[], $3::bigint[], $4::uuid[])
                AS i (place, job, token, worker)
            ORDER BY i.job, i.place
        ) AS i
        CROSS JOIN LATERAL (
            SELECT ctid AS tid, state FROM longshore.job
            WHERE id = i.job AND token = i.token
                AND CASE WHEN state IN ({OWNED}) THEN worker = coalesce(i.worker, worker) END
            OFFSET 0
        ) AS l
        OFFSET 0
    ) AS n
    WHERE j.ctid = n.tid AND j.token = n.token AND j.state = n.state
    RETURNING n.place, j.state, j.lane, j.number, j.worker
),
numbers AS (
    DELETE FROM longshore.job_number WHERE number = ANY (ARRAY(SELECT number FROM gone))
)
SELECT place, state AS was, {CODES[S.SUCCEEDED]}::smallint AS state, lane, worker, {NOW} AS now
FROM gone
"""
"""Removes the jobs of turns that were taken, fenced as `FINISH` is."""

KEEP: Final = f"""
WITH before AS MATERIALIZED (
    SELECT i.*, t.read_up_to AS read_before, l.last,
        least(greatest(i.read_up_to, t.read_up_to), l.last) AS read_now
    FROM unnest(
        $1::bigint[], $2::bigint[], $3::uuid[], $4::bigint[], $5::bigint[], $6::bytea[],
        $7::bytea[]
    ) AS i (actor, n, worker, read_up_to, version, timers, state)
    CROSS JOIN LATERAL ({NEWEST.format(actor="i.actor")}) AS t
    CROSS JOIN LATERAL (
        SELECT coalesce((
            SELECT number FROM longshore.message
            WHERE actor = i.actor AND number > t.read_up_to
            ORDER BY actor DESC, number DESC LIMIT 1
        ), t.read_up_to) AS last
    ) AS l
),
new AS (
    INSERT INTO longshore.turn (
        actor, n, at, worker, read_up_to, version, starts, timers, state
    )
    SELECT actor, n, statement_timestamp(), worker, read_now, version, false, timers, state
    FROM before
),
old AS (
    DELETE FROM longshore.turn AS t
    USING (
        SELECT l.tid FROM before AS b
        CROSS JOIN LATERAL (
            SELECT ctid AS tid FROM longshore.turn
            WHERE actor = b.actor AND n = b.n - {TURNS_KEPT} OFFSET 0
        ) AS l
        OFFSET 0
    ) AS o
    WHERE t.ctid = o.tid
),
mail AS (
    DELETE FROM longshore.message AS m
    USING (
        SELECT l.tid FROM before AS b
        CROSS JOIN LATERAL (
            SELECT ctid AS tid FROM longshore.message
            WHERE actor = b.actor AND number > b.read_before AND number <= b.read_up_to
                AND CASE WHEN due_at IS NULL THEN true END
            OFFSET 0
        ) AS l
        OFFSET 0
    ) AS o
    WHERE m.ctid = o.tid
),
delayed AS (
    DELETE FROM longshore.message AS m
    USING (
        SELECT l.tid FROM unnest($8::bigint[], $9::bigint[]) AS i (actor, number)
        CROSS JOIN LATERAL (
            SELECT ctid AS tid FROM longshore.message
            WHERE actor = i.actor AND number = i.number
                AND CASE WHEN due_at < 'infinity' THEN true END
            OFFSET 0
        ) AS l
        OFFSET 0
    ) AS o
    WHERE m.ctid = o.tid
),
logs AS (
    DELETE FROM longshore.log WHERE job = ANY ($10::uuid[])
)
SELECT i.actor, i.n, i.worker, i.read_now AS read_up_to, i.version, false AS starts, i.timers,
    {NOW} AS now,
    i.last,
    EXISTS (
        SELECT FROM longshore.message
        WHERE actor = i.actor AND number > i.read_now AND CASE WHEN due_at IS NULL THEN true END
    ) AS has_mail,
    ({_FIRST_LEFT}) AS delayed_at
FROM before AS i
"""
"""Keeps what turns left, and removes what they have read and the oldest turn; answers as `LOOK`.

What a turn said goes with its job, in a statement after the one that removed the job: until then
more may come. Parts of a statement do not see what the others change: so the answer leaves out what
the turns have read.
"""

# messages

POST: Final = """
INSERT INTO longshore.message (actor, number, id, name, args, at, due_at, reply_to)
SELECT i.actor, i.number, i.id, i.name, i.args, statement_timestamp(), i.due_at, i.reply_to
FROM unnest(
    $1::bigint[], $2::bigint[], $3::uuid[], $4::text[], $5::bytea[], $6::timestamptz[],
    $7::bytea[]
) AS i (actor, number, id, name, args, due_at, reply_to)
"""
POST_AND_FIND: Final = f"""
WITH posted AS ({POST})
{JOBS.replace("$1", "$8")}
"""
"""`POST` and `JOBS` on one way to the server: neither depends on the other."""
UNREAD: Final = """
SELECT i.actor, (
    SELECT count(*) FROM longshore.message WHERE actor = i.actor AND number > i.read_up_to
) + (
    SELECT count(*) FROM longshore.message
    WHERE actor = i.actor AND due_at IS NOT NULL
        AND CASE WHEN number <= i.read_up_to THEN true END
) AS n, (
    SELECT count(*) FROM longshore.message WHERE actor = i.actor AND due_at = 'infinity'
) AS parked
FROM unnest($1::bigint[], $2::bigint[]) AS i (actor, read_up_to)
"""
"""How many messages are in these mailboxes, and how many of them are parked."""
RECEIVE: Final = """
INSERT INTO longshore.receipt (id, actor, is_ask, at)
SELECT i.id, i.actor, i.is_ask,
    CASE WHEN i.is_kept THEN 'infinity' ELSE statement_timestamp() END
FROM (
    SELECT * FROM unnest($1::uuid[], $2::bigint[], $3::boolean[], $4::boolean[])
        AS i (id, actor, is_ask, is_kept)
    ORDER BY i.id OFFSET 0
) AS i
ON CONFLICT DO NOTHING
RETURNING id
"""
RECEIVED: Final = """
SELECT l.id FROM unnest($1::uuid[]) AS i (id)
CROSS JOIN LATERAL (SELECT id FROM longshore.receipt WHERE id = i.id OFFSET 0) AS l
"""
FORGET_RECEIPTS: Final = "DELETE FROM longshore.receipt WHERE id = ANY ($1::uuid[])"
REPLY: Final = """
UPDATE longshore.receipt AS r
SET reply = n.reply, at = statement_timestamp()
FROM (
    SELECT i.reply, l.tid FROM (
        SELECT * FROM unnest($1::uuid[], $2::bytea[]) AS i (id, reply) ORDER BY i.id OFFSET 0
    ) AS i
    CROSS JOIN LATERAL (
        SELECT ctid AS tid FROM longshore.receipt
        WHERE id = i.id AND CASE WHEN is_ask THEN reply IS NULL END OFFSET 0
    ) AS l
    OFFSET 0
) AS n
WHERE r.ctid = n.tid AND r.reply IS NULL
RETURNING r.id
"""
"""The first reply to an ask counts. Its receipt changes only under its actor's lock."""
KEEP_READ: Final = """
WITH said AS (
    DELETE FROM longshore.log WHERE job = ANY ($1::uuid[])
)
INSERT INTO longshore.receipt (id, actor, is_ask, reply)
SELECT i.id, 0, true, i.reply FROM (
    SELECT * FROM unnest($1::uuid[], $2::bytea[]) AS i (id, reply) ORDER BY i.id OFFSET 0
) AS i
ON CONFLICT DO NOTHING
"""
"""The replies of jobs that read actors. Nothing else of these jobs is kept."""
REPLIES: Final = """
SELECT l.reply FROM unnest($1::uuid[]) AS i (id)
CROSS JOIN LATERAL (
    SELECT reply FROM longshore.receipt
    WHERE id = i.id AND CASE WHEN reply IS NOT NULL THEN true END OFFSET 0
) AS l
"""
FORGET_OLD: Final = f"""
WITH old AS (
    DELETE FROM longshore.receipt AS r
    USING (
        SELECT ctid AS tid FROM longshore.receipt
        WHERE at >= $1 AND at <= statement_timestamp() - make_interval(secs => $2)
        ORDER BY at LIMIT $3
        FOR UPDATE SKIP LOCKED
    ) AS n
    WHERE r.ctid = n.tid
    RETURNING r.at
)
SELECT count(*) AS n, coalesce(max(at), $1) AS up_to, {NOW} AS now FROM old
"""
"""Forgets ids of messages. It starts behind the dead entries that earlier calls left."""

# starting and stopping

START: Final = f"""
INSERT INTO longshore.actor (id, status, type, key, terms)
SELECT i.id, {ACTIVE}, i.type, i.key, i.terms FROM (
    SELECT * FROM unnest($1::uuid[], $2::text[], $3::text[], $4::bytea[])
        WITH ORDINALITY AS i (id, type, key, terms, place)
    ORDER BY i.type COLLATE "C", i.key COLLATE "C", i.place OFFSET 0
) AS i
ON CONFLICT DO NOTHING
RETURNING id, number
"""
FIRST_TURNS: Final = """
INSERT INTO longshore.turn (actor, n, at, worker, read_up_to, version, starts, timers, state)
SELECT i.actor, 0, statement_timestamp(), NULL, 0, i.version, true, $4, i.state
FROM unnest($1::bigint[], $2::bigint[], $3::bytea[]) AS i (actor, version, state)
"""
KNOWN: Final = f"""
SELECT a.id, a.type, a.key, a.status
FROM ({_NAMED} UNION SELECT unnest($3::uuid[])) AS f
CROSS JOIN LATERAL (
    SELECT id, type, key, status FROM longshore.actor WHERE id = f.id OFFSET 0
) AS a
"""
SET_STATUS: Final = """
UPDATE longshore.actor SET status = $2 WHERE id = ANY ($1::uuid[])
"""
STOPPED: Final = f"SELECT id FROM longshore.actor WHERE status = {STOPPING} ORDER BY id LIMIT $1"

ASKS: Final = """
SELECT i.id AS actor, l.id, l.reply_to
FROM unnest($1::uuid[]) AS i (id)
CROSS JOIN LATERAL (SELECT number FROM longshore.actor WHERE id = i.id OFFSET 0) AS a
CROSS JOIN LATERAL (
    (
        SELECT id, NULL::bytea AS reply_to, 0 AS number FROM longshore.receipt
        WHERE actor = a.number AND is_ask AND reply IS NULL
    )
    UNION ALL
    (
        SELECT id, reply_to, number FROM longshore.message
        WHERE actor = a.number AND CASE WHEN reply_to IS NOT NULL THEN true END
    )
) AS l
ORDER BY l.number
"""
"""The asks that these actors have not replied to: from outside, and then from other actors.

Those from outside wait although the message was read; they are among the messages too, if not.
"""
REMOVE: Final = """
WITH mail AS (
    DELETE FROM longshore.message WHERE actor = ANY ($2::bigint[])
),
turns AS (
    DELETE FROM longshore.turn WHERE actor = ANY ($2::bigint[])
),
kept AS (
    DELETE FROM longshore.receipt WHERE actor = ANY ($2::bigint[]) AND at = 'infinity'
),
listed AS (
    DELETE FROM longshore.listed_field WHERE actor = ANY ($2::bigint[])
),
known AS (
    INSERT INTO longshore.receipt (id, actor, is_ask)
    SELECT i.id, i.actor, false FROM (
        SELECT * FROM unnest($1::uuid[], $2::bigint[]) AS i (id, actor) ORDER BY i.id OFFSET 0
    ) AS i
    ON CONFLICT DO NOTHING
)
DELETE FROM longshore.actor WHERE id = ANY ($1::uuid[])
"""
"""Removes actors. Their ids are kept for an hour: a late repeat of a start makes nothing."""
UNDO_START: Final = "DELETE FROM longshore.actor WHERE id = ANY ($1::uuid[])"

LAST: Final = """
SELECT n, worker, version, state FROM longshore.turn
WHERE actor = $1 ORDER BY actor DESC, n DESC LIMIT 1
"""
EDIT: Final = f"""
WITH last AS MATERIALIZED ({NEWEST.format(actor="$1::bigint")}),
old AS (
    DELETE FROM longshore.turn USING last
    WHERE turn.actor = $1 AND turn.n = last.n + 1 - {TURNS_KEPT}
)
INSERT INTO longshore.turn (actor, n, at, worker, read_up_to, version, starts, timers, state)
SELECT $1, n + 1, statement_timestamp(), NULL, read_up_to, $2, starts OR $4,
    CASE WHEN $4 THEN $5 ELSE timers END, $3
FROM last
"""
"""A turn that nobody ran. With $4 the actor starts anew, with the timers $5."""

SORT_MAIL: Final = """
UPDATE longshore.message SET due_at = CASE WHEN $3 THEN 'infinity' ELSE statement_timestamp() END
WHERE actor = $1 AND number = $2
"""
DROP_MAIL: Final = "DELETE FROM longshore.message WHERE actor = $1 AND number = $2"
MAIL_ITEM: Final = """
SELECT coalesce(due_at = 'infinity', false) AS parked FROM longshore.message
WHERE actor = $1 AND number = $2
"""

# what turns get

ERRORS: Final = "SELECT id, error FROM longshore.job WHERE id = ANY ($1::uuid[])"
SECRET: Final = "SELECT value FROM longshore.secret WHERE name = 'callbacks'"
_EVENTS: Final = f"""
    SELECT array_agg(m.number) AS numbers, array_agg(m.id) AS ids, array_agg(m.name) AS names,
        array_agg(m.args) AS args, array_agg({micros("coalesce(m.due_at, m.at)")}) AS times,
        array_agg(m.due_at IS NOT NULL) AS was_delayed, array_agg(m.reply_to) AS reply_to
    FROM (
        SELECT * FROM (
            SELECT f.*, sum(octet_length(f.args)) OVER (ORDER BY f.number) - octet_length(f.args)
                AS before
            FROM (
                SELECT * FROM longshore.message
                WHERE actor = a.number AND number > t.read_up_to
                    AND CASE WHEN due_at IS NULL THEN true END
                ORDER BY actor, number LIMIT $2
            ) AS f
        ) AS mail
        WHERE mail.before < $3
        UNION ALL
        SELECT * FROM (
            SELECT f.*, sum(octet_length(f.args)) OVER (ORDER BY f.due_at, f.number)
                - octet_length(f.args) AS before
            FROM (
                SELECT * FROM longshore.message
                WHERE actor = a.number AND due_at <= statement_timestamp()
                ORDER BY actor, due_at LIMIT $2
            ) AS f
        ) AS delayed
        WHERE delayed.before < $3
    ) AS m
"""
"""SQL for the first messages of an actor, as many as one turn takes, and those that came due."""

INPUTS: Final = f"""
SELECT a.id, a.number, a.type, a.key, a.status, t.*, {NOW} AS now, ({SECRET}) AS secret, m.*
FROM unnest($1::uuid[]) AS i (id)
CROSS JOIN LATERAL (
    SELECT id, number, type, key, status FROM longshore.actor WHERE id = i.id OFFSET 0
) AS a
CROSS JOIN LATERAL (
    SELECT n, worker, read_up_to, version, starts, timers, state FROM longshore.turn
    WHERE actor = a.number ORDER BY actor DESC, n DESC LIMIT 1
) AS t
CROSS JOIN LATERAL ({_EVENTS}) AS m
"""
"""What turns of these actors get. An array for each column of their messages costs least."""

# showing

_SHOWN: Final = """
SELECT a.id, a.number, a.type, a.key, a.status, a.terms, a.created_at, t.*
FROM ({{which}}) AS a
CROSS JOIN LATERAL (
    SELECT n, at, worker, read_up_to, version, timers{state} FROM longshore.turn
    WHERE actor = a.number ORDER BY actor DESC, n DESC LIMIT 1
) AS t
"""
ONE: Final = _SHOWN.format(state=", state").format(
    which="SELECT * FROM longshore.actor WHERE type = $1 AND key = $2"
)
_PAGE: Final = _SHOWN.format(state="") + "ORDER BY a.type, a.key"
_FROM_PLACE: Final = """
    SELECT * FROM longshore.actor WHERE {after} ORDER BY type, key LIMIT $3
"""
_PLACES: Final = {
    (False, False): "$1::text IS NULL AND $2::text IS NULL",
    (False, True): "(type, key) > ($1, $2)",
    (True, False): "type = $1 AND $2::text IS NULL",
    (True, True): "type = $1 AND key > $2",
}
PAGES: Final = {
    kind: _PAGE.format(which=_FROM_PLACE.format(after=after)) for kind, after in _PLACES.items()
}
"""The next $3 actors: whether of one type, and whether after a place; then $1 and $2 say which."""
LISTED_PAGE: Final = _PAGE.format(
    which="""
    SELECT a.* FROM (
        SELECT key FROM longshore.listed_field
        WHERE type = $1 AND field = $2 AND value = $3 AND key > $4 ORDER BY key LIMIT $5
    ) AS l
    CROSS JOIN LATERAL (
        SELECT * FROM longshore.actor WHERE type = $1 AND key = l.key OFFSET 0
    ) AS a
"""
)
"""The next $5 actors of a type after a key that are listed by this value of a field."""
NEWEST_OF: Final = f"SELECT n FROM ({NEWEST.format(actor='$1::bigint')}) AS t"
TURNS: Final = """
SELECT t.n, t.at, t.worker, t.read_up_to, t.version, t.state, t.timers
FROM (SELECT number FROM longshore.actor WHERE type = $1 AND key = $2 OFFSET 0) AS a
CROSS JOIN LATERAL (
    SELECT * FROM longshore.turn WHERE actor = a.number ORDER BY actor DESC, n DESC LIMIT $3
) AS t
ORDER BY t.n DESC
"""
MAIL: Final = f"""
SELECT m.number, m.name, m.args, m.at,
    CASE WHEN m.due_at < 'infinity' THEN m.due_at END AS due_at,
    coalesce(m.due_at = 'infinity', false) AS parked
FROM (SELECT number FROM longshore.actor WHERE type = $1 AND key = $2 OFFSET 0) AS a
CROSS JOIN LATERAL ({NEWEST.format(actor="a.number")}) AS t
CROSS JOIN LATERAL (
    (
        SELECT * FROM longshore.message
        WHERE actor = a.number AND number > t.read_up_to ORDER BY actor, number LIMIT $3
    )
    UNION ALL
    (
        SELECT * FROM longshore.message
        WHERE actor = a.number AND due_at IS NOT NULL
            AND CASE WHEN number <= t.read_up_to THEN true END
        ORDER BY actor, due_at
    )
) AS m
ORDER BY m.number
LIMIT $3
"""
