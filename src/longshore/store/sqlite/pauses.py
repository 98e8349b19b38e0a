"""From when to when queues and groups were paused, on SQLite."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from longshore.model.waited import MOST_PAUSES, PAUSES_KEPT_S
from longshore.store.rows import moment
from longshore.store.sqlite.transaction import Snapshot, Transaction

_BEGIN: Final = """INSERT INTO pause (is_group, name, since) VALUES (?, ?, ?)
    ON CONFLICT DO NOTHING"""
_END: Final = """UPDATE pause SET until = max(since, ?3)
    WHERE is_group = ?1 AND name = ?2 AND until IS NULL"""
_PAUSED_QUEUES: Final = """SELECT name, since FROM queue JOIN pause USING (name)
    WHERE queue.paused AND is_group = 0 AND until IS NULL"""
_FORGET_OLDEST: Final = f"""DELETE FROM pause WHERE is_group = ?1 AND name = ?2 AND since < (
    SELECT min(since) FROM (
        SELECT since FROM pause WHERE is_group = ?1 AND name = ?2
        ORDER BY since DESC LIMIT {MOST_PAUSES}))"""


def note_pause(tx: Transaction, name: str, paused: bool, *, is_group: bool = False) -> None:
    """Notes that a queue or a group is paused from now on, or no more."""
    tx.execute(_BEGIN if paused else _END, (is_group, name, tx.now))
    if paused:
        tx.execute(_FORGET_OLDEST, (is_group, name))


def paused_since(tx: Snapshot) -> dict[str, datetime]:
    """Since when each of the queues is paused that are."""
    return {name: moment(since) for name, since in tx.execute(_PAUSED_QUEUES)}


def forget_pauses(tx: Transaction) -> None:
    """Forgets pauses that ended long ago."""
    oldest = tx.now - round(PAUSES_KEPT_S * 1e6)
    tx.execute("DELETE FROM pause WHERE until < ?", (oldest,))
