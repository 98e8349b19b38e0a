-- A group that is pruned first gets `is_gone`: nobody sees it from then on, and its jobs go in steps.
ALTER TABLE longshore.job_group
ADD COLUMN staged_at timestamptz NOT NULL DEFAULT statement_timestamp(),
ADD COLUMN is_gone boolean NOT NULL DEFAULT false;

-- 10 is staging.
CREATE INDEX job_group_staging ON longshore.job_group (staged_at) WHERE state = 10;

CREATE INDEX job_group_ended ON longshore.job_group (state, ended_at)
WHERE ended_at IS NOT NULL AND NOT is_gone;

CREATE INDEX job_group_gone ON longshore.job_group (number) WHERE is_gone;

CREATE INDEX group_retry_group ON longshore.group_retry (group_id);
