"""The hot statements of the PostgreSQL store: submit, finish, claim.

Theory of the claim. One statement does five things; what it reads depends only on what it takes.

1. `slot`: of the slots wanted, those whose worker is alive, not draining, in that session and
   attended by this dispatcher. Their rows are held FOR KEY SHARE until the commit, so that nobody
   can declare such a worker lost, or adopt it, under the claim. The claim skips a row that harvest
   or attend holds right now: they may be waiting for a job that this transaction holds.
2. `front`: for n slots, the first n jobs of each range of each lane (see `cursors`), straight from
   the index `job_ready` without any lock; of all these, the first n. It leaves out jobs past their
   deadline, which never run again unless they are retried, and lanes whose jobs may not start (see
   `start_rules`). `best` counts, for each job, the bytes of the arguments before it: past $11
   nothing is taken. PostgreSQL knows their lengths without reading them. A claim ahead names in
   $12 the lanes of jobs that may be held ahead: from the first job on that may not, nothing is
   taken (see `core.lookahead`). So it is with the first job that has limits, or is in a lane that
   rules limit (see `limited_claims`); `ruled` says whether there are rules for lanes at all.
3. `locked`: those rows FOR UPDATE, if they are still ready and no other claim holds them. Only now
   are they numbered, so that a row that was skipped leaves no slot empty.
4. The update: the i-th locked row goes to the i-th slot under a new token.
5. The statement returns what the workers need, and how many rows it saw. If it saw more than it
   could lock, another claim was at these lanes, and there may be more behind.

Plans. PostgreSQL makes a plan once and keeps it, perhaps while the tables are still empty. So no
statistics may sway it. Every lookup is a LATERAL subquery that can use only one index. Rows found
once are found again by ctid. Small tables travel as arrays that are subscripted, not joined. The
settings in `STEADY` rule out what would still be possible. OFFSET 0 keeps the planner from
dissolving a subquery; CASE hides conditions from indexes that are not meant.

Concurrent changes. A row changed by another transaction after the statement began has a newer
version under another ctid. Whether PostgreSQL then compares the ctid again depends on its minor
version; so every update by ctid also compares token or state, or follows an explicit lock. A row
missed in this way is tried again by the caller.

Times. A job's times are those of its statement's begin. The transaction may have begun long before
and waited for another one: then its times would come before those of the other.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from longshore.core.lifecycle import HISTORY_FIRST, HISTORY_LAST
from longshore.store.postgres.keyed_columns import with_keys
from longshore.store.postgres.start_rules import (
    HAS_RULES,
    lane_is_ruled,
    lane_may_start,
    may_start,
)
from longshore.store.postgres.states import (
    DELAYED,
    OWNED,
    READY,
    RUNNING,
    SUCCEEDED,
    S,
    head,
)

_AT: Final = "(SELECT (extract(epoch FROM statement_timestamp()) * 1000000)::bigint::text)"
MOST_ENTRIES: Final = HISTORY_FIRST + HISTORY_LAST

MARK: Final = "SELECT pg_logical_emit_message(true, 'longshore', '')"
"""A few bytes in the write-ahead log and nothing else, so that the commit is one that wrote."""

LEFT_S: Final = "extract(epoch FROM j.deadline_at - statement_timestamp())::float8"
"""SQL for how many seconds job j has to begin; NULL if it does not expire."""

WAITED_S: Final = """CASE WHEN j.attempt = 1 AND j.group_id IS NULL THEN
    extract(epoch FROM j.started_at - greatest(j.created_at, j.run_at))::float8 END"""
"""SQL for how long job j, which starts now, was ready; NULL if that is not known."""

NOTHING: Final = """'""'"""
"""SQL for an empty text as JSON."""

_BY_WORKER: Final = """'"' || j.worker || '"'"""
"""SQL for the name of the worker that owns job j, as JSON."""


_FIRST_ENTRIES: Final = {
    state: f"""'{head(state)[1:]}' || {_AT} || ',"",""]'"""
    for state in (S.WAITING, S.DELAYED, S.READY)
}
NEW_NODE_ENTRY: Final = _FIRST_ENTRIES[S.WAITING]
"""SQL for the history of a new job of a group."""

_FIRST_ENTRY: Final = f"""CASE n.state WHEN {DELAYED} THEN {_FIRST_ENTRIES[S.DELAYED]}
            ELSE {_FIRST_ENTRIES[S.READY]} END"""
"""SQL for the history of a new job, n."""


def appended(head: str, by: str, info: str, row: str = "j", undo: str = "false") -> str:
    """SQL that adds an entry to a row's history and keeps the first few and the last.

    `head`, `by` and `info` are SQL too: for how the entry begins, and for two JSON texts. Where
    `undo` holds, the last entry goes instead.
    """
    entry = f"""{head} || {_AT} || ',' || {by} || ',' || {info} || ']'"""
    whole = _without(f"{row}.history || {entry}", HISTORY_FIRST)
    return f"""history = CASE WHEN {undo} THEN {_without(f"{row}.history", -1)}
        WHEN {row}.history_length < {MOST_ENTRIES} THEN {row}.history || {entry}
        ELSE {whole} END,
    history_length = least(
        {row}.history_length + CASE WHEN {undo} THEN -1 ELSE 1 END, {MOST_ENTRIES}
    )"""


def _without(history: str, place: int) -> str:
    """SQL for a history without the entry in this place."""
    whole = f"(('[' || {history} || ']')::jsonb - ({place}))::text"
    return f"substr({whole}, 2, length({whole}) - 2)"


CHANGE_COLUMNS: Final = {
    "state": "smallint",
    "new_token": "boolean",
    "keeps_owner": "boolean",
    "ends": "boolean",
    "failures": "integer",
    "crashes": "integer",
    "keeps_error": "boolean",
    "error": "bytea",
    "delay_s": "float8",
    "head": "text",
    "by": "text",
    "info": "text",
    "undoes_claim": "boolean",
    "keeps_deadline": "boolean",
    "deadline_s": "float8",
}
"""The changes of a batch (see `core.effects`), each in its place, as statements take them."""


def changed(first: int, *, new_round: bool = False, began_at: str = "j.started_at") -> str:
    """SQL that applies the change in place n.change to row j, all but its result.

    The columns of the changes are the parameters from number `first` on. Without `by` it was the
    job's worker. `began_at` is SQL for when the attempt began.
    """
    of = {
        name: f"(${place}::{type}[])[n.change]"
        for place, (name, type) in enumerate(CHANGE_COLUMNS.items(), first)
    }
    by = f"coalesce({of['by']}, {_BY_WORKER})"
    failures, crashes = ("0", "0") if new_round else ("j.failures", "j.crashes")
    undo = of["undoes_claim"]
    also = (
        "round = j.round + 1, started_at = NULL, result = NULL,"
        if new_round
        else f"""attempt = j.attempt - CASE WHEN {undo} THEN 1 ELSE 0 END,
    started_at = CASE WHEN NOT {undo} THEN {began_at} END,"""
    )
    return f"""state = {of["state"]},
    token = CASE WHEN {of["new_token"]} THEN nextval('longshore.token') ELSE j.token END,
    worker = CASE WHEN {of["keeps_owner"]} THEN j.worker END,
    session = CASE WHEN {of["keeps_owner"]} THEN j.session END,
    ended_at = CASE WHEN {of["ends"]} THEN statement_timestamp() END,
    failures = {failures} + {of["failures"]},
    crashes = {crashes} + {of["crashes"]},
    error = CASE WHEN {of["keeps_error"]} THEN j.error ELSE {of["error"]} END,
    run_at = coalesce(statement_timestamp() + {of["delay_s"]} * interval '1 s', j.run_at),
    deadline_at = CASE WHEN {of["keeps_deadline"]} THEN j.deadline_at
        ELSE statement_timestamp() + {of["deadline_s"]} * interval '1 s' END,
    expires_at = NULL, {also}
    {appended(of["head"], by, of["info"], undo=undo)}"""


def started_or_ready(slot: str, deadline_s: str, workers: str, sessions: str, margin_s: str) -> str:
    """SQL that starts row j, which waited for other jobs, on a slot; without one it is ready.

    All that it is given is SQL too. The history has room for two more entries.
    """
    ready = f"""'{head(S.READY)}' || {_AT} || ',"",""]'"""
    worker = f"({workers}::uuid[])[{slot}]"
    running = f"""'{head(S.RUNNING)}' || {_AT} || ',"' || {worker} || '",""]'"""
    has_slot = f"CASE WHEN {slot} IS NOT NULL"
    whole = _without(f"j.history || {ready}", HISTORY_FIRST)
    return f"""state = {has_slot} THEN {RUNNING} ELSE {READY} END,
    token = {has_slot} THEN nextval('longshore.token') ELSE j.token END,
    worker = {worker}, session = ({sessions}::bigint[])[{slot}],
    attempt = j.attempt + {has_slot} THEN 1 ELSE 0 END,
    started_at = {has_slot} THEN statement_timestamp() ELSE j.started_at END,
    expires_at = {has_slot}
        THEN statement_timestamp() + (j.timeout_s + {margin_s}) * interval '1 s' END,
    deadline_at = statement_timestamp() + {deadline_s} * interval '1 s',
    history = {has_slot} THEN j.history || {ready} || {running}
        WHEN j.history_length < {MOST_ENTRIES} THEN j.history || {ready} ELSE {whole} END,
    history_length = least(j.history_length + {has_slot} THEN 2 ELSE 1 END, {MOST_ENTRIES})"""


_CLAIMED: Final = appended(
    f"'{head(S.RUNNING)}'",
    by="""'"' || ($1::uuid[])[{place}] || '"'""",
    info=NOTHING,
)

CAN_TAKE: Final = """w.id = {worker} AND CASE
            WHEN w.alive AND NOT w.draining
                THEN w.session = {session} AND w.dispatcher = {dispatcher}
        END"""
"""SQL for whether worker w has a slot that a dispatcher may fill."""
MAY_TAKE: Final = f"""ARRAY(
    SELECT l.id IS NOT NULL
    FROM unnest({{workers}}::uuid[], {{sessions}}::bigint[])
        WITH ORDINALITY AS i (worker, session, place)
    LEFT JOIN LATERAL (
        SELECT w.id FROM longshore.worker AS w
        WHERE {CAN_TAKE.format(worker="i.worker", session="i.session", dispatcher="{dispatcher}")}
        FOR KEY SHARE SKIP LOCKED
    ) AS l ON true
    ORDER BY i.place
)"""
_MAY_ALL: Final = f"""may AS MATERIALIZED (
    SELECT {MAY_TAKE.format(workers="$18", sessions="$19", dispatcher="$20")} AS slots, ARRAY(
        SELECT {may_start("i.queue", "i.kind")}
        FROM unnest($11::text[], $10::text[]) WITH ORDINALITY AS i (queue, kind, place)
        ORDER BY i.place
    ) AS queues
),"""
_MAY_ONE: Final = f"""may AS MATERIALIZED (
    SELECT FROM longshore.worker AS w
    WHERE {CAN_TAKE.format(worker="$18::uuid", session="$19::bigint", dispatcher="$20::uuid")}
        AND {may_start("$11::text", "$10::text")}
    FOR KEY SHARE SKIP LOCKED
),"""
_OWN: Final = {
    "id": "uuid",
    "body_hash": "bigint",
    "args": "bytea",
    "own_shape": "integer",
    "unique_key": "text",
    "run_at": "timestamptz",
    "delay_s": "float8",
}
"""The first parameters: what differs from job to job. A shape is the place of what jobs share.

An empty array stands for a column without a value; a job without a shape has the first one.
"""
_SHARED: Final = ("bigint", "smallint", *["text"] * 3, "bytea", "float8", "float8", "boolean")
"""The types of the parameters behind these: what jobs of one shape share."""
_SHARED_EACH: Final = (
    "".join(f", ${n}::{of}[]" for n, of in enumerate(_SHARED, len(_OWN) + 1)),
    "".join(f", own_{n}" for n, _ in enumerate(_SHARED, len(_OWN) + 1)),
)
"""These as parameters of each job, and their names."""


def inserted(
    *,
    started: bool,
    one: bool = False,
    turns: bool = False,
    limited: bool = False,
    ranked: bool = False,
    each: bool = False,
    first: str = "",
    guard: str = "true",
) -> str:
    """SQL that inserts the jobs whose id and unique key are free.

    With `started`, a job runs from the start if its slot may take it. With `one`, the parameters
    are those of a single job, not arrays, which cost more to take apart. With `turns`, the jobs are
    turns of actors, whose numbers come last. With `limited`, what is `KEYED` comes last; with
    `ranked`, their ranks too. With `each`, jobs share nothing (see `columns`). What `first` selects
    precedes it, and can `guard` it.
    """
    shared = _shared_as(one=one, each=each)
    own = ", ".join(f"${n}::{of}{'' if one else '[]'}" for n, of in enumerate(_OWN.values(), 1))
    own, names = own + _SHARED_EACH[0] * each, ", ".join(_OWN) + _SHARED_EACH[1] * each
    if started:
        own, names = f"{own}, $17::integer{'' if one else '[]'}", f"{names}, slot"
    if turns:
        own = f"{own}, ${22 if started else 17}::bigint{'' if one else '[]'}"
        names = f"{names}, actor"
    rows = f"(VALUES ({own}))" if one else f"unnest({own})"
    may = (_MAY_ONE if one else _MAY_ALL) if started else ""
    also, values = _begun(one, shared(14, "float8")) if started else ("", _FIRST_ENTRY)
    if turns:
        also, values = f"{also}, actor_id", f"{values}, n.actor"
    if limited:
        first_own = 18 if turns else 17
        own, names, also, values = with_keys((own, names, also, values), first_own, ranked=ranked)
        rows = f"unnest({own})"
    return f"""
WITH {first} {may} new AS (
    INSERT INTO longshore.job (
        id, body_hash, args, unique_key, run_at, lane, priority, kind, queue, target, options,
        timeout_s, deadline_at, watched, created_at, state, history{also}
    )
    SELECT
        n.id, n.body_hash, n.args, n.unique_key, n.due_at,
        {shared(8, "bigint")}, {shared(9, "smallint")}, {shared(10, "text")},
        {shared(11, "text")}, {shared(12, "text")}, {shared(13, "bytea")},
        {shared(14, "float8")},
        greatest(n.due_at, statement_timestamp()) + {shared(15, "float8")} * interval '1 s',
        {shared(16, "boolean")}, statement_timestamp(), n.state, {values}
    FROM (
        SELECT d.*,
            CASE WHEN d.due_at > statement_timestamp()
                THEN {DELAYED} ELSE {_due(started, one)} END AS state
        FROM (
            SELECT i.*, coalesce(i.own_shape, 1) AS shape, CASE
                WHEN i.delay_s IS NULL THEN i.run_at
                ELSE statement_timestamp() + greatest(i.delay_s, 0) * interval '1 s'
            END AS due_at
            FROM {rows} AS i ({names})
        ) AS d
        OFFSET 0
    ) AS n
    WHERE {guard}
    ON CONFLICT DO NOTHING
    RETURNING id, number, state, lane, token
),
numbered AS (
    INSERT INTO longshore.job_number (number, id) SELECT number, id FROM new
)"""


def _shared_as(*, one: bool, each: bool) -> Callable[[int, str], str]:
    """How the insert names a parameter that jobs may share, by its number and type."""
    if each:
        return "n.own_{}::{}".format
    return "${}::{}".format if one else "(${}::{}[])[n.shape]".format


def _due(started: bool, one: bool) -> str:
    """SQL for the state of a job whose time has come."""
    if not started:
        return str(READY)
    may = (
        "EXISTS (SELECT FROM may)"
        if one
        else "(SELECT slots FROM may)[d.slot] AND (SELECT queues FROM may)[d.shape]"
    )
    return f"CASE WHEN {may} THEN {RUNNING} ELSE {READY} END"


def _begun(one: bool, timeout_s: str) -> tuple[str, str]:
    """The columns of an attempt, and SQL for them and for the history before them."""
    worker, session = (
        ("$18::uuid", "$19::bigint")
        if one
        else ("($18::uuid[])[n.slot]", "($19::bigint[])[n.slot]")
    )
    columns = ", history_length, token, worker, session, attempt, started_at, expires_at"
    values = f"""CASE WHEN n.state = {RUNNING} THEN
            {_FIRST_ENTRIES[S.READY]} || '{head(S.RUNNING)}' || {_AT} || ',"' || {worker} || '",""]'
            ELSE {_FIRST_ENTRY} END,
        CASE WHEN n.state = {RUNNING} THEN 2 ELSE 1 END,
        CASE WHEN n.state = {RUNNING} THEN nextval('longshore.token') ELSE 0 END,
        CASE WHEN n.state = {RUNNING} THEN {worker} END,
        CASE WHEN n.state = {RUNNING} THEN {session} END,
        CASE WHEN n.state = {RUNNING} THEN 1 ELSE 0 END,
        CASE WHEN n.state = {RUNNING} THEN statement_timestamp() END,
        CASE WHEN n.state = {RUNNING}
            THEN statement_timestamp() + ({timeout_s} + $21) * interval '1 s' END"""
    return columns, values


TALLIED: Final = """
tallied AS (
    INSERT INTO longshore.tally (lane, state, delta)
    SELECT lane, state, count(*) FROM new GROUP BY lane, state
)"""
_ACCEPTED: Final = inserted(started=False)
_STARTED: Final = inserted(started=True)

SUBMIT: Final = f"""{_ACCEPTED}
SELECT id, number, state, lane, token FROM new
"""
"""Stores jobs."""

SUBMIT_TURNS: Final = f"""{inserted(started=False, turns=True)}
SELECT id, number, state, lane, token FROM new
"""
"""Stores turns of actors."""

START_TURNS: Final = f"""{inserted(started=True, turns=True)}
SELECT id, number, state, lane, token FROM new
"""
"""Stores turns of actors, and starts those that can run now, if their slots allow."""

SUBMIT_STARTED: Final = f"""{_STARTED}
SELECT id, number, state, lane, token FROM new
"""
"""Stores jobs as `SUBMIT` does, and starts those that can run now, if their slots allow."""

SUBMIT_ALONE: Final = f"""{_STARTED},{TALLIED}
SELECT id, number, state, lane, token FROM new
"""
"""`SUBMIT_STARTED` as a transaction of its own, which needs neither BEGIN nor COMMIT."""

SUBMIT_ONE: Final = f"""{inserted(started=True, one=True)},{TALLIED}
SELECT id, number, state, lane, token FROM new
"""
"""`SUBMIT_ALONE` for a single job, as a fleet with little to do gets them."""

ENQUEUE: Final = f"""{_ACCEPTED},{TALLIED}
SELECT id, number FROM new
"""
"""`SUBMIT` in the application's own transaction, and the tally: each statement may be a commit.

It adds no lane. Another submitter of a job in the same new lane would wait for that row until this
transaction ends, which may take hours: see `keeper_sql.ADOPT_LANES`.
"""

_BEGAN_AT: Final = """greatest(
        j.started_at, statement_timestamp() - n.ran_s * interval '1 s'
    )"""
"""SQL for when an attempt began: after it was claimed, if its worker said for how long it ran."""

FINISH: Final = f"""
UPDATE longshore.job AS j
SET result = n.result,
    {changed(8, began_at=_BEGAN_AT)}
FROM (
    SELECT i.*, l.tid, l.state AS was,
        CASE l.state WHEN {RUNNING} THEN i.shape ELSE i.shape + 1 END AS change
    FROM (
        SELECT i.job, i.token, coalesce(i.own_result, ($3::bytea[])[$4]) AS result,
            coalesce(i.own_shape, 1) AS shape, i.ran_s, i.place
        FROM unnest($1::uuid[], $2::bigint[], $3::bytea[], $5::integer[], $6::float8[])
            WITH ORDINALITY AS i (job, token, own_result, own_shape, ran_s, place)
        ORDER BY i.job, i.place
    ) AS i
    CROSS JOIN LATERAL (
        SELECT ctid AS tid, state FROM longshore.job
        WHERE id = i.job AND token = i.token
            AND CASE WHEN state IN ({OWNED})
                THEN worker = coalesce(($7::uuid[])[i.shape], worker) END
        OFFSET 0
    ) AS l
    OFFSET 0
) AS n
WHERE j.ctid = n.tid AND j.token = n.token AND j.state = n.was
RETURNING n.place, n.was, j.state, j.lane, ~j.priority AS urgency, j.rank, j.number, j.group_id,
    j.watched
"""
"""Locks rows in the order of their ids. Of two ends of one attempt the first given counts.

An end names its shape: the place of the change for a running job, after which comes the one for a
job that is being cancelled. Without one it has the first. $4 is 1 if the first result is that of
all, otherwise NULL. An empty array stands for a column without a value.
"""

_OF_TOKEN: Final = "WHERE id = i.job AND token = i.token"
_MOVED: Final = """tallied AS (
    INSERT INTO longshore.tally (lane, state, delta)
    SELECT m.lane, s.state, s.sign * m.jobs
    FROM (
        SELECT lane, was, state, count(*) AS jobs FROM ended GROUP BY lane, was, state
    ) AS m
    CROSS JOIN LATERAL (VALUES (m.was, -1), (m.state, 1)) AS s (state, sign)
)"""
FINISH_ALONE: Final = f"""
WITH ended AS (
    {FINISH.replace(_OF_TOKEN, f"{_OF_TOKEN} AND group_id IS NULL AND watched IS NULL").strip()}
), {_MOVED}
SELECT * FROM ended
"""
"""`FINISH` as a transaction of its own, which needs neither BEGIN nor COMMIT.

It leaves out jobs of groups, and those that are watched: their ends have more to do.
"""


_SUCCESSES: Final = """
            SELECT i.job, i.token, coalesce(i.own_result, ($3::bytea[])[$4]) AS result,
                i.ran_s, i.place
            FROM unnest($1::uuid[], $2::bigint[], $3::bytea[], $5::float8[])
                WITH ORDINALITY AS i (job, token, own_result, ran_s, place)
            ORDER BY i.job, i.place
        """
_ONE_SUCCESS: Final = (
    "SELECT $1::uuid AS job, $2::bigint AS token, $3::bytea AS result, $4::float8 AS ran_s"
)


def succeeded(only: str, answer: str, *, one: bool = False) -> str:
    """SQL that ends running jobs as successes which bring only a result, as nearly all ends are.

    Its parameters are ids, tokens, results, 1 if the first result is that of all, and how long each
    ran. With `one` they are the id, the token, the result of a single job, and how long it ran. It
    leaves out jobs for which `only`, SQL of i.job and the row of the job, does not hold.
    """
    ends = _ONE_SUCCESS if one else _SUCCESSES
    return f"""UPDATE longshore.job AS j
    SET state = {SUCCEEDED}, result = n.result, error = NULL, ended_at = statement_timestamp(),
        started_at = {_BEGAN_AT}, expires_at = NULL, deadline_at = NULL,
        {appended(f"'{head(S.SUCCEEDED)}'", by=_BY_WORKER, info=NOTHING)}
    FROM (
        SELECT i.*, l.tid, l.state AS was
        FROM ({ends}) AS i
        CROSS JOIN LATERAL (
            SELECT ctid AS tid, state FROM longshore.job
            WHERE id = i.job AND token = i.token AND CASE WHEN state = {RUNNING} THEN {only} END
            OFFSET 0
        ) AS l
        OFFSET 0
    ) AS n
    WHERE j.ctid = n.tid AND j.token = n.token AND j.state = n.was
    RETURNING {answer}"""


SUCCEED_ALONE: Final = f"""
WITH ended AS (
    {succeeded("group_id IS NULL AND watched IS NULL", "n.place, n.was, j.state, j.lane")}
), {_MOVED}
SELECT lane, array_agg(place) AS places FROM ended GROUP BY lane
"""
"""`FINISH_ALONE` for successes that bring only a result, as nearly all ends are.

What it does is written out instead of looked up in arrays for each row, and it answers by lane, not
by row. It leaves out jobs that are being cancelled, too.
"""

CLAIMED_COLUMNS: Final = f"""state = {RUNNING},
        token = nextval('longshore.token'),
        worker = ($1::uuid[])[{{place}}],
        session = ($2::bigint[])[{{place}}],
        attempt = j.attempt + 1,
        started_at = statement_timestamp(),
        expires_at = statement_timestamp() + (j.timeout_s + {{margin}}) * interval '1 s',
        {_CLAIMED}"""
CLAIMED_JOB: Final = f"""j.lane, ~j.priority AS urgency, j.rank,
        j.id, j.number, j.token, j.kind, j.args, j.options, j.attempt, j.failures, j.crashes,
        {LEFT_S}, j.round, {WAITED_S}"""
CLAIM_FORM: Final = f"""
WITH slot AS MATERIALIZED (
    SELECT ARRAY(
        SELECT wish.place
        FROM unnest($3::integer[]) WITH ORDINALITY AS wish (place, turn)
        WHERE ({MAY_TAKE.format(workers="$1", sessions="$2", dispatcher="$4")})[wish.place]
        ORDER BY wish.turn
    ) AS places
),
front AS (
    SELECT l.*
    FROM slot
    CROSS JOIN unnest($5::bigint[], $6::smallint[], $7::bigint[], $8::bigint[], $9::smallint[])
        AS i (lane, urgency, rank, number, last_urgency)
    CROSS JOIN LATERAL (SELECT {lane_is_ruled("i.lane")} AS is_ruled OFFSET 0) AS r
    CROSS JOIN LATERAL (
        SELECT j.ctid AS tid, ~j.priority AS urgency, j.rank, j.number,
            octet_length(j.args) AS size,
            j.concurrency_key IS NOT NULL OR r.is_ruled
                OR ($12::bigint[] IS NOT NULL AND (j.crashes > 0 OR j.lane <> ALL ($12)))
                AS is_barred
        FROM longshore.job AS j
        WHERE j.state = {READY} AND j.blocked_on IS NULL
            AND j.lane = i.lane
            AND (~j.priority, j.rank, j.number) > (i.urgency, i.rank, i.number)
            AND ~j.priority <= i.last_urgency
            AND coalesce(j.deadline_at > statement_timestamp(), true)
        ORDER BY ~j.priority, j.rank, j.number
        LIMIT cardinality(slot.places)
    ) AS l
    WHERE {lane_may_start("i.lane")}
    ORDER BY l.urgency, l.rank, l.number
    LIMIT (SELECT cardinality(places) FROM slot)
),
best AS (
    SELECT f.*, sum(f.size) OVER turn - f.size AS before, bool_or(f.is_barred) OVER turn AS barred
    FROM front AS f
    WINDOW turn AS (ORDER BY f.urgency, f.rank, f.number ROWS UNBOUNDED PRECEDING)
),
locked AS (
    SELECT l.tid, row_number() OVER (ORDER BY b.urgency, b.rank, b.number) AS turn{{also}}
    FROM best AS b
    CROSS JOIN LATERAL (
        SELECT j.ctid AS tid{{last}} FROM longshore.job AS j
        WHERE j.ctid = b.tid AND j.state = {READY}
        FOR UPDATE SKIP LOCKED
    ) AS l
    WHERE b.before < $11 AND NOT b.barred
),{{placing}}
taken AS (
    UPDATE longshore.job AS j
    SET {CLAIMED_COLUMNS.replace("{margin}", "$10")}
    FROM locked AS l
    WHERE j.ctid = l.tid
    RETURNING l.turn, {{place}} AS place, {CLAIMED_JOB}
)
SELECT b.seen, b.barred, {HAS_RULES} AS ruled, t.*
FROM (
    SELECT count(*) FILTER (WHERE NOT barred) AS seen, bool_or(barred) IS TRUE AS barred FROM best
) AS b
LEFT JOIN taken AS t ON true
"""
CLAIM: Final = CLAIM_FORM.format(
    last="", also="", placing="", place="(SELECT places FROM slot)[l.turn]"
)
