-- Groups. `job.group_id` is the number of a job's group. Within a group, places name its nodes.
CREATE TABLE job_group (
    number INTEGER PRIMARY KEY,
    id BLOB NOT NULL CHECK (length(id) = 16),
    state TEXT NOT NULL,
    jobs INTEGER NOT NULL,
    staged INTEGER NOT NULL DEFAULT 0,
    ended INTEGER NOT NULL DEFAULT 0,
    failed INTEGER NOT NULL DEFAULT 0,
    cancelled INTEGER NOT NULL DEFAULT 0,
    -- From this place on its jobs are still to be brought to where its state wants them.
    sweep_from INTEGER,
    fail_fast INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    ended_at INTEGER,
    name TEXT NOT NULL,
    labels TEXT NOT NULL,
    cancelled_by TEXT NOT NULL DEFAULT ''
) STRICT;

CREATE UNIQUE INDEX job_group_id ON job_group (id);

CREATE INDEX job_group_live ON job_group (state) WHERE ended_at IS NULL;

CREATE INDEX job_group_swept ON job_group (sweep_from) WHERE sweep_from IS NOT NULL;

CREATE INDEX job_group_name ON job_group (name);

CREATE TABLE node (
    group_id INTEGER NOT NULL,
    place INTEGER NOT NULL,
    job INTEGER NOT NULL,
    body_hash INTEGER NOT NULL,
    unmet INTEGER NOT NULL,
    marks INTEGER NOT NULL DEFAULT 0,
    condition TEXT NOT NULL,
    delay_s REAL,
    expires_s REAL,
    key TEXT NOT NULL,
    PRIMARY KEY (group_id, place)
) STRICT, WITHOUT ROWID;

CREATE UNIQUE INDEX node_job ON node (job);

CREATE UNIQUE INDEX node_key ON node (group_id, key);

CREATE TABLE edge (
    group_id INTEGER NOT NULL,
    parent INTEGER NOT NULL,
    child INTEGER NOT NULL,
    PRIMARY KEY (group_id, parent, child)
) STRICT, WITHOUT ROWID;

CREATE INDEX edge_child ON edge (group_id, child);

-- The retries of groups that users asked for: a repeated request finds the answer of the first.
CREATE TABLE group_retry (
    request BLOB PRIMARY KEY,
    group_id INTEGER NOT NULL,
    reopened TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- Ended jobs whose dependents have not heard of it; of one with very many, those after a place.
CREATE TABLE unsettled (
    job INTEGER PRIMARY KEY,
    after_child INTEGER NOT NULL DEFAULT -1
) STRICT;
