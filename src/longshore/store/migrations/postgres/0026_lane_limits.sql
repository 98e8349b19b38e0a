-- Rules of limits for kinds and queues. Each statement that starts jobs asks whether there are any: it reads an index
-- that is empty without them.
ALTER TABLE longshore.limit_rule ADD COLUMN of_lanes boolean NOT NULL
GENERATED ALWAYS AS (pattern LIKE 'kind=%' OR pattern LIKE 'queue=%') STORED;

CREATE INDEX limit_rule_of_lanes ON longshore.limit_rule (pattern) WHERE of_lanes;

-- Has no rows. Statements that start jobs lock it as a table, until they commit; who changes such a rule waits for
-- them. So nothing starts by a rule that is not there any more.
CREATE TABLE longshore.limit_gate (id smallint PRIMARY KEY);
