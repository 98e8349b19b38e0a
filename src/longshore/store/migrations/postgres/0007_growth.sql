-- Groups that grow. `scope` is the node in whose scope a node is, and `open` how many nodes in its own scope are not closed.
-- `has_ended` says that the node was told of its own job's end while some of them were open. So of the end and the last of
-- them only one closes it. `expanded` is how many elements of a map are jobs already.
ALTER TABLE longshore.node
ADD COLUMN scope uuid,
ADD COLUMN open integer NOT NULL DEFAULT 0,
ADD COLUMN expanded integer NOT NULL DEFAULT 0,
ADD COLUMN scope_marks smallint NOT NULL DEFAULT 0,
ADD COLUMN has_ended boolean NOT NULL DEFAULT false,
ADD COLUMN cause bytea;

CREATE INDEX node_scope ON longshore.node (group_id, scope, place) WHERE scope IS NOT NULL;

-- Of a node that is not closed, a note only tells that a job in its scope failed or was cancelled.
ALTER TABLE longshore.unsettled ADD COLUMN is_early boolean NOT NULL DEFAULT false;

ALTER TABLE longshore.group_retry ADD COLUMN retired text[] NOT NULL DEFAULT '{}';
