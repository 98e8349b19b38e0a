-- Messages to actors that applications sent in their own transactions. A dispatcher puts them into
-- mailboxes. What has a `refused_at` cannot be delivered, and says why.
CREATE TABLE longshore.enqueued_send (
    id uuid PRIMARY KEY,
    number bigint NOT NULL DEFAULT nextval('longshore.number'),
    at timestamptz NOT NULL DEFAULT statement_timestamp(),
    due_at timestamptz,
    refused_at timestamptz,
    type text COLLATE "C" NOT NULL,
    key text COLLATE "C" NOT NULL,
    name text NOT NULL,
    why text NOT NULL DEFAULT '',
    args bytea NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0.05);

CREATE INDEX enqueued_send_number ON longshore.enqueued_send (number) WHERE refused_at IS NULL;

CREATE INDEX enqueued_send_refused ON longshore.enqueued_send (refused_at, number) WHERE refused_at IS NOT NULL;

-- The values of the fields that actors are listed by, as JSON. A row is written when a value changes.
CREATE TABLE longshore.listed_field (
    actor bigint NOT NULL,
    type text COLLATE "C" NOT NULL,
    field text COLLATE "C" NOT NULL,
    value text COLLATE "C" NOT NULL,
    key text COLLATE "C" NOT NULL,
    PRIMARY KEY (actor, field)
) WITH (autovacuum_vacuum_scale_factor = 0.05);

CREATE INDEX listed_field_value ON longshore.listed_field (type, field, value, key);
