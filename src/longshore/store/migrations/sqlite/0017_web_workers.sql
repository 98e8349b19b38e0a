-- Services that registered as workers. A gateway attends each; none does if `gateway` is null.
CREATE TABLE web_worker (
    number INTEGER PRIMARY KEY,
    id BLOB NOT NULL,
    state TEXT NOT NULL,
    port INTEGER NOT NULL,
    worker BLOB NOT NULL,
    gateway BLOB,
    adoptions INTEGER NOT NULL DEFAULT 0,
    failed_pings INTEGER NOT NULL DEFAULT 0,
    registered_at INTEGER NOT NULL,
    pinged_at INTEGER,
    ended_at INTEGER,
    host TEXT NOT NULL,
    last_error TEXT NOT NULL DEFAULT '',
    registration BLOB NOT NULL
) STRICT;

CREATE UNIQUE INDEX web_worker_id ON web_worker (id);

CREATE UNIQUE INDEX web_worker_address ON web_worker (host, port) WHERE ended_at IS NULL;

CREATE INDEX web_worker_gateway ON web_worker (gateway) WHERE ended_at IS NULL;

CREATE INDEX web_worker_worker ON web_worker (worker);

-- The gateways that share the services, by the ids that they have as workers.
CREATE TABLE web_gateway (
    id BLOB PRIMARY KEY
) STRICT, WITHOUT ROWID;
