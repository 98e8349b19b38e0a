-- New runs of groups. `run_of` is the number of the group that a group is a run of, and `taken_from` that of the job whose
-- result a job took over.
ALTER TABLE job_group ADD COLUMN run_of INTEGER;

ALTER TABLE node ADD COLUMN taken_from INTEGER;

-- What was decided about a new run: a repeated request finds the answer of the first. `copies` is what becomes of each job,
-- until all of them are copied.
CREATE TABLE group_run (
    group_id INTEGER PRIMARY KEY,
    source BLOB NOT NULL,
    source_ended_at INTEGER NOT NULL,
    anew INTEGER NOT NULL,
    taken_over INTEGER NOT NULL,
    left_out INTEGER NOT NULL,
    keys TEXT NOT NULL,
    copies BLOB NOT NULL
) STRICT;
