-- The files that the next attempt at a job begins with: the last checkpoint of its round, and which attempt saved it.
-- `sequence` counts those of that attempt.
CREATE TABLE longshore.checkpoint (
    job uuid PRIMARY KEY,
    round integer NOT NULL,
    token bigint NOT NULL,
    sequence bigint NOT NULL,
    manifest bytea NOT NULL,
    files bigint NOT NULL,
    total_bytes bigint NOT NULL,
    number bigint NOT NULL,
    idle bigint NOT NULL,
    saved_at timestamptz NOT NULL
);

CREATE INDEX checkpoint_manifest ON longshore.checkpoint (manifest);
