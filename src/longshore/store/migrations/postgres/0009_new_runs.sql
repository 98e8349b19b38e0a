-- New runs of groups. `run_of` is the number of the group that a group is a run of, and `taken_from` that of the job whose
-- result a job took over.
ALTER TABLE longshore.job_group ADD COLUMN run_of bigint;

ALTER TABLE longshore.node ADD COLUMN taken_from bigint;

-- What was decided about a new run: a repeated request finds the answer of the first. `copies` is what becomes of each job,
-- until all of them are copied. It is read in pieces, so it is not compressed.
CREATE TABLE longshore.group_run (
    group_id uuid PRIMARY KEY,
    source uuid NOT NULL,
    source_ended_at timestamptz NOT NULL,
    anew integer NOT NULL,
    taken_over integer NOT NULL,
    left_out integer NOT NULL,
    keys text[] NOT NULL,
    copies bytea NOT NULL
);

ALTER TABLE longshore.group_run ALTER COLUMN copies SET STORAGE EXTERNAL;
