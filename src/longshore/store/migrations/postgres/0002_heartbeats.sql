-- When a worker was last heard of, and how busy its machine was. Apart from `worker`: writing it every
-- few seconds copies no long row, and never meets the locks that claims take there.
CREATE TABLE longshore.heartbeat (
    worker uuid PRIMARY KEY,
    seen_at timestamptz NOT NULL,
    cpu_percent double precision NOT NULL,
    memory_percent double precision NOT NULL
) WITH (
    fillfactor = 50,
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 1000
);
