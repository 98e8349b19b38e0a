-- By when a job must begin, if it may expire. The index holds only ready jobs that may.
ALTER TABLE longshore.job ADD COLUMN deadline_at timestamptz;

CREATE INDEX job_deadline ON longshore.job (deadline_at)
WHERE state = 30 AND deadline_at IS NOT NULL;
