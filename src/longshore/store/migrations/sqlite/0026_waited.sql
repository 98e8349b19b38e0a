-- What a job waited for, as far as its history does not tell. `blocked_at` is since when it waits behind its key;
-- `stays` are the newest times that it waited behind keys: [[key, since, until], …], in microseconds since 1970.
ALTER TABLE job ADD COLUMN blocked_at INTEGER;
ALTER TABLE job ADD COLUMN stays TEXT;

-- How long jobs waited behind a key, all together, and how often. Jobs that wait now are not in it.
ALTER TABLE limit_key ADD COLUMN waited_us INTEGER NOT NULL DEFAULT 0;
ALTER TABLE limit_key ADD COLUMN stays INTEGER NOT NULL DEFAULT 0;
ALTER TABLE limit_key ADD COLUMN waited_at INTEGER;

-- From when to when a queue or a group was paused; `name` is that of the queue, or the number of the group.
CREATE TABLE pause (
    is_group INTEGER NOT NULL,
    name TEXT NOT NULL,
    since INTEGER NOT NULL,
    until INTEGER
) STRICT;

CREATE INDEX pause_name ON pause (is_group, name, since);

CREATE UNIQUE INDEX pause_open ON pause (is_group, name) WHERE until IS NULL;

INSERT INTO pause (is_group, name, since)
SELECT 0, name, CAST((julianday('now') - 2440587.5) * 86400000000 AS INTEGER) FROM queue WHERE paused = 1;

-- How long the jobs of a queue waited, by cause, as one dispatcher at a time sees it.
CREATE TABLE queue_wait (
    queue TEXT NOT NULL,
    cause TEXT NOT NULL,
    waited_s REAL NOT NULL,
    PRIMARY KEY (queue, cause)
) STRICT, WITHOUT ROWID;
