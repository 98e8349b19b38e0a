-- How many dependencies the jobs of a group have in all. It is counted when somebody first adds to the group from outside,
-- and again when jobs have left it.
ALTER TABLE job_group ADD COLUMN edges INTEGER;
