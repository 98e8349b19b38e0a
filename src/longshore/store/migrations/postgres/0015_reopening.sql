-- The retry of a large group goes in steps. `reopening` says that such a retry is under way, and `retries` how often the
-- group was retried: a decision that was made before another retry does not count.
ALTER TABLE longshore.job_group
ADD COLUMN reopening boolean NOT NULL DEFAULT false,
ADD COLUMN retries integer NOT NULL DEFAULT 0;

-- What was decided about such a retry, until all of it is done. `opened` and `retired` are the places of the jobs that run
-- again and of those that leave the group, 4 bytes each. `again` has a bit for each place: whether its node is open again.
-- `done` counts what is done: the jobs that left, the nodes that were counted anew, and the jobs that were opened.
CREATE TABLE longshore.group_reopening (
    group_id uuid PRIMARY KEY,
    request uuid,
    done integer NOT NULL DEFAULT 0,
    asked_by text NOT NULL,
    opened bytea NOT NULL,
    retired bytea NOT NULL,
    again bytea NOT NULL
);

-- They are read in pieces, so they are not compressed.
ALTER TABLE longshore.group_reopening
ALTER COLUMN opened SET STORAGE EXTERNAL,
ALTER COLUMN retired SET STORAGE EXTERNAL,
ALTER COLUMN again SET STORAGE EXTERNAL;

-- Who counts nodes of a group anew asks which ends are still on their way to them.
CREATE INDEX unsettled_job ON longshore.unsettled (job);
