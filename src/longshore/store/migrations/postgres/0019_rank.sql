-- A job's rank is its number, unless it was added to a group: then it is that of what added it. Jobs of earlier
-- versions have the rank 0: they are older than all others, so they stay in their order before them.
ALTER TABLE longshore.job ALTER COLUMN rank SET DEFAULT currval('longshore.number');
