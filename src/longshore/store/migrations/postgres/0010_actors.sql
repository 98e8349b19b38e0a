-- Actors. An actor's row is written when it starts, is paused, resumed or stopped, and otherwise only
-- locked; what changes with every turn is in rows that are inserted and deleted, never updated. Statuses
-- are small numbers; the one list of them is in store/postgres/states.py.
-- Types and keys sort by code point, on every server.
CREATE TABLE longshore.actor (
    id uuid PRIMARY KEY,
    number bigint NOT NULL DEFAULT nextval('longshore.number'),
    created_at timestamptz NOT NULL DEFAULT statement_timestamp(),
    status smallint NOT NULL,
    type text COLLATE "C" NOT NULL,
    key text COLLATE "C" NOT NULL,
    terms bytea NOT NULL
) WITH (fillfactor = 80);

CREATE UNIQUE INDEX actor_key ON longshore.actor (type, key);

CREATE INDEX actor_stopping ON longshore.actor (id) WHERE status = 30;

-- What turns left. The newest is the actor's state, and the last entry of the index.
CREATE TABLE longshore.turn (
    actor bigint NOT NULL,
    n bigint NOT NULL,
    at timestamptz NOT NULL,
    worker uuid,
    read_up_to bigint NOT NULL,
    version bigint NOT NULL,
    starts boolean NOT NULL,
    timers bytea NOT NULL,
    state bytea NOT NULL,
    PRIMARY KEY (actor, n)
) WITH (autovacuum_vacuum_scale_factor = 0.05);

-- Mailboxes. Every lookup begins behind what was read: under an old snapshot the entries of read
-- messages stay in the index.
CREATE TABLE longshore.message (
    actor bigint NOT NULL,
    number bigint NOT NULL,
    at timestamptz NOT NULL,
    due_at timestamptz,
    id uuid,
    name text NOT NULL,
    args bytea NOT NULL,
    reply_to bytea,
    PRIMARY KEY (actor, number)
) WITH (autovacuum_vacuum_scale_factor = 0.05);

CREATE INDEX message_due ON longshore.message (actor, due_at) WHERE due_at IS NOT NULL;

-- The ids of messages from outside, for an hour, and the replies to those that were asks.
CREATE TABLE longshore.receipt (
    id uuid PRIMARY KEY,
    at timestamptz NOT NULL DEFAULT statement_timestamp(),
    actor bigint NOT NULL,
    is_ask boolean NOT NULL,
    reply bytea
) WITH (autovacuum_vacuum_scale_factor = 0.05);

CREATE INDEX receipt_at ON longshore.receipt (at);

-- Asks that wait, for the actor that is stopped.
CREATE INDEX receipt_asked ON longshore.receipt (actor) WHERE is_ask AND reply IS NULL;

-- The actor whose turn a job is.
ALTER TABLE longshore.job ADD COLUMN actor_id bigint;
