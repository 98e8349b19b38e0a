"""Those who watch jobs and groups, on SQLite: they hear of the ends that were noted."""

from __future__ import annotations

from typing import Final
from uuid import UUID

from longshore.core.placement import first_bytes
from longshore.core.watching import messages_of, nobody_heard
from longshore.model.batch import BATCH_BYTES
from longshore.model.job import JobState
from longshore.model.notice import Notice
from longshore.ports import Told
from longshore.store.rows import clean, read_notice
from longshore.store.sqlite.mailing import Mailing
from longshore.store.sqlite.transaction import Snapshot, Transaction
from longshore.store.sqlite.waking import wake

_NOTICES: Final = """
    SELECT number, subject, is_group, round, state, options, error, result
    FROM notice WHERE number <= ? ORDER BY number"""
_SIZES: Final = """
    SELECT number, coalesce(length(result), 0) FROM notice ORDER BY number LIMIT ?"""
_NOTE_GONE: Final = """
    UPDATE job SET history = json_set(history, '$[#-1][3]',
        ltrim(json_extract(history, '$[#-1][3]') || '; ' || ?2, '; '))
    WHERE id = ?1"""


def has_notices(tx: Snapshot) -> bool:
    """Whether `tell_watchers` has anything to do."""
    return bool(tx.execute("SELECT EXISTS (SELECT 1 FROM notice)").fetchone()[0])


def tell_watchers(tx: Transaction, most: int = 100) -> Told:
    """Tells those who watch jobs and groups of at most so many that ended."""
    notices = _take(tx, most)
    messages = [(one, message) for one in notices for message in messages_of(one)]
    mailing = Mailing(tx)
    mailing.look_up((message.type, message.key) for _, message in messages)
    for notice, message in messages:
        if mailing.deliver(message) is not None and not notice.is_group:
            text = clean(nobody_heard(message))
            tx.execute(_NOTE_GONE, (notice.subject.bytes, text))
    mailing.close()
    woken = wake(tx, mailing.touched)
    return Told(len(notices), woken.by_sends, more=has_notices(tx))


def _take(tx: Transaction, most: int) -> list[Notice]:
    found = tx.execute(_SIZES, (most,)).fetchall()
    if not found:
        return []
    [*_, (last, _)] = first_bytes(found, lambda row: row[1], BATCH_BYTES)
    rows = tx.execute(_NOTICES, (last,)).fetchall()
    tx.execute("DELETE FROM notice WHERE number <= ?", (last,))
    return [
        read_notice(UUID(bytes=subject), is_group, round, JobState(state), *rest)
        for _, subject, is_group, round, state, *rest in rows
    ]
