-- Fairness between keys. `fair` is the key of a job that shares the workers with others; most jobs have none. One that
-- is behind 'fair' (`blocked_on`) has no turn yet. Its turn is its rank.
ALTER TABLE job ADD COLUMN fair TEXT;

CREATE INDEX job_fair ON job (fair, lane, state, priority, rank)
WHERE state = 'ready' AND fair IS NOT NULL AND blocked_on IS NOT 'fair';

ALTER TABLE limit_rule ADD COLUMN weight REAL;

-- What a key was charged in one lane, among jobs of one priority, and how long its jobs ran. The empty key has the runs
-- of all keys. `noted_at` is in microseconds since 1970.
CREATE TABLE fair_key (
    lane INTEGER NOT NULL,
    priority INTEGER NOT NULL,
    key TEXT NOT NULL,
    finish REAL NOT NULL,
    owed REAL NOT NULL,
    open_jobs INTEGER NOT NULL,
    open_cost REAL NOT NULL,
    runs INTEGER NOT NULL,
    mean_s REAL NOT NULL,
    noted_at INTEGER NOT NULL,
    PRIMARY KEY (lane, priority, key)
) STRICT, WITHOUT ROWID;
