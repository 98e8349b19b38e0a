"""How long kinds run, in the PostgreSQL store."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from longshore.core.run_times import KEPT_S, MOST_RUNS
from longshore.model.run_time import RunTime
from longshore.store.postgres.connections import ConnectionPool

_NOTE: Final = f"""
INSERT INTO longshore.run_time AS t (kind, runs, mean_s, noted_at)
SELECT i.kind, i.runs, i.mean_s, now()
FROM unnest($1::text[], $2::bigint[], $3::float8[]) AS i (kind, runs, mean_s)
-- In one order: two dispatchers that note the same kinds never wait for each other in a circle.
ORDER BY i.kind
ON CONFLICT (kind) DO UPDATE
SET mean_s = (least(t.runs, {MOST_RUNS}) * t.mean_s + excluded.runs * excluded.mean_s)
        / (least(t.runs, {MOST_RUNS}) + excluded.runs),
    runs = least(t.runs, {MOST_RUNS}) + excluded.runs,
    noted_at = excluded.noted_at
"""
_FORGET: Final = """
DELETE FROM longshore.run_time WHERE kind = ANY (ARRAY(
    SELECT kind FROM longshore.run_time
    WHERE noted_at < now() - make_interval(secs => $1) FOR UPDATE SKIP LOCKED
))
"""
_READ: Final = """
SELECT kind, runs, mean_s FROM longshore.run_time WHERE kind = ANY ($1::text[]) ORDER BY kind
"""


class PostgresRunTimes:
    """The verbs about how long kinds run."""

    _keeping: ConnectionPool
    _reading: ConnectionPool

    async def note_runs(self, times: Sequence[RunTime]) -> None:
        """Kinds ran so often, and so long on average; forgets those that have not run for long."""
        columns = ([one.kind for one in times], [one.runs for one in times])
        await self._keeping.fetch(_NOTE, *columns, [one.mean_s for one in times])
        await self._keeping.fetch(_FORGET, KEPT_S)

    async def run_times(self, kinds: Sequence[str]) -> list[RunTime]:
        """How long jobs of these kinds run, where that is known."""
        return [RunTime(*row) for row in await self._reading.fetch(_READ, list(kinds))]
