"""Submits in the application's own transaction.

Theory. A job that belongs to a change of the application's data is inserted in the transaction of
that change. It exists if and only if the change does. The insert writes only new rows: the job, its
number, and a line of the tally. So no other transaction waits for this one, except a submit of the
same id or unique key: only the end of this transaction decides which of the two counts.

The statements are a conversation: a generator that yields a statement and is sent its rows.
`app_connection` holds the conversation in the way of each driver.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any, Final, NamedTuple
from uuid import UUID

from longshore.core.crowd_limits import IN_TRANSACTION, check_no_crowd
from longshore.core.fairness import NEW
from longshore.core.limited_starts import keys_text
from longshore.errors import StoreUnavailable
from longshore.model.actor import Message
from longshore.model.job import Submission, Submitted
from longshore.ports import Hint
from longshore.store.postgres.columns import (
    Answer,
    Holder,
    Item,
    SoundItems,
    answered,
    columns,
    runs,
    unique_keys,
)
from longshore.store.postgres.deliveries_sql import ENQUEUE_SENDS
from longshore.store.postgres.known_sql import HOLDERS, KNOWN
from longshore.store.postgres.limits_sql import ENQUEUE_LIMITED
from longshore.store.postgres.sql import ENQUEUE, MARK

TURNS: Final = 5
_NOTIFY: Final = "SELECT pg_notify('longshore', $1::text)"
_SENDER: Final = "enqueue"


class Ask(NamedTuple):
    """One statement, its parameters numbered $1, $2, …, and their values."""

    sql: str
    values: Sequence[Any]


Rows = Sequence[Sequence[Any]]
Conversation = Generator[Ask, Rows, list[Answer]]
Sending = Generator[Ask, Rows, None]


def enqueue(jobs: Sequence[Submission], *, notify: bool = False) -> Conversation:
    """Stores new jobs; answers item by item. With `notify` dispatchers hear of it at the commit."""
    for job in jobs:
        check_no_crowd(job, IN_TRANSACTION)
    sound = SoundItems(jobs)
    taken: list[Answer] = []
    for run in runs(sound.items):
        taken += yield from _take(run)
    if notify and taken:
        yield Ask(_NOTIFY, [f"{_SENDER} {Hint.WORK.value} {Hint.CHANGE.value}"])
    return sound.answers(taken)


def enqueue_sends(messages: Sequence[Message], *, notify: bool = False) -> Sending:
    """Stores messages for delivery. With `notify` dispatchers hear of them at the commit."""
    columns: list[list[Any]] = [
        [one.id for one in messages],
        [one.type for one in messages],
        [one.key for one in messages],
        [one.name for one in messages],
        [one.args for one in messages],
        [one.delay_s for one in messages],
    ]
    yield Ask(ENQUEUE_SENDS, columns)
    if notify and messages:
        yield Ask(_NOTIFY, [f"{_SENDER} {Hint.SENDS.value} {Hint.CHANGE.value}"])


def _take(items: list[Item]) -> Conversation:
    answers: dict[UUID, Answer] = {}
    left = items
    limited = any(job.options.limits or job.options.fair for job, _ in items)
    for _ in range(TURNS):
        if limited:
            keys = [keys_text(job.options.limits) for job, _ in left]
            fair = [job.options.fair or None for job, _ in left]
            behind = [key and NEW for key in fair]
            special = [keys, behind, [None] * len(left), fair]
            inserted = yield Ask(ENQUEUE_LIMITED, [*columns(left), *special])
        else:
            inserted = yield Ask(ENQUEUE, columns(left))
        for id, number in inserted:
            answers[_uuid(id)] = Submitted(_uuid(id), number)
        left = [item for item in left if item[0].id not in answers]
        if left:
            answers |= yield from _look_up(left)
            # A job that held a key has just ended: now the key is free.
            left = [item for item in left if item[0].id not in answers]
        if not left:
            return [answers[job.id] for job, _ in items]
    raise StoreUnavailable("a unique key changed hands too often; try again")


def _look_up(items: list[Item]) -> Generator[Ask, Rows, dict[UUID, Answer]]:
    """Answers for the jobs that are stored already, or whose key is taken."""
    rows = yield Ask(KNOWN, [[job.id for job, _ in items]])
    known = {_uuid(id): (number, body) for id, number, body in rows}
    keys = unique_keys(items, known)
    rows = (yield Ask(HOLDERS, keys)) if keys else []
    holders: dict[tuple[str, str | None], Holder] = {
        (kind, key): Submitted(_uuid(id), number, existing=True)
        for kind, key, id, number, _ in rows
    }
    answers = answered(items, known, holders)
    if answers:
        # The rows found may be on this server only; with a mark the commit waits for a standby.
        yield Ask(MARK, [])
    return answers


def _uuid(value: UUID | str) -> UUID:
    """An id, which some drivers give as text."""
    return value if isinstance(value, UUID) else UUID(str(value))
