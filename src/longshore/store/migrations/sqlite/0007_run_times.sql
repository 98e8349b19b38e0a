-- How long the jobs of a kind run: the mean of their latest runs.
CREATE TABLE run_time (
    kind TEXT PRIMARY KEY,
    runs INTEGER NOT NULL,
    mean_s REAL NOT NULL,
    noted_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
