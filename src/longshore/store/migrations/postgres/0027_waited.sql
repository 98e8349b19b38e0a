-- What a job waited for, as far as its history does not tell. `blocked_at` is since when it waits behind its key;
-- `stays` are the newest times that it waited behind keys: [[key, since, until], …], in microseconds since 1970.
ALTER TABLE longshore.job ADD COLUMN blocked_at timestamptz, ADD COLUMN stays jsonb;

-- How long jobs waited behind a key, all together, and how often. Jobs that wait now are not in it.
ALTER TABLE longshore.limit_key
    ADD COLUMN waited_us bigint NOT NULL DEFAULT 0,
    ADD COLUMN stays bigint NOT NULL DEFAULT 0,
    ADD COLUMN waited_at timestamptz;

-- What is still to be added to that: whoever takes a job away from its key holds the job, and must not wait for the key.
CREATE TABLE longshore.key_wait (
    key text NOT NULL,
    waited_us bigint NOT NULL,
    stays bigint NOT NULL
);

CREATE INDEX key_wait_key ON longshore.key_wait (key);

-- From when to when a queue or a group was paused; `name` is that of the queue, or the id of the group.
CREATE TABLE longshore.pause (
    is_group boolean NOT NULL,
    name text NOT NULL,
    since timestamptz NOT NULL,
    until timestamptz
);

CREATE INDEX pause_name ON longshore.pause (is_group, name, since);

CREATE UNIQUE INDEX pause_open ON longshore.pause (is_group, name) WHERE until IS NULL;

INSERT INTO longshore.pause (is_group, name, since)
SELECT false, name, now() FROM longshore.queue WHERE paused;

-- How long the jobs of a queue waited, by cause, as one dispatcher at a time sees it.
CREATE TABLE longshore.queue_wait (
    queue text NOT NULL,
    cause text NOT NULL,
    waited_s double precision NOT NULL,
    PRIMARY KEY (queue, cause)
) WITH (fillfactor = 50);
