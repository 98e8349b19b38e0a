-- Times are whole microseconds since 1970 in UTC, ids are 16 bytes, states are words.

CREATE TABLE longshore_schema (
    version INTEGER NOT NULL
) STRICT;

-- Two sequences in one row: job numbers, and tokens.
CREATE TABLE sequence (
    number INTEGER NOT NULL,
    token INTEGER NOT NULL
) STRICT;

INSERT INTO sequence (number, token) VALUES (0, 0);

-- Short columns first: a read of them never has to walk through a long value.
CREATE TABLE job (
    number INTEGER PRIMARY KEY,
    id BLOB NOT NULL CHECK (length(id) = 16),
    lane INTEGER NOT NULL,
    state TEXT NOT NULL,
    priority INTEGER NOT NULL CHECK (priority BETWEEN -32768 AND 32767),
    rank INTEGER NOT NULL DEFAULT 0,
    token INTEGER NOT NULL DEFAULT 0,
    worker BLOB,
    session INTEGER,
    round INTEGER NOT NULL DEFAULT 1,
    attempt INTEGER NOT NULL DEFAULT 0,
    failures INTEGER NOT NULL DEFAULT 0,
    crashes INTEGER NOT NULL DEFAULT 0,
    created_at INTEGER NOT NULL,
    run_at INTEGER,
    started_at INTEGER,
    ended_at INTEGER,
    expires_at INTEGER,
    cancel_asked_at INTEGER,
    timeout_s REAL,
    body_hash INTEGER NOT NULL,
    kind TEXT NOT NULL,
    queue TEXT NOT NULL,
    target TEXT NOT NULL,
    unique_key TEXT,
    -- Reserved, so that the table need not be rewritten later.
    namespace TEXT,
    concurrency_key TEXT,
    code_version TEXT,
    group_id INTEGER,
    waiting_on INTEGER,
    checkpoint BLOB,
    options BLOB NOT NULL,
    history TEXT NOT NULL,
    error BLOB,
    result BLOB,
    args BLOB NOT NULL
) STRICT;

CREATE UNIQUE INDEX job_id ON job (id);

-- Every other index holds only the rows of a state that is left again (or of a bad end), so that
-- its size does not grow with the jobs that went well. They hold the state too, so that SQLite need
-- not look it up in the row.
CREATE INDEX job_ready ON job (lane, state, priority DESC, rank) WHERE state = 'ready';

CREATE INDEX job_due ON job (state, run_at) WHERE state = 'delayed';

CREATE INDEX job_owned ON job (worker, state) WHERE state IN ('running', 'cancelling');

CREATE INDEX job_cancelling ON job (cancel_asked_at) WHERE state = 'cancelling';

CREATE INDEX job_expiring ON job (expires_at) WHERE state = 'running' AND expires_at IS NOT NULL;

-- Written with OR because SQLite builds a table for a longer IN each time a statement runs.
CREATE INDEX job_ended_badly ON job (state)
WHERE state = 'failed' OR state = 'cancelled' OR state = 'dependency_failed' OR state = 'skipped';

CREATE INDEX job_waiting ON job (lane, state) WHERE state = 'waiting';

CREATE UNIQUE INDEX job_unique ON job (kind, unique_key)
WHERE unique_key IS NOT NULL
    AND state IN ('waiting', 'delayed', 'ready', 'running', 'cancelling');

-- What attempts said, by the number of their job.
CREATE TABLE log (
    job INTEGER NOT NULL,
    token INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    kind INTEGER NOT NULL,
    at INTEGER NOT NULL,
    data BLOB NOT NULL,
    PRIMARY KEY (job, token, seq)
) STRICT, WITHOUT ROWID;

CREATE INDEX log_newest ON log (job, token, kind, seq) WHERE kind <> 0;

CREATE TABLE lane (
    hash INTEGER PRIMARY KEY,
    queue TEXT NOT NULL,
    kind TEXT NOT NULL,
    target TEXT NOT NULL
) STRICT;

CREATE INDEX lane_queue ON lane (queue);

-- Only queues that were ever paused.
CREATE TABLE queue (
    name TEXT PRIMARY KEY,
    paused INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- How many jobs each lane holds in each state; changed by whatever changes a state.
CREATE TABLE tally (
    lane INTEGER NOT NULL,
    state TEXT NOT NULL,
    n INTEGER NOT NULL,
    PRIMARY KEY (lane, state)
) STRICT, WITHOUT ROWID;

CREATE TABLE dispatcher (
    id BLOB PRIMARY KEY,
    name TEXT NOT NULL,
    renewed_no INTEGER NOT NULL,
    started_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE worker (
    id BLOB PRIMARY KEY,
    dispatcher BLOB NOT NULL,
    session INTEGER NOT NULL,
    alive INTEGER NOT NULL,
    draining INTEGER NOT NULL,
    started_at INTEGER NOT NULL,
    attended_at INTEGER NOT NULL,
    ended_at INTEGER,
    ended_why TEXT NOT NULL DEFAULT '',
    info BLOB NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX worker_alive ON worker (dispatcher) WHERE alive = 1;

CREATE INDEX worker_ended ON worker (ended_at) WHERE alive = 0;
