-- Live jobs that a submit looks at: those of a key whose limit says what to do when it is full, and debounced ones.
-- `calm_by`, in microseconds since 1970, is when the run of a debounced job begins at the latest.
ALTER TABLE longshore.job ADD COLUMN crowd text, ADD COLUMN calm_by bigint;

CREATE INDEX job_crowd ON longshore.job (crowd, number)
WHERE crowd IS NOT NULL AND state < 100;
