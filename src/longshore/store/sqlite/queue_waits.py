"""How long the jobs of queues waited, by cause, on SQLite."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from longshore.store.rows import clean
from longshore.store.sqlite.transaction import Snapshot, Transaction

_ADD: Final = """INSERT INTO queue_wait (queue, cause, waited_s) VALUES (?, ?, ?)
    ON CONFLICT DO UPDATE SET waited_s = waited_s + excluded.waited_s"""


def add_queue_waits(tx: Transaction, waits: Mapping[tuple[str, str], float]) -> None:
    """Adds so many seconds to what the jobs of queues waited, by cause."""
    rows = [(clean(queue), str(cause), s) for (queue, cause), s in sorted(waits.items())]
    tx.connection.executemany(_ADD, rows)


def forget_queue_waits(tx: Transaction) -> None:
    """Forgets those of queues that hold no job any more."""
    tx.execute("DELETE FROM queue_wait WHERE queue NOT IN (SELECT queue FROM lane)")


def queue_waits(tx: Snapshot) -> list[tuple[str, str, float]]:
    """For each queue and cause, how long its jobs waited."""
    return tx.execute("SELECT queue, cause, waited_s FROM queue_wait").fetchall()
