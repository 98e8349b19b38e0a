-- By when a job must begin, if it may expire. The index holds only ready jobs that may.
ALTER TABLE job ADD COLUMN deadline_at INTEGER;

CREATE INDEX job_deadline ON job (deadline_at) WHERE state = 'ready' AND deadline_at IS NOT NULL;
