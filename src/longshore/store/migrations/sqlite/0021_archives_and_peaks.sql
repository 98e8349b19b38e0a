-- Logs in the file store: which entries of a job (up to one of an attempt) lie where in an archive.
CREATE TABLE log_part (
    job INTEGER NOT NULL,
    token INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    lines INTEGER NOT NULL,
    archive BLOB NOT NULL,
    start INTEGER NOT NULL,
    size INTEGER NOT NULL,
    at INTEGER NOT NULL,
    PRIMARY KEY (job, token, seq)
) STRICT, WITHOUT ROWID;

CREATE INDEX log_part_archive ON log_part (archive);

-- The most that attempts of a kind used in a period, and in the one before it.
CREATE TABLE peak (
    kind TEXT PRIMARY KEY,
    runs INTEGER NOT NULL,
    memory_bytes INTEGER NOT NULL,
    cpu_s REAL NOT NULL,
    since INTEGER NOT NULL,
    past_runs INTEGER NOT NULL DEFAULT 0,
    past_memory_bytes INTEGER NOT NULL DEFAULT 0,
    past_cpu_s REAL NOT NULL DEFAULT 0.0
) STRICT, WITHOUT ROWID;
