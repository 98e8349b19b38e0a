-- Limits. `concurrency_key` has the keys that a job counts for, one to a line; a job without limits has none.
-- A job that waits behind a key (`blocked_on`) is out of the way of claims: they read `job_ready`.
ALTER TABLE longshore.job ADD COLUMN blocked_on text;

DROP INDEX longshore.job_ready;

CREATE INDEX job_ready ON longshore.job (lane, (~priority), rank, number)
WHERE state = 30 AND blocked_on IS NULL;

CREATE INDEX job_blocked ON longshore.job (blocked_on, lane, (~priority), rank, number)
WHERE state = 30 AND blocked_on IS NOT NULL;

-- A rule is about the keys that match its pattern. A rate is so many units in so many seconds.
CREATE TABLE longshore.limit_rule (
    pattern text PRIMARY KEY,
    concurrency bigint,
    rate_units bigint,
    rate_per_s double precision,
    rate_burst bigint,
    set_at timestamptz NOT NULL DEFAULT now()
);

-- Whoever starts jobs of a key locks its row. `even_at`, in microseconds since 1970, is when all that its rate let
-- begin would have begun at an even pace.
CREATE TABLE longshore.limit_key (
    key text PRIMARY KEY,
    even_at bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 70);

-- A slot of a key, held by an attempt. It is free once its job is no longer in that attempt.
CREATE TABLE longshore.hold (
    key text NOT NULL,
    slot bigint NOT NULL,
    job uuid NOT NULL,
    token bigint NOT NULL,
    PRIMARY KEY (key, slot)
);
