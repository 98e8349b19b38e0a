"""Those who watch jobs and groups, on PostgreSQL: they hear of the ends that were noted.

Whoever tells them takes notices that nobody else has, and holds nothing else that others wait for.
Then come the actors, by id, then the jobs whose watchers are gone, then the jobs of next turns: the
order of `actors_sql`. Schedules come last, by id.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from operator import itemgetter
from typing import Final

from longshore.core.placement import first_bytes
from longshore.core.watching import messages_of, nobody_heard
from longshore.model.actor import Message
from longshore.model.batch import BATCH_BYTES
from longshore.model.callback import CallbackTerms
from longshore.model.job import JobState
from longshore.model.notice import Notice
from longshore.payload.callback_jobs import has_callbacks
from longshore.ports import Told
from longshore.store.actor_rows import unstorable_message
from longshore.store.callback_rows import SubjectRow, jobs_for
from longshore.store.postgres.actors_sql import micros as sql_micros
from longshore.store.postgres.connections import Transaction
from longshore.store.postgres.cursors import ClaimCursors
from longshore.store.postgres.mailboxes import Mailboxes
from longshore.store.postgres.next_turns import wake
from longshore.store.postgres.schedules import tell_schedules
from longshore.store.postgres.states import GROUP_STATES, STATES
from longshore.store.postgres.submit import SubmitBatch
from longshore.store.rows import clean, micros, read_notice, utc_now

FIND: Final = """
SELECT number, coalesce(octet_length(result), 0) AS size FROM longshore.notice
WHERE number > $2 ORDER BY number LIMIT $1 FOR UPDATE SKIP LOCKED
"""
_TAKE: Final = """
DELETE FROM longshore.notice WHERE number = ANY ($1::bigint[])
RETURNING number, subject, is_group, round, state, options, error, result
"""
_NOTE_GONE: Final = """
UPDATE longshore.job AS j
SET history = substr(n.history, 2, length(n.history) - 2)
FROM (
    SELECT i.id, jsonb_set(
        h.entries, '{-1,3}', to_jsonb(ltrim((h.entries #>> '{-1,3}') || '; ' || i.text, '; '))
    )::text AS history
    FROM (
        SELECT * FROM unnest($1::uuid[], $2::text[]) AS i (id, text) ORDER BY i.id
    ) AS i
    CROSS JOIN LATERAL (
        SELECT ('[' || history || ']')::jsonb AS entries FROM longshore.job
        WHERE id = i.id FOR UPDATE
    ) AS h
) AS n
WHERE j.id = n.id
"""

_SUBJECTS: Final = f"""
SELECT id, number, kind AS name, round, {sql_micros("ended_at")} AS ended_at
FROM longshore.job WHERE id = ANY ($1::uuid[])
UNION ALL
SELECT id, number, name, round, {sql_micros("ended_at")}
FROM longshore.job_group WHERE id = ANY ($2::uuid[])
"""

_Item = tuple[Notice, Message]


async def tell_watchers(
    tx: Transaction, most: int, since: int, cursors: ClaimCursors, callbacks: CallbackTerms
) -> tuple[Told, int]:
    """Tells those who watch jobs and groups of at most so many that ended.

    It looks behind this number of a notice, and answers how far it came.
    """
    found = await tx.fetch(FIND, most, since)
    if not found:
        return Told(), since
    some = first_bytes(found, itemgetter("size"), BATCH_BYTES)
    notices = await _take(tx, [row["number"] for row in some])
    messages = [(one, message) for one in notices for message in messages_of(one)]
    boxes = Mailboxes(tx)
    sound = [message for _, message in messages if unstorable_message(message) is None]
    await boxes.hold({(message.type, message.key) for message in sound})
    await boxes.look()
    await _note_gone(tx, _deliver(boxes, messages))
    await boxes.flush()
    intake = SubmitBatch(tx, set())
    touched = [box for box in boxes.by_id.values() if box.is_touched]
    ready = await wake(boxes, touched, intake, cursors)
    await _call_back(tx, [one for one in notices if has_callbacks(one)], intake, callbacks)
    told = Told(
        len(notices),
        Counter(ready) + intake.ready,
        more=len(some) < len(found) or len(found) == most,
        schedules=await tell_schedules(tx, notices),
    )
    return told, some[-1]["number"]


async def _call_back(
    tx: Transaction, notices: Sequence[Notice], intake: SubmitBatch, terms: CallbackTerms
) -> None:
    """Submits the callbacks for these ends."""
    if not notices:
        return
    jobs = [one.subject for one in notices if not one.is_group]
    groups = [one.subject for one in notices if one.is_group]
    found = await tx.fetch(_SUBJECTS, jobs, groups)
    rows = {row["id"]: SubjectRow(*row[1:5]) for row in found}
    await intake.accept(jobs_for(notices, rows, micros(utc_now()), terms))


async def _take(tx: Transaction, numbers: Sequence[int]) -> list[Notice]:
    rows = await tx.fetch(_TAKE, numbers)
    return [
        read_notice(subject, is_group, round, _state(state, is_group), *rest)
        for _, subject, is_group, round, state, *rest in sorted(rows, key=itemgetter("number"))
    ]


def _state(code: int, is_group: bool) -> JobState:
    return JobState(GROUP_STATES[code].value) if is_group else STATES[code]


def _deliver(boxes: Mailboxes, messages: Sequence[_Item]) -> list[_Item]:
    """Puts the messages into their mailboxes; answers those of jobs whose watcher is gone."""
    gone = []
    for notice, message in messages:
        box = boxes.find((message.type, message.key))
        if box is not None:
            boxes.put(box, message)
        elif not notice.is_group:
            gone.append((notice, message))
    return gone


async def _note_gone(tx: Transaction, gone: Sequence[_Item]) -> None:
    """The history of a job says which of its watchers are gone."""
    texts: dict[object, list[str]] = {}
    for notice, message in gone:
        texts.setdefault(notice.subject, []).append(nobody_heard(message))
    if texts:
        await tx.fetch(_NOTE_GONE, list(texts), [clean("; ".join(some)) for some in texts.values()])
