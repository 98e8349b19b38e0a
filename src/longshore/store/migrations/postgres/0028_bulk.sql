-- Bulks: one action for every job that a search finds, done page by page. `bulk` is all of it, packed. A page counts if
-- the `version` is still the one that it was made for.
CREATE TABLE longshore.bulk (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    version bigint NOT NULL,
    id uuid NOT NULL,
    running boolean NOT NULL,
    bulk bytea NOT NULL
);

CREATE UNIQUE INDEX bulk_id ON longshore.bulk (id);

CREATE INDEX bulk_running ON longshore.bulk (number) WHERE running;
