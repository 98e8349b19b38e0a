-- The files that the next attempt at a job begins with: the last checkpoint of its round, and which attempt saved it.
-- `sequence` counts those of that attempt.
CREATE TABLE checkpoint (
    job BLOB PRIMARY KEY,
    round INTEGER NOT NULL,
    token INTEGER NOT NULL,
    sequence INTEGER NOT NULL,
    manifest BLOB NOT NULL,
    files INTEGER NOT NULL,
    total_bytes INTEGER NOT NULL,
    number INTEGER NOT NULL,
    idle INTEGER NOT NULL,
    saved_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX checkpoint_manifest ON checkpoint (manifest);
