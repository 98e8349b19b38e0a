"""How long kinds run, in the SQLite store."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from longshore.core.run_times import KEPT_S, MOST_RUNS
from longshore.model.run_time import RunTime
from longshore.store.sqlite.sql import Bulk, Row
from longshore.store.sqlite.transaction import Snapshot, Transaction

_NOTE: Final = Bulk(
    f"""INSERT INTO run_time (kind, runs, mean_s, noted_at)
    SELECT column1, column2, column3, column4 FROM {{rows}} WHERE column1 IS NOT NULL
    ON CONFLICT DO UPDATE SET
        mean_s = (min(runs, {MOST_RUNS}) * mean_s + excluded.runs * excluded.mean_s)
            / (min(runs, {MOST_RUNS}) + excluded.runs),
        runs = min(runs, {MOST_RUNS}) + excluded.runs, noted_at = excluded.noted_at""",
    4,
)


def note_runs(tx: Transaction, times: Sequence[RunTime]) -> None:
    """Kinds ran so often, and so long on average; forgets those that have not run for long."""
    rows: list[Row] = [(one.kind, one.runs, one.mean_s, tx.now) for one in times]
    _NOTE.run(tx.connection, rows)
    tx.execute("DELETE FROM run_time WHERE noted_at < ?", (tx.now - round(KEPT_S * 1e6),))


def run_times(tx: Snapshot, kinds: Sequence[str]) -> list[RunTime]:
    """How long jobs of these kinds run, where that is known."""
    rows = tx.connection.execute(
        """SELECT kind, runs, mean_s FROM run_time
        WHERE kind IN (SELECT value FROM json_each(?)) ORDER BY kind""",
        (msgspec.json.encode(list(kinds)).decode(),),
    ).fetchall()
    return [RunTime(*row) for row in rows]
