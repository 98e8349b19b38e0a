-- When somebody asked for a cancel is in the job's history, and nobody asked for it elsewhere.
DROP INDEX job_cancelling;

ALTER TABLE job DROP COLUMN cancel_asked_at;

CREATE INDEX job_cancelling ON job (worker) WHERE state = 'cancelling';
