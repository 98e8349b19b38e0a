-- The secret from which the keys for callback tokens follow. It is made once, here: 244 random bits.
CREATE TABLE longshore.secret (
    name text PRIMARY KEY,
    value bytea NOT NULL
);

INSERT INTO longshore.secret (name, value)
VALUES ('callbacks', uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid()));

-- The ids of resolved callbacks are kept for as long as their actor lives: `at` is infinite.
CREATE INDEX receipt_kept ON longshore.receipt (actor) WHERE at = 'infinity';
