-- Fairness between keys. `fair` is the key of a job that shares the workers with others; most jobs have none. One that
-- is behind 'fair' (`blocked_on`) has no turn yet. Its turn is its rank.
ALTER TABLE longshore.job ADD COLUMN fair text;

CREATE INDEX job_fair ON longshore.job (fair, lane, (~priority), rank, number)
WHERE state = 30 AND fair IS NOT NULL AND blocked_on IS DISTINCT FROM 'fair';

ALTER TABLE longshore.limit_rule ADD COLUMN weight double precision;

-- What a key was charged in one lane, among jobs of one priority, and how long its jobs ran. The empty key has the runs
-- of all keys.
CREATE TABLE longshore.fair_key (
    lane bigint NOT NULL,
    priority smallint NOT NULL,
    key text NOT NULL,
    finish double precision NOT NULL DEFAULT 0,
    owed double precision NOT NULL DEFAULT 0,
    open_jobs bigint NOT NULL DEFAULT 0,
    open_cost double precision NOT NULL DEFAULT 0,
    runs bigint NOT NULL DEFAULT 0,
    mean_s double precision NOT NULL DEFAULT 0,
    noted_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (lane, priority, key)
) WITH (fillfactor = 70);
