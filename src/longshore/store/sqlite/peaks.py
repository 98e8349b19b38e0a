"""How much kinds use, in the SQLite store."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from longshore.core.usage import KEPT_S, PERIOD_S
from longshore.model.usage import Peak
from longshore.store.sqlite.sql import Bulk, Row
from longshore.store.sqlite.transaction import Snapshot, Transaction

# ?1 is when a period began at the latest that is over. `since` is set last: all others ask it.
_NOTE: Final = Bulk(
    """INSERT INTO peak (kind, runs, memory_bytes, cpu_s, since)
    SELECT column1, column2, column3, column4, column5 FROM {rows} WHERE column1 IS NOT NULL
    ON CONFLICT DO UPDATE SET
        past_runs = iif(since <= ?1, runs, past_runs),
        past_memory_bytes = iif(since <= ?1, memory_bytes, past_memory_bytes),
        past_cpu_s = iif(since <= ?1, cpu_s, past_cpu_s),
        runs = iif(since <= ?1, 0, runs) + excluded.runs,
        memory_bytes = max(iif(since <= ?1, 0, memory_bytes), excluded.memory_bytes),
        cpu_s = max(iif(since <= ?1, 0.0, cpu_s), excluded.cpu_s),
        since = iif(since <= ?1, excluded.since, since)""",
    5,
)


def note_peaks(tx: Transaction, peaks: Sequence[Peak]) -> None:
    """Attempts of kinds used so much; forgets kinds that were not measured for long."""
    rows: list[Row] = [(one.kind, one.runs, one.memory_bytes, one.cpu_s, tx.now) for one in peaks]
    _NOTE.run(tx.connection, rows, (tx.now - round(PERIOD_S * 1e6),))
    tx.execute("DELETE FROM peak WHERE since < ?", (tx.now - round(KEPT_S * 1e6),))


def peaks(tx: Snapshot) -> list[Peak]:
    """The most that attempts of each kind used lately."""
    rows = tx.execute(
        """SELECT kind, runs + past_runs, max(memory_bytes, past_memory_bytes),
            max(cpu_s, past_cpu_s) FROM peak ORDER BY kind"""
    )
    return [Peak(*row) for row in rows]
