-- States are small numbers; the one list of them is in store/postgres/states.py. Wide rows are copied
-- by every change of state, so fixed columns come first, by falling alignment, without padding.

CREATE SCHEMA IF NOT EXISTS longshore;

CREATE TABLE longshore.longshore_schema (
    version integer NOT NULL
);

-- A token is larger than all before it, so that it also fences what lies outside of this database:
-- no connection may keep a stock of them.
CREATE SEQUENCE longshore.number CACHE 1;
CREATE SEQUENCE longshore.token CACHE 1;

CREATE TABLE longshore.job (
    id uuid NOT NULL,
    worker uuid,
    number bigint NOT NULL DEFAULT nextval('longshore.number'),
    lane bigint NOT NULL,
    rank bigint NOT NULL DEFAULT 0,
    token bigint NOT NULL DEFAULT 0,
    body_hash bigint NOT NULL,
    session bigint,
    created_at timestamptz NOT NULL DEFAULT now(),
    run_at timestamptz,
    started_at timestamptz,
    ended_at timestamptz,
    expires_at timestamptz,
    cancel_asked_at timestamptz,
    timeout_s double precision,
    round integer NOT NULL DEFAULT 1,
    attempt integer NOT NULL DEFAULT 0,
    failures integer NOT NULL DEFAULT 0,
    crashes integer NOT NULL DEFAULT 0,
    state smallint NOT NULL,
    priority smallint NOT NULL DEFAULT 0,
    -- How many entries the history has.
    history_length smallint NOT NULL DEFAULT 1,
    kind text NOT NULL,
    queue text NOT NULL,
    target text NOT NULL,
    options bytea NOT NULL,
    -- JSON arrays [state, microseconds since 1970, by, info], with commas between, no brackets
    -- around: appending is joining two texts, where a jsonb would be taken apart and made anew.
    history text NOT NULL,
    unique_key text,
    args bytea NOT NULL,
    result bytea,
    error bytea,
    -- Reserved, so that the table need not be rewritten later.
    group_id uuid,
    waiting_on integer,
    namespace text,
    concurrency_key text,
    code_version text,
    checkpoint bytea,
    CONSTRAINT job_id PRIMARY KEY (id)
) WITH (
    autovacuum_vacuum_scale_factor = 0.05,
    autovacuum_vacuum_insert_scale_factor = 0.1,
    autovacuum_analyze_scale_factor = 0.05
);

-- Jobs by number. As an index on `job` this would have to be written with every change of a state.
CREATE TABLE longshore.job_number (
    number bigint PRIMARY KEY,
    id uuid NOT NULL
);

-- Every index but that of the ids holds only rows of a state that is left again (or of a bad end),
-- so that its size does not grow with the jobs that went well.

-- `~priority` falls as the priority rises, for every smallint: so all of the order is ascending, and
-- a claim can begin at any place of it.
CREATE INDEX job_ready ON longshore.job (lane, (~priority), rank, number) WHERE state = 2;

CREATE INDEX job_due ON longshore.job (run_at) WHERE state = 1;

CREATE INDEX job_owned ON longshore.job (worker) WHERE state IN (3, 4);

CREATE INDEX job_cancelling ON longshore.job (worker) WHERE state = 4;

CREATE INDEX job_expiring ON longshore.job (expires_at)
WHERE state = 3 AND expires_at IS NOT NULL;

CREATE UNIQUE INDEX job_unique ON longshore.job (kind, unique_key)
WHERE unique_key IS NOT NULL AND state < 5;

CREATE INDEX job_listed ON longshore.job (state, number) WHERE state = 0 OR state > 5;

-- What attempts said.
CREATE TABLE longshore.log (
    job uuid NOT NULL,
    token bigint NOT NULL,
    seq bigint NOT NULL,
    at timestamptz NOT NULL DEFAULT now(),
    kind smallint NOT NULL,
    data bytea NOT NULL,
    PRIMARY KEY (job, token, seq)
);

CREATE INDEX log_newest ON longshore.log (job, token, kind, seq) WHERE kind <> 0;

CREATE TABLE longshore.lane (
    hash bigint PRIMARY KEY,
    queue text NOT NULL,
    kind text NOT NULL,
    target text NOT NULL
);

-- Only queues that were ever paused.
CREATE TABLE longshore.queue (
    name text PRIMARY KEY,
    paused boolean NOT NULL
);

-- Counts of jobs by lane and state, as the sum of changes: rows are only ever added, by whatever
-- changes a state, and folded into fewer now and then. No row is updated, so an old snapshot that
-- somebody holds cannot make it slow. The sequence also tells a poll that something changed.
CREATE SEQUENCE longshore.tally_number CACHE 1;

CREATE TABLE longshore.tally (
    number bigint PRIMARY KEY DEFAULT nextval('longshore.tally_number'),
    lane bigint NOT NULL,
    delta bigint NOT NULL,
    state smallint NOT NULL
) WITH (
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 2000,
    autovacuum_vacuum_insert_scale_factor = 0,
    autovacuum_vacuum_insert_threshold = 10000
);

CREATE TABLE longshore.dispatcher (
    id uuid PRIMARY KEY,
    renewed_no bigint NOT NULL,
    started_at timestamptz NOT NULL DEFAULT now(),
    name text NOT NULL
) WITH (
    fillfactor = 50,
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 200
);

CREATE TABLE longshore.worker (
    id uuid PRIMARY KEY,
    dispatcher uuid NOT NULL,
    session bigint NOT NULL,
    started_at timestamptz NOT NULL DEFAULT now(),
    attended_at timestamptz NOT NULL DEFAULT now(),
    ended_at timestamptz,
    alive boolean NOT NULL DEFAULT true,
    draining boolean NOT NULL,
    ended_why text NOT NULL DEFAULT '',
    info bytea NOT NULL
) WITH (
    fillfactor = 70,
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 200
);

CREATE INDEX worker_alive ON longshore.worker (dispatcher) WHERE alive;

CREATE INDEX worker_ended ON longshore.worker (ended_at) WHERE NOT alive;
