"""How actors are shown on SQLite: as a whole, by their last turns, by their mail."""

from __future__ import annotations

from typing import Any, Final
from uuid import UUID

from msgspec import json

from longshore.core.turns import status_of
from longshore.model.actor import Actor, ActorFilter, ActorPage, MailView, TurnView
from longshore.model.job import JobState
from longshore.store.actor_rows import (
    NEVER,
    NO_PAGE,
    is_wanted,
    page_size,
    unpack_terms,
    unpack_timers,
)
from longshore.store.rows import LARGEST_INT, clean, moment, unpack_error
from longshore.store.sqlite.sql import Value
from longshore.store.sqlite.transaction import Snapshot
from longshore.store.sqlite.waking import LAST_TURN, PAUSED, STOPPING

_SHOWN: Final = f"""SELECT a.id, a.type, a.key, a.status, a.terms, a.created_at, t.n, t.version,
        t.timers, t.at, t.worker, (
            SELECT count(*) FROM message AS m WHERE m.actor = a.number AND m.due_at IS NOT {NEVER}),
        job.id, job.state, job.run_at, job.error, (
            SELECT json_group_object(f.field, f.value) FROM listed_field AS f
            WHERE f.actor = a.number), {{state}}
    FROM {{found}} CROSS JOIN turn AS t ON {LAST_TURN}
    LEFT JOIN job INDEXED BY job_actor ON job.actor_id = a.number AND job.actor_id IS NOT NULL
    WHERE {{which}} ORDER BY {{order}} LIMIT ?"""
_BY_KEY: Final = "actor AS a INDEXED BY actor_key"
_BY_FIELD: Final = """listed_field AS l INDEXED BY listed_field_value
    CROSS JOIN actor AS a ON a.number = l.actor"""
_OF_FIELD: Final = "l.type = ? AND l.field = ? AND l.value = ? AND l.key > ?"
_NUMBER: Final = "(SELECT number FROM actor WHERE type = ? AND key = ?)"
_TURNS: Final = f"""SELECT n, at, worker, read_up_to, version, state, timers
    FROM turn WHERE actor = {_NUMBER} ORDER BY n DESC"""
_MAIL: Final = f"""SELECT number, name, args, at, due_at FROM message
    WHERE actor = {_NUMBER} ORDER BY number LIMIT ?"""


def actor(tx: Snapshot, type: str, key: str) -> Actor | None:
    """One actor, as its last turn left it."""
    which = "a.type = ? AND a.key = ?"
    query = _SHOWN.format(state="t.state", found=_BY_KEY, which=which, order="a.type, a.key")
    row = tx.execute(query, (clean(type), clean(key), 1)).fetchone()
    return None if row is None else _actor(row)


def actors(tx: Snapshot, wanted: ActorFilter) -> ActorPage:
    """Actors by type and key, without their states."""
    found: list[Actor] = []
    after, looked_at = wanted.after, 0
    while (size := page_size(wanted, len(found), looked_at)) > 0:
        rows = _page(tx, wanted, after, size)
        for one in rows:
            if is_wanted(one, wanted):
                found.append(one)
            if len(found) == wanted.limit:
                return ActorPage(tuple(found), (one.type, one.key))
        if len(rows) < size:
            return ActorPage(tuple(found))
        looked_at += size
        after = rows[-1].type, rows[-1].key
    return ActorPage(tuple(found), after) if looked_at else NO_PAGE


def _page(
    tx: Snapshot, wanted: ActorFilter, after: tuple[str, str] | None, size: int
) -> list[Actor]:
    """The next actors after a place: of one type if it is given, by its first field if it is."""
    if wanted.fields:
        return _listed_page(tx, wanted, after, size)
    which, values = ["true"], list[Value]()
    if wanted.type is not None:
        which.append("a.type = ?")
        values.append(clean(wanted.type))
    if after is not None:
        which.append("(a.type, a.key) > (?, ?)")
        values += map(clean, after)
    sieve = " AND ".join(which)
    query = _SHOWN.format(state="x''", found=_BY_KEY, which=sieve, order="a.type, a.key")
    return [_actor(row) for row in tx.execute(query, (*values, size))]


def _listed_page(
    tx: Snapshot, wanted: ActorFilter, after: tuple[str, str] | None, size: int
) -> list[Actor]:
    type = clean(wanted.type or "")
    field, value = next(iter(wanted.fields.items()))
    if after is not None and after[0] > type:
        return []
    key = after[1] if after is not None and after[0] == type else ""
    query = _SHOWN.format(state="x''", found=_BY_FIELD, which=_OF_FIELD, order="l.key")
    which = type, clean(field), clean(value), clean(key)
    return [_actor(row) for row in tx.execute(query, (*which, size))]


def _actor(row: tuple[Any, ...]) -> Actor:
    id, type, key, status, terms, created_at, n, version, timers, at, worker, *rest = row
    unread, job, state, run_at, error, listed, data = rest
    job_state = None if state is None else JobState(state)
    return Actor(
        id=UUID(bytes=id),
        type=type,
        key=key,
        status=status_of(paused=status == PAUSED, stopping=status == STOPPING, job=job_state),
        terms=unpack_terms(terms),
        created_at=moment(created_at),
        turn=n,
        state=data,
        version=version,
        timers=unpack_timers(timers),
        unread=unread,
        turned_at=moment(at) if n else None,
        worker=None if worker is None else UUID(bytes=worker),
        job=None if job is None else UUID(bytes=job),
        next_at=moment(run_at) if job_state is JobState.DELAYED and run_at is not None else None,
        error=unpack_error(error),
        listed=json.decode(listed, type=dict[str, str]),
    )


def turns(tx: Snapshot, type: str, key: str) -> list[TurnView]:
    """The last turns of an actor, the newest first."""
    rows = tx.execute(_TURNS, (clean(type), clean(key)))
    return [
        TurnView(
            n,
            moment(at),
            None if worker is None else UUID(bytes=worker),
            read,
            version,
            state,
            unpack_timers(timers),
        )
        for n, at, worker, read, version, state, timers in rows
    ]


def mail(tx: Snapshot, type: str, key: str, most: int = 100) -> list[MailView]:
    """The first messages that an actor has not read, parked ones too."""
    rows = tx.execute(_MAIL, (clean(type), clean(key), max(0, min(most, LARGEST_INT))))
    return [_mail(*row) for row in rows]


def _mail(number: int, name: str, args: bytes, at: int, due_at: int | None) -> MailView:
    is_parked = due_at == NEVER
    due = None if due_at is None or is_parked else moment(due_at)
    return MailView(number, name, args, moment(at), due, is_parked)
