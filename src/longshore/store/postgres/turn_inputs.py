"""What workers get to take turns on PostgreSQL: put together when their attempts are answered.

A turn that runs cannot be taken, edited or removed by others. So the state and the mailbox may be
read one after the other, without a transaction: in between there can only be more mail.
"""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

import asyncpg

from longshore.core.recovery import is_recovery
from longshore.core.turns import EVENT_BYTES, MOST_EVENTS, read_call, turn_of
from longshore.model.actor import Event, EventKind, TurnInput
from longshore.model.attempt import Attempt
from longshore.model.job import JobError
from longshore.store.actor_rows import read_attempt, turn_attempt, unpack_reply_to, unpack_timers
from longshore.store.postgres import actors_sql as sql
from longshore.store.postgres.connections import ConnectionPool
from longshore.store.postgres.states import PAUSED
from longshore.store.rows import unpack_error

Rows = Sequence[asyncpg.Record]


async def filled_turns(reading: ConnectionPool, attempts: Sequence[Attempt]) -> list[Attempt]:
    """The attempts, those of turns with what their workers need."""
    actors = {one.key: turn_of(one.args)[0] for one in attempts if one.options.turn}
    if not actors and not any(one.options.reads for one in attempts):
        return [*attempts]
    attempts = await _filled_reads(reading, attempts)
    if not actors:
        return [*attempts]
    inputs = {row["id"]: row for row in await reading.fetch(sql.INPUTS, [*actors.values()])}
    numbers = [row["number"] for row in inputs.values()]
    read = [row["read_up_to"] for row in inputs.values()]
    bounds = MOST_EVENTS, EVENT_BYTES
    mail: dict[int, list[asyncpg.Record]] = {}
    for row in await reading.fetch(sql.EVENTS, numbers, read, *bounds):
        mail.setdefault(row["actor"], []).append(row)
    recovering = [one.id for one in attempts if is_recovery(one)]
    rows = await reading.fetch(sql.ERRORS, recovering) if recovering else []
    errors = {row["id"]: unpack_error(row["error"]) for row in rows}
    return [_filled(one, inputs, mail, actors.get(one.key), errors.get(one.id)) for one in attempts]


async def _filled_reads(reading: ConnectionPool, attempts: Sequence[Attempt]) -> Sequence[Attempt]:
    """The attempts, those that read an actor with its state."""
    actors = {one.key: read_call(one.args).actor for one in attempts if one.options.reads}
    rows = await reading.fetch(sql.INPUTS, [*actors.values()]) if actors else []
    inputs = {row["id"]: _input(row) for row in rows}
    return [
        read_attempt(one, inputs.get(actors[one.key])) if one.key in actors else one
        for one in attempts
    ]


def _filled(
    attempt: Attempt,
    inputs: dict[UUID, asyncpg.Record],
    mail: dict[int, list[asyncpg.Record]],
    actor: UUID | None,
    error: JobError | None,
) -> Attempt:
    """An attempt as its worker gets it; as it is, if it is no turn, or its actor is gone."""
    row = None if actor is None else inputs.get(actor)
    if row is None:
        return attempt
    events = [_event(one) for one in mail.get(row["number"], ())]
    return turn_attempt(
        attempt,
        _input(row),
        [event for event in events if not event.was_delayed],
        [event for event in events if event.was_delayed],
        starts=row["starts"],
        paused=row["status"] == PAUSED,
        secret=row["secret"],
        error=error,
    )


def _input(row: asyncpg.Record) -> TurnInput:
    """What a turn gets beside its events."""
    which = row["id"], row["type"], row["key"], row["n"] + 1
    timers = unpack_timers(row["timers"])
    return TurnInput(*which, row["state"], row["version"], row["now"], timers, (), row["worker"])


def _event(row: asyncpg.Record) -> Event:
    what = row["name"], row["args"], row["at"], row["number"], row["id"], row["was_delayed"]
    return Event(EventKind.MESSAGE, *what, unpack_reply_to(row["reply_to"]))
