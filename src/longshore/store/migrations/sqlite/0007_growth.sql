-- Groups that grow. `scope` is the place of the node in whose scope a node is, and `open` how many nodes in its own scope are
-- not closed. `expanded` is how many elements of a map are jobs already.
ALTER TABLE node ADD COLUMN scope INTEGER;

ALTER TABLE node ADD COLUMN open INTEGER NOT NULL DEFAULT 0;

ALTER TABLE node ADD COLUMN scope_marks INTEGER NOT NULL DEFAULT 0;

ALTER TABLE node ADD COLUMN cause BLOB;

ALTER TABLE node ADD COLUMN expanded INTEGER NOT NULL DEFAULT 0;

CREATE INDEX node_scope ON node (group_id, scope) WHERE scope IS NOT NULL;

-- Of a node that is not closed, a note only tells that a job in its scope failed or was cancelled.
ALTER TABLE unsettled ADD COLUMN is_early INTEGER NOT NULL DEFAULT 0;

ALTER TABLE group_retry ADD COLUMN retired TEXT NOT NULL DEFAULT '[]';
