"""Those who watch jobs and groups, on SQLite: they hear of the ends that were noted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final
from uuid import UUID

from longshore.core.placement import first_bytes
from longshore.core.watching import messages_of, nobody_heard
from longshore.model.batch import BATCH_BYTES
from longshore.model.callback import CallbackTerms
from longshore.model.job import JobState
from longshore.model.notice import Notice
from longshore.payload.callback_jobs import has_callbacks
from longshore.ports import Told
from longshore.store.callback_rows import SubjectRow, jobs_for
from longshore.store.rows import clean, read_notice
from longshore.store.sqlite.mailing import Mailing
from longshore.store.sqlite.schedules import tell_schedules
from longshore.store.sqlite.submit import accept
from longshore.store.sqlite.transaction import Snapshot, Transaction
from longshore.store.sqlite.waking import wake

_NOTICES: Final = """
    SELECT number, subject, is_group, round, state, options, error, result
    FROM notice WHERE number <= ? ORDER BY number"""
_SIZES: Final = """
    SELECT number, coalesce(length(result), 0) FROM notice ORDER BY number LIMIT ?"""
_OF_JOB: Final = "SELECT number, kind, round, ended_at FROM job WHERE id = ?"
_OF_GROUP: Final = "SELECT number, name, round, ended_at FROM job_group WHERE id = ?"
_NOTE_GONE: Final = """
    UPDATE job SET history = json_set(history, '$[#-1][3]',
        ltrim(json_extract(history, '$[#-1][3]') || '; ' || ?2, '; '))
    WHERE id = ?1"""


def has_notices(tx: Snapshot) -> bool:
    """Whether `tell_watchers` has anything to do."""
    return bool(tx.execute("SELECT EXISTS (SELECT 1 FROM notice)").fetchone()[0])


def tell_watchers(tx: Transaction, most: int, callbacks: CallbackTerms) -> Told:
    """Tells those who watch jobs and groups of at most so many that ended."""
    notices = _take(tx, most)
    called = _call_back(tx, [one for one in notices if has_callbacks(one)], callbacks)
    messages = [(one, message) for one in notices for message in messages_of(one)]
    mailing = Mailing(tx)
    mailing.look_up((message.type, message.key) for _, message in messages)
    for notice, message in messages:
        if mailing.deliver(message) is not None and not notice.is_group:
            text = clean(nobody_heard(message))
            tx.execute(_NOTE_GONE, (notice.subject.bytes, text))
    mailing.close()
    woken = wake(tx, mailing.touched)
    told = tell_schedules(tx, notices)
    return Told(len(notices), woken.by_sends + called, has_notices(tx), told)


def _call_back(tx: Transaction, notices: Sequence[Notice], terms: CallbackTerms) -> Counter[int]:
    """Submits the callbacks for these ends; answers how many became ready, by lane."""
    rows: dict[UUID, SubjectRow] = {}
    for one in notices:
        query = _OF_GROUP if one.is_group else _OF_JOB
        found = tx.execute(query, (one.subject.bytes,)).fetchone()
        if found is not None:
            rows[one.subject] = SubjectRow(*found)
    jobs = jobs_for(notices, rows, tx.now, terms)
    return accept(tx, jobs)[1] if jobs else Counter()


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
