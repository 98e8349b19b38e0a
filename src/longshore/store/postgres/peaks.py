"""How much kinds use, in the PostgreSQL store."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from longshore.core.usage import KEPT_S, PERIOD_S
from longshore.model.usage import Peak
from longshore.store.postgres.connections import ConnectionPool

_IS_OVER: Final = f"t.since <= now() - make_interval(secs => {PERIOD_S})"
_NOTE: Final = f"""
INSERT INTO longshore.peak AS t (kind, runs, memory_bytes, cpu_s)
SELECT * FROM unnest($1::text[], $2::bigint[], $3::bigint[], $4::float8[])
    AS i (kind, runs, memory_bytes, cpu_s)
-- In one order: two dispatchers that note the same kinds never wait for each other in a circle.
ORDER BY i.kind
ON CONFLICT (kind) DO UPDATE SET
    past_runs = CASE WHEN {_IS_OVER} THEN t.runs ELSE t.past_runs END,
    past_memory_bytes = CASE WHEN {_IS_OVER} THEN t.memory_bytes ELSE t.past_memory_bytes END,
    past_cpu_s = CASE WHEN {_IS_OVER} THEN t.cpu_s ELSE t.past_cpu_s END,
    runs = CASE WHEN {_IS_OVER} THEN 0 ELSE t.runs END + excluded.runs,
    memory_bytes = greatest(
        CASE WHEN {_IS_OVER} THEN 0 ELSE t.memory_bytes END, excluded.memory_bytes),
    cpu_s = greatest(CASE WHEN {_IS_OVER} THEN 0 ELSE t.cpu_s END, excluded.cpu_s),
    since = CASE WHEN {_IS_OVER} THEN now() ELSE t.since END
"""
_FORGET: Final = """
DELETE FROM longshore.peak WHERE kind = ANY (ARRAY(
    SELECT kind FROM longshore.peak
    WHERE since < now() - make_interval(secs => $1) FOR UPDATE SKIP LOCKED
))
"""
_READ: Final = """
SELECT kind, runs + past_runs, greatest(memory_bytes, past_memory_bytes),
    greatest(cpu_s, past_cpu_s)
FROM longshore.peak ORDER BY kind
"""


class PostgresPeaks:
    """The verbs about how much kinds use."""

    _keeping: ConnectionPool
    _reading: ConnectionPool

    async def note_peaks(self, peaks: Sequence[Peak]) -> None:
        """Attempts of kinds used so much; forgets kinds that were not measured for long."""
        columns = zip(*((p.kind, p.runs, p.memory_bytes, p.cpu_s) for p in peaks), strict=True)
        if peaks:
            await self._keeping.fetch(_NOTE, *columns)
        await self._keeping.fetch(_FORGET, KEPT_S)

    async def peaks(self) -> list[Peak]:
        """The most that attempts of each kind used lately."""
        return [Peak(*row) for row in await self._reading.fetch(_READ)]
