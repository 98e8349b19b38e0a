-- Logs in the file store: which entries of a job (up to one of an attempt) lie where in an archive.
CREATE TABLE longshore.log_part (
    job uuid NOT NULL,
    token bigint NOT NULL,
    seq bigint NOT NULL,
    lines bigint NOT NULL,
    archive bytea NOT NULL,
    start bigint NOT NULL,
    size bigint NOT NULL,
    at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (job, token, seq)
);

CREATE INDEX log_part_archive ON longshore.log_part (archive);

-- The most that attempts of a kind used in a period, and in the one before it.
CREATE TABLE longshore.peak (
    kind text COLLATE "C" PRIMARY KEY,
    runs bigint NOT NULL,
    memory_bytes bigint NOT NULL,
    cpu_s double precision NOT NULL,
    since timestamptz NOT NULL DEFAULT now(),
    past_runs bigint NOT NULL DEFAULT 0,
    past_memory_bytes bigint NOT NULL DEFAULT 0,
    past_cpu_s double precision NOT NULL DEFAULT 0
);
