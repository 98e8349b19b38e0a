-- The codes of states get room between them, for more live ones; all that is over comes from 100 on.
-- The one list of them is in store/postgres/states.py.
DROP INDEX longshore.job_ready, longshore.job_due, longshore.job_owned, longshore.job_cancelling,
    longshore.job_expiring, longshore.job_unique, longshore.job_listed;

UPDATE longshore.job
SET state = CASE WHEN state < 5 THEN (state + 1) * 10 ELSE 100 + (state - 5) * 10 END;

UPDATE longshore.tally
SET state = CASE WHEN state < 5 THEN (state + 1) * 10 ELSE 100 + (state - 5) * 10 END;

-- When somebody asked for a cancel is in the job's history.
ALTER TABLE longshore.job DROP COLUMN cancel_asked_at;

-- waiting 10, delayed 20, ready 30, running 40, cancelling 50, succeeded 100, …
-- `~priority` falls as the priority rises, for every smallint: so all of the order is ascending, and
-- a claim can begin at any place of it.
CREATE INDEX job_ready ON longshore.job (lane, (~priority), rank, number) WHERE state = 30;

CREATE INDEX job_due ON longshore.job (run_at) WHERE state = 20;

CREATE INDEX job_owned ON longshore.job (worker) WHERE state IN (40, 50);

CREATE INDEX job_cancelling ON longshore.job (worker) WHERE state = 50;

CREATE INDEX job_expiring ON longshore.job (expires_at)
WHERE state = 40 AND expires_at IS NOT NULL;

CREATE UNIQUE INDEX job_unique ON longshore.job (kind, unique_key)
WHERE unique_key IS NOT NULL AND state < 100;

CREATE INDEX job_listed ON longshore.job (state, number) WHERE state = 10 OR state > 100;
