-- Watchers. `watched` is true if a job has some (they are in its options), otherwise NULL, which takes no room.
ALTER TABLE longshore.job ADD COLUMN watched boolean;

-- Those of a group, packed. `round` counts up with each retry of the group.
ALTER TABLE longshore.job_group
    ADD COLUMN watchers bytea,
    ADD COLUMN round integer NOT NULL DEFAULT 1;

-- The ends of watched jobs and groups of which the watchers have not heard. Of a group, `options` has its watchers.
CREATE TABLE longshore.notice (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    subject uuid NOT NULL,
    is_group boolean NOT NULL,
    round integer NOT NULL,
    state smallint NOT NULL,
    options bytea NOT NULL,
    error bytea,
    result bytea
) WITH (
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 1000
);
