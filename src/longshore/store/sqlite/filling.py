"""What attempts get on SQLite that is not in their rows: results of others, and events of turns."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any, Final
from uuid import UUID

from longshore.core.recovery import is_recovery
from longshore.core.turns import MOST_EVENTS, read_call
from longshore.model.actor import Event, EventKind, TurnInput
from longshore.model.attempt import Attempt
from longshore.payload.callback_jobs import is_callback, with_key
from longshore.store.actor_rows import read_attempt, turn_attempt, unpack_reply_to, unpack_timers
from longshore.store.rows import LARGEST_INT, unpack_error
from longshore.store.sqlite.results import with_results
from longshore.store.sqlite.sql import Bulk, Row
from longshore.store.sqlite.transaction import Snapshot
from longshore.store.sqlite.waking import LAST_TURN, PAUSED

_ACTORS: Final = Bulk(
    f"""SELECT v.column1, a.number, a.id, a.type, a.key, a.status, t.n, t.version, t.starts,
        t.timers, t.worker, t.state, (SELECT value FROM secret WHERE name = 'callbacks'),
        job.error
    FROM {{rows}} AS v CROSS JOIN job ON job.id = v.column1
    CROSS JOIN actor AS a ON a.number = job.actor_id CROSS JOIN turn AS t ON {LAST_TURN}""",
    1,
)
_OF_READ: Final = f"""SELECT a.id, a.type, a.key, t.n, t.version, t.timers, t.worker, t.state
    FROM actor AS a CROSS JOIN turn AS t ON {LAST_TURN} WHERE a.id = ?"""
_MESSAGE: Final = "m.actor, m.number, m.id, m.name, m.args, m.at, m.reply_to"
# As many messages as one turn takes: up to the number, or the time, of the last of them.
_UNREAD: Final = Bulk(
    f"""SELECT {_MESSAGE} FROM {{rows}} AS v CROSS JOIN message AS m INDEXED BY message_unread
    ON m.actor = v.column1 AND m.number <= coalesce((
        SELECT x.number FROM message AS x INDEXED BY message_unread
        WHERE x.due_at IS NULL AND x.actor = v.column1
        ORDER BY x.number LIMIT 1 OFFSET {MOST_EVENTS - 1}), {LARGEST_INT})
    WHERE m.due_at IS NULL ORDER BY m.actor, m.number""",
    1,
)
_DUE: Final = Bulk(
    f"""SELECT {_MESSAGE.replace("m.at", "m.due_at")}
    FROM {{rows}} AS v CROSS JOIN message AS m INDEXED BY message_due
    ON m.actor = v.column1 AND m.due_at <= min(v.column2, coalesce((
        SELECT x.due_at FROM message AS x INDEXED BY message_due
        WHERE x.due_at IS NOT NULL AND x.actor = v.column1
        ORDER BY x.due_at, x.number LIMIT 1 OFFSET {MOST_EVENTS - 1}), v.column2))
    WHERE m.due_at IS NOT NULL ORDER BY m.actor, m.due_at, m.number""",
    2,
)

_Mail = dict[int, list[Event]]
"""Events by the actors' numbers."""


def filled(tx: Snapshot, attempts: Sequence[Attempt]) -> list[Attempt]:
    """The attempts as their workers get them. Most have nothing to fill in, and cost nothing."""
    whole = list(attempts)
    if any(one.options.references for one in whole):
        whole = with_results(tx, whole)
    if any(one.options.turn for one in whole):
        whole = _with_events(tx, whole)
    if any(one.options.reads for one in whole):
        whole = [_read(tx, one) if one.options.reads else one for one in whole]
    if any(map(is_callback, whole)):
        secret = callback_secret(tx)
        whole = [with_key(one, secret) if is_callback(one) else one for one in whole]
    return whole


def callback_secret(tx: Snapshot) -> bytes:
    """The secret of this store from which the keys for callbacks, and for their tokens, follow."""
    query = "SELECT value FROM secret WHERE name = 'callbacks'"
    secret: bytes = tx.execute(query).fetchone()[0]
    return secret


def _read(tx: Snapshot, attempt: Attempt) -> Attempt:
    """A job that reads an actor, with the actor's state."""
    row = tx.execute(_OF_READ, (read_call(attempt.args).actor.bytes,)).fetchone()
    return read_attempt(attempt, None if row is None else _input(tx, row))


def _with_events(tx: Snapshot, attempts: Sequence[Attempt]) -> list[Attempt]:
    """The attempts, and those that are turns with their inputs as arguments."""
    keys: list[Row] = [(one.id.bytes,) for one in attempts if one.options.turn]
    actors = {row[0]: row[1:] for row in _all(tx, _ACTORS, keys)}
    numbers: list[Row] = [(actor[0],) for actor in actors.values()]
    unread = _events(_all(tx, _UNREAD, numbers), was_delayed=False)
    due = _events(_all(tx, _DUE, [(*one, tx.now) for one in numbers]), was_delayed=True)
    return [
        _turn(tx, one, actors[one.id.bytes], unread, due) if one.id.bytes in actors else one
        for one in attempts
    ]


def _all(tx: Snapshot, bulk: Bulk, keys: Sequence[Row]) -> Iterator[tuple[Any, ...]]:
    for text, values in bulk.pieces(keys):
        yield from tx.connection.execute(text, values).fetchall()


def _events(rows: Iterator[tuple[Any, ...]], *, was_delayed: bool) -> _Mail:
    found: _Mail = defaultdict(list)
    for actor, number, id, name, args, at, to in rows:
        what = name, args, at, number, UUID(bytes=id), was_delayed, unpack_reply_to(to)
        found[actor].append(Event(EventKind.MESSAGE, *what))
    return found


def _input(tx: Snapshot, row: tuple[Any, ...]) -> TurnInput:
    """What a turn, or a read, gets beside its events."""
    id, type, key, n, version, timers, worker, state = row
    who = UUID(bytes=id), type, key, n + 1
    by = None if worker is None else UUID(bytes=worker)
    return TurnInput(*who, state, version, tx.now, unpack_timers(timers), (), by)


def _turn(
    tx: Snapshot, attempt: Attempt, actor: tuple[Any, ...], unread: _Mail, due: _Mail
) -> Attempt:
    number, id, type, key, status, n, version, starts, timers, worker, state, secret, error = actor
    return turn_attempt(
        attempt,
        _input(tx, (id, type, key, n, version, timers, worker, state)),
        unread.get(number, ()),
        due.get(number, ()),
        starts=bool(starts),
        paused=status == PAUSED,
        secret=secret,
        error=unpack_error(error) if is_recovery(attempt) else None,
    )
