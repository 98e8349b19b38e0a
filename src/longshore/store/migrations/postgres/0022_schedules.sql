-- Schedules. A dispatcher looks at one when `look_at` has come, and writes what it decided if the
-- `version` is still the one that it read.
CREATE TABLE longshore.schedule (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id uuid NOT NULL,
    version bigint NOT NULL,
    created_at timestamptz NOT NULL,
    look_at timestamptz,
    name text NOT NULL,
    app text NOT NULL DEFAULT '',
    state bytea NOT NULL,
    new bytea NOT NULL
);

CREATE UNIQUE INDEX schedule_id ON longshore.schedule (id);

CREATE UNIQUE INDEX schedule_name ON longshore.schedule (name COLLATE "C");

CREATE INDEX schedule_look ON longshore.schedule (look_at) WHERE look_at IS NOT NULL;

CREATE INDEX schedule_app ON longshore.schedule (app, name COLLATE "C") WHERE app <> '';

-- What became of nominal times: of one, or of `count` in a row up to `last_at`.
CREATE TABLE longshore.fire (
    schedule bigint NOT NULL,
    nominal_at timestamptz NOT NULL,
    last_at timestamptz,
    decided_at timestamptz,
    ended_at timestamptz,
    count bigint NOT NULL,
    subject uuid,
    late boolean NOT NULL,
    is_group boolean NOT NULL,
    pending boolean NOT NULL,
    settled boolean NOT NULL,
    fate text NOT NULL,
    outcome text,
    why text NOT NULL,
    body bytea,
    PRIMARY KEY (schedule, nominal_at)
);

CREATE INDEX fire_subject ON longshore.fire (subject) WHERE subject IS NOT NULL;

CREATE INDEX fire_open ON longshore.fire (schedule, nominal_at) WHERE NOT settled;

CREATE INDEX fire_pending ON longshore.fire (decided_at) WHERE pending;
