-- Watchers. `watched` is 1 if a job has some (they are in its options), otherwise NULL: neither takes a byte of the row.
ALTER TABLE job ADD COLUMN watched INTEGER;

-- Those of a group, packed. `round` counts up with each retry of the group.
ALTER TABLE job_group ADD COLUMN watchers BLOB;

ALTER TABLE job_group ADD COLUMN round INTEGER NOT NULL DEFAULT 1;

-- The ends of watched jobs and groups of which the watchers have not heard. Of a group, `options` has its watchers.
CREATE TABLE notice (
    number INTEGER PRIMARY KEY,
    subject BLOB NOT NULL,
    is_group INTEGER NOT NULL,
    round INTEGER NOT NULL,
    state TEXT NOT NULL,
    options BLOB NOT NULL,
    error BLOB,
    result BLOB
) STRICT;
