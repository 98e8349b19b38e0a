"""How much kinds use, in the SQLite store."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from longshore.core.usage import KEPT_S, PERIOD_S
from longshore.model.usage import Peak
from longshore.store.sqlite.transaction import Snapshot, Transaction

# ?6 is when a period began at the latest that is over.
_NOTE: Final = """INSERT INTO peak (kind, runs, memory_bytes, cpu_s, since)
    VALUES (?1, ?2, ?3, ?4, ?5) ON CONFLICT DO UPDATE SET
        past_runs = iif(since <= ?6, runs, past_runs),
        past_memory_bytes = iif(since <= ?6, memory_bytes, past_memory_bytes),
        past_cpu_s = iif(since <= ?6, cpu_s, past_cpu_s),
        runs = iif(since <= ?6, 0, runs) + excluded.runs,
        memory_bytes = max(iif(since <= ?6, 0, memory_bytes), excluded.memory_bytes),
        cpu_s = max(iif(since <= ?6, 0.0, cpu_s), excluded.cpu_s),
        since = iif(since <= ?6, excluded.since, since)"""


def note_peaks(tx: Transaction, peaks: Sequence[Peak]) -> None:
    """Attempts of kinds used so much; forgets kinds that were not measured for long."""
    when = tx.now, tx.now - round(PERIOD_S * 1e6)
    rows = [(one.kind, one.runs, one.memory_bytes, one.cpu_s, *when) for one in peaks]
    tx.connection.executemany(_NOTE, rows)
    tx.execute("DELETE FROM peak WHERE since < ?", (tx.now - round(KEPT_S * 1e6),))


def peaks(tx: Snapshot) -> list[Peak]:
    """The most that attempts of each kind used lately."""
    rows = tx.execute(
        """SELECT kind, runs + past_runs, max(memory_bytes, past_memory_bytes),
            max(cpu_s, past_cpu_s) FROM peak ORDER BY kind"""
    )
    return [Peak(*row) for row in rows]
