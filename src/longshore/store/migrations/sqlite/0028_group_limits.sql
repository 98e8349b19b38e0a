-- A group may have a limit of its own, packed: each of its jobs counts for its key.
ALTER TABLE job_group ADD COLUMN own_limit BLOB;
