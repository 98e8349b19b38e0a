-- Services that registered as workers. A gateway attends each; none does if `gateway` is null.
CREATE TABLE longshore.web_worker (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id uuid NOT NULL,
    state text NOT NULL,
    port integer NOT NULL,
    worker uuid NOT NULL,
    gateway uuid,
    adoptions bigint NOT NULL DEFAULT 0,
    failed_pings integer NOT NULL DEFAULT 0,
    registered_at timestamptz NOT NULL DEFAULT now(),
    pinged_at timestamptz,
    ended_at timestamptz,
    host text NOT NULL,
    last_error text NOT NULL DEFAULT '',
    registration bytea NOT NULL
);

CREATE UNIQUE INDEX web_worker_id ON longshore.web_worker (id);

CREATE UNIQUE INDEX web_worker_address ON longshore.web_worker (host, port) WHERE ended_at IS NULL;

CREATE INDEX web_worker_gateway ON longshore.web_worker (gateway) WHERE ended_at IS NULL;

CREATE INDEX web_worker_worker ON longshore.web_worker (worker);

-- The gateways that share the services, by the ids that they have as workers.
CREATE TABLE longshore.web_gateway (
    id uuid PRIMARY KEY
);
