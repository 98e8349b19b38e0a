-- A group that is pruned first gets `is_gone`: nobody sees it from then on, and its jobs go in steps.
ALTER TABLE job_group ADD COLUMN staged_at INTEGER NOT NULL DEFAULT 0;

ALTER TABLE job_group ADD COLUMN is_gone INTEGER NOT NULL DEFAULT 0;

UPDATE job_group SET staged_at = created_at;

CREATE INDEX job_group_staging ON job_group (staged_at) WHERE state = 'staging';

CREATE INDEX job_group_ended ON job_group (state, ended_at) WHERE ended_at IS NOT NULL AND is_gone = 0;

CREATE INDEX job_group_gone ON job_group (number) WHERE is_gone = 1;

CREATE INDEX group_retry_group ON group_retry (group_id);
