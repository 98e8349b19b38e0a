-- Schedules. A dispatcher looks at one when `look_at` has come, and writes what it decided if the
-- `version` is still the one that it read.
CREATE TABLE schedule (
    number INTEGER PRIMARY KEY,
    id BLOB NOT NULL,
    name TEXT NOT NULL,
    app TEXT NOT NULL DEFAULT '',
    version INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    look_at INTEGER,
    state BLOB NOT NULL,
    new BLOB NOT NULL
) STRICT;

CREATE UNIQUE INDEX schedule_id ON schedule (id);

CREATE UNIQUE INDEX schedule_name ON schedule (name);

CREATE INDEX schedule_look ON schedule (look_at) WHERE look_at IS NOT NULL;

CREATE INDEX schedule_app ON schedule (app, name) WHERE app <> '';

-- What became of nominal times: of one, or of `count` in a row up to `last_at`.
CREATE TABLE fire (
    schedule INTEGER NOT NULL,
    nominal_at INTEGER NOT NULL,
    last_at INTEGER,
    count INTEGER NOT NULL,
    fate TEXT NOT NULL,
    late INTEGER NOT NULL,
    why TEXT NOT NULL,
    decided_at INTEGER,
    subject BLOB,
    is_group INTEGER NOT NULL,
    pending INTEGER NOT NULL,
    settled INTEGER NOT NULL,
    outcome TEXT,
    ended_at INTEGER,
    body BLOB,
    PRIMARY KEY (schedule, nominal_at)
) STRICT, WITHOUT ROWID;

CREATE INDEX fire_subject ON fire (subject) WHERE subject IS NOT NULL;

CREATE INDEX fire_open ON fire (schedule, nominal_at) WHERE settled = 0;

CREATE INDEX fire_pending ON fire (decided_at) WHERE pending = 1;
