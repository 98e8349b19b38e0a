-- Bulks: one action for every job that a search finds, done page by page. `bulk` is all of it, packed. A page counts if
-- the `version` is still the one that it was made for.
CREATE TABLE bulk (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    id BLOB NOT NULL,
    version INTEGER NOT NULL,
    running INTEGER NOT NULL,
    bulk BLOB NOT NULL
) STRICT;

CREATE UNIQUE INDEX bulk_id ON bulk (id);

CREATE INDEX bulk_running ON bulk (number) WHERE running = 1;
