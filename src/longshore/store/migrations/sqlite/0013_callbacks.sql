-- The secret from which the keys for callback tokens follow. It is made once, here.
CREATE TABLE secret (
    name TEXT PRIMARY KEY,
    value BLOB NOT NULL
) STRICT, WITHOUT ROWID;

INSERT INTO secret (name, value) VALUES ('callbacks', randomblob(32));

-- The ids of resolved callbacks are kept for as long as their actor lives: `at` is the largest number.
CREATE INDEX receipt_kept ON receipt (actor) WHERE at = 9223372036854775807;
