-- Groups. What changes while a group runs is in narrow tables beside the jobs: to count down a node
-- costs a fraction of what a write of its job costs, and a job without a group pays one NULL.
CREATE TABLE longshore.job_group (
    id uuid PRIMARY KEY,
    number bigint NOT NULL DEFAULT nextval('longshore.number'),
    created_at timestamptz NOT NULL DEFAULT statement_timestamp(),
    ended_at timestamptz,
    jobs integer NOT NULL,
    staged integer NOT NULL DEFAULT 0,
    -- From this place on its jobs are still to be brought to where its state wants them.
    sweep_from integer,
    state smallint NOT NULL,
    sweep_again boolean NOT NULL DEFAULT false,
    fail_fast boolean NOT NULL,
    name text NOT NULL,
    labels text[] NOT NULL,
    cancelled_by text NOT NULL DEFAULT ''
) WITH (fillfactor = 70);

CREATE UNIQUE INDEX job_group_number ON longshore.job_group (number);

CREATE INDEX job_group_live ON longshore.job_group (number) WHERE ended_at IS NULL;

CREATE INDEX job_group_swept ON longshore.job_group (number) WHERE sweep_from IS NOT NULL;

CREATE INDEX job_group_name ON longshore.job_group (name, number);

CREATE TABLE longshore.node (
    job uuid PRIMARY KEY,
    group_id uuid NOT NULL,
    body_hash bigint NOT NULL,
    delay_s double precision,
    expires_s double precision,
    place integer NOT NULL,
    unmet integer NOT NULL,
    condition smallint NOT NULL,
    marks smallint NOT NULL DEFAULT 0,
    key text NOT NULL
) WITH (
    fillfactor = 70,
    autovacuum_vacuum_scale_factor = 0.05
);

CREATE UNIQUE INDEX node_place ON longshore.node (group_id, place);

CREATE UNIQUE INDEX node_key ON longshore.node (group_id, key);

CREATE TABLE longshore.edge (
    parent uuid NOT NULL,
    child uuid NOT NULL,
    PRIMARY KEY (parent, child)
);

CREATE INDEX edge_child ON longshore.edge (child);

-- Ended jobs whose dependents have not heard of it; of one with very many, those after `after_child`.
CREATE TABLE longshore.unsettled (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    job uuid NOT NULL,
    after_child uuid
) WITH (
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 1000
);

-- The retries of groups that users asked for: a repeated request finds the answer of the first.
CREATE TABLE longshore.group_retry (
    request uuid PRIMARY KEY,
    group_id uuid NOT NULL,
    reopened text[] NOT NULL
);

-- How many jobs of a group ended, as the sum of changes. Rows are only ever added while it runs, so
-- that two dispatchers that end jobs of one group never wait for each other.
CREATE TABLE longshore.group_count (
    group_id uuid NOT NULL,
    number bigint NOT NULL DEFAULT nextval('longshore.tally_number'),
    ended integer NOT NULL,
    failed integer NOT NULL,
    cancelled integer NOT NULL,
    PRIMARY KEY (group_id, number)
);
