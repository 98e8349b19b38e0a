"""How actors are shown on SQLite: as a whole, by their last turns, by their mail."""

from __future__ import annotations

from typing import Any, Final
from uuid import UUID

from longshore.core.turns import status_of
from longshore.model.actor import Actor, ActorFilter, ActorStatus, MailView, TurnView
from longshore.model.job import JobState
from longshore.store.actor_rows import NEVER, unpack_terms, unpack_timers
from longshore.store.rows import LARGEST_INT, clean, moment, unpack_error
from longshore.store.sqlite.sql import Value
from longshore.store.sqlite.transaction import Snapshot
from longshore.store.sqlite.waking import ACTIVE, LAST_TURN, PAUSED, STOPPING

_SHOWN: Final = f"""SELECT a.id, a.type, a.key, a.status, a.terms, a.created_at, t.n, t.version,
        t.timers, t.at, t.worker, (
            SELECT count(*) FROM message AS m WHERE m.actor = a.number AND m.due_at IS NOT {NEVER}),
        job.id, job.state, job.run_at, job.error, {{state}}
    FROM actor AS a INDEXED BY actor_key CROSS JOIN turn AS t ON {LAST_TURN}
    LEFT JOIN job INDEXED BY job_actor ON job.actor_id = a.number AND job.actor_id IS NOT NULL
    WHERE {{which}} ORDER BY a.type, a.key LIMIT ?"""
_NUMBER: Final = "(SELECT number FROM actor WHERE type = ? AND key = ?)"
_TURNS: Final = f"""SELECT n, at, worker, read_up_to, version, state, timers
    FROM turn WHERE actor = {_NUMBER} ORDER BY n DESC"""
_MAIL: Final = f"""SELECT number, name, args, at, due_at FROM message
    WHERE actor = {_NUMBER} ORDER BY number LIMIT ?"""


def actor(tx: Snapshot, type: str, key: str) -> Actor | None:
    """One actor, as its last turn left it."""
    query = _SHOWN.format(state="t.state", which="a.type = ? AND a.key = ?")
    row = tx.execute(query, (clean(type), clean(key), 1)).fetchone()
    return None if row is None else _actor(row)


def actors(tx: Snapshot, wanted: ActorFilter) -> list[Actor]:
    """Actors by type and key, without their states."""
    which, values = ["true"], list[Value]()
    if wanted.type is not None:
        which.append("a.type = ?")
        values.append(clean(wanted.type))
    if wanted.after is not None:
        which.append("(a.type, a.key) > (?, ?)")
        values += map(clean, wanted.after)
    if wanted.status is not None:
        which.append(_has(wanted.status))
    query = _SHOWN.format(state="x''", which=" AND ".join(which))
    most = max(0, min(wanted.limit, LARGEST_INT))
    return [_actor(row) for row in tx.execute(query, (*values, most))]


def _has(status: ActorStatus) -> str:
    """SQL for actors of which the system says this."""
    if status in (ActorStatus.PAUSED, ActorStatus.STOPPING):
        return f"a.status = '{PAUSED if status is ActorStatus.PAUSED else STOPPING}'"
    states: list[JobState | None] = [None, *JobState]
    fitting = [one for one in states if status_of(paused=False, stopping=False, job=one) is status]
    listed = ", ".join(f"'{one}'" for one in fitting if one is not None)
    none = "job.state IS NULL OR " if None in fitting else ""
    return f"a.status = '{ACTIVE}' AND ({none}job.state IN ({listed}))"


def _actor(row: tuple[Any, ...]) -> Actor:
    id, type, key, status, terms, created_at, n, version, timers, at, worker, *rest = row
    unread, job, state, run_at, error, data = rest
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
