-- The values of the fields that actors are listed by, as JSON. A row is written when a value changes.
CREATE TABLE listed_field (
    actor INTEGER NOT NULL,
    type TEXT NOT NULL,
    field TEXT NOT NULL,
    value TEXT NOT NULL,
    key TEXT NOT NULL,
    PRIMARY KEY (actor, field)
) STRICT, WITHOUT ROWID;

CREATE INDEX listed_field_value ON listed_field (type, field, value, key);
