-- Actors. `status` is 'active', 'paused' or 'stopping'; what else is said of an actor follows from its job.
CREATE TABLE actor (
    number INTEGER PRIMARY KEY,
    id BLOB NOT NULL CHECK (length(id) = 16),
    type TEXT NOT NULL,
    key TEXT NOT NULL,
    status TEXT NOT NULL DEFAULT 'active',
    created_at INTEGER NOT NULL,
    terms BLOB NOT NULL
) STRICT;

CREATE UNIQUE INDEX actor_id ON actor (id);

CREATE UNIQUE INDEX actor_key ON actor (type, key);

CREATE INDEX actor_stopping ON actor (number) WHERE status = 'stopping';

-- What turns left, only inserted. After a row with `starts` the next turn begins with the event of the start.
CREATE TABLE turn (
    actor INTEGER NOT NULL,
    n INTEGER NOT NULL,
    at INTEGER NOT NULL,
    worker BLOB,
    read_up_to INTEGER NOT NULL,
    version INTEGER NOT NULL,
    starts INTEGER NOT NULL,
    timers BLOB NOT NULL,
    state BLOB NOT NULL
) STRICT;

CREATE UNIQUE INDEX turn_n ON turn (actor, n);

-- Mailboxes. Numbers count up within an actor. `due_at` is set if the message is delayed; if it is parked, to the largest number.
CREATE TABLE message (
    actor INTEGER NOT NULL,
    number INTEGER NOT NULL,
    at INTEGER NOT NULL,
    due_at INTEGER,
    id BLOB NOT NULL,
    name TEXT NOT NULL,
    reply_to BLOB,
    args BLOB NOT NULL
) STRICT;

CREATE UNIQUE INDEX message_number ON message (actor, number);

CREATE INDEX message_unread ON message (actor, number) WHERE due_at IS NULL;

CREATE INDEX message_due ON message (actor, due_at, number) WHERE due_at IS NOT NULL;

-- The ids of messages from outside. `reply` is NULL if none is wanted, and empty until there is one.
CREATE TABLE receipt (
    id BLOB PRIMARY KEY,
    at INTEGER NOT NULL,
    actor INTEGER NOT NULL,
    reply BLOB
) STRICT, WITHOUT ROWID;

CREATE INDEX receipt_at ON receipt (at);

CREATE INDEX receipt_asked ON receipt (actor) WHERE reply = x'';

-- The actor that a job is a turn of. This column was reserved, and stands before the long ones.
ALTER TABLE job RENAME COLUMN waiting_on TO actor_id;

CREATE UNIQUE INDEX job_actor ON job (actor_id) WHERE actor_id IS NOT NULL;
