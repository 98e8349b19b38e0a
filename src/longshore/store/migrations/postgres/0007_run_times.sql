-- How long the jobs of a kind run: the mean of their latest runs. Every dispatcher writes the kinds
-- that ran, in one statement every few seconds: few versions of a row, so it is updated in place.
CREATE TABLE longshore.run_time (
    kind text PRIMARY KEY,
    runs bigint NOT NULL,
    mean_s double precision NOT NULL,
    noted_at timestamptz NOT NULL
) WITH (
    fillfactor = 50,
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 1000
);
