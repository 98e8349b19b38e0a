-- Limits. The keys that a job counts for are in its options. A job that waits behind a key (`blocked_on`) is out of the way of claims: they read `job_ready`.
ALTER TABLE job ADD COLUMN blocked_on TEXT;

DROP INDEX job_ready;

CREATE INDEX job_ready ON job (lane, state, priority DESC, rank)
WHERE state = 'ready' AND blocked_on IS NULL;

CREATE INDEX job_blocked ON job (blocked_on, lane, state, priority DESC, rank)
WHERE state = 'ready' AND blocked_on IS NOT NULL;

-- A rule is about the keys that match its pattern. A rate is so many units in so many seconds.
CREATE TABLE limit_rule (
    pattern TEXT PRIMARY KEY,
    concurrency INTEGER,
    rate_units INTEGER,
    rate_per_s REAL,
    rate_burst INTEGER,
    set_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- When all that the rate of a key let begin would have begun at an even pace, in microseconds since 1970.
CREATE TABLE limit_key (
    key TEXT PRIMARY KEY,
    even_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- A slot of a key, held by an attempt. It is free once its job is no longer in that attempt.
CREATE TABLE hold (
    key TEXT NOT NULL,
    slot INTEGER NOT NULL,
    job INTEGER NOT NULL,
    token INTEGER NOT NULL,
    PRIMARY KEY (key, slot)
) STRICT, WITHOUT ROWID;
