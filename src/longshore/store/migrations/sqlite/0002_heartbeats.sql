-- When a worker was last heard of, and how busy its machine was; apart from `worker`, so that a claim
-- and what is written every few seconds never meet.
CREATE TABLE heartbeat (
    worker BLOB PRIMARY KEY,
    seen_at INTEGER NOT NULL,
    cpu_percent REAL NOT NULL,
    memory_percent REAL NOT NULL
) STRICT, WITHOUT ROWID;
