"""What workers get to take turns on PostgreSQL: put together when their attempts are answered.

A turn that runs cannot be taken, edited or removed by others: after the commit that gave it to its
worker there can only be more mail. One statement reads what all turns of a batch get.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from uuid import UUID

import asyncpg

from longshore.core.recovery import is_recovery
from longshore.core.turns import EVENT_BYTES, MOST_EVENTS, read_call, turn_of
from longshore.model.actor import Event, EventKind, TurnInput
from longshore.model.attempt import Attempt
from longshore.model.job import JobError
from longshore.payload.callback_jobs import is_callback, with_key
from longshore.store.actor_rows import read_attempt, turn_attempt, unpack_reply_to, unpack_timers
from longshore.store.postgres import actors_sql as sql
from longshore.store.postgres.connections import ConnectionPool
from longshore.store.postgres.states import PAUSED
from longshore.store.rows import unpack_error

Rows = Sequence[asyncpg.Record]


async def filled_turns(reading: ConnectionPool, attempts: Sequence[Attempt]) -> list[Attempt]:
    """The attempts, those of turns and callbacks with what their workers need."""
    attempts = await _filled_callbacks(reading, attempts)
    actors = {one.key: turn_of(one.args)[0] for one in attempts if one.options.turn}
    if not actors and not any(one.options.reads for one in attempts):
        return [*attempts]
    attempts = await _filled_reads(reading, attempts)
    if not actors:
        return [*attempts]
    rows = await reading.fetch(sql.INPUTS, [*actors.values()], MOST_EVENTS, EVENT_BYTES)
    inputs = {row["id"]: row for row in rows}
    recovering = [one.id for one in attempts if is_recovery(one)]
    failed = await reading.fetch(sql.ERRORS, recovering) if recovering else []
    errors = {row["id"]: unpack_error(row["error"]) for row in failed}
    return [_filled(one, inputs, actors.get(one.key), errors.get(one.id)) for one in attempts]


async def _filled_callbacks(
    reading: ConnectionPool, attempts: Sequence[Attempt]
) -> Sequence[Attempt]:
    """The attempts, those at callbacks with the key that signs them."""
    if not any(map(is_callback, attempts)):
        return attempts
    [row] = await reading.fetch(sql.SECRET)
    return [with_key(one, row["value"]) if is_callback(one) else one for one in attempts]


async def _filled_reads(reading: ConnectionPool, attempts: Sequence[Attempt]) -> Sequence[Attempt]:
    """The attempts, those that read an actor with its state."""
    actors = {one.key: read_call(one.args).actor for one in attempts if one.options.reads}
    # It wants no messages.
    rows = await reading.fetch(sql.INPUTS, [*actors.values()], 0, 0) if actors else []
    inputs = {row["id"]: _input(row) for row in rows}
    return [
        read_attempt(one, inputs.get(actors[one.key])) if one.key in actors else one
        for one in attempts
    ]


def _filled(
    attempt: Attempt,
    inputs: dict[UUID, asyncpg.Record],
    actor: UUID | None,
    error: JobError | None,
) -> Attempt:
    """An attempt as its worker gets it; as it is, if it is no turn, or its actor is gone."""
    row = None if actor is None else inputs.get(actor)
    if row is None:
        return attempt
    events = _events(row)
    return turn_attempt(
        attempt,
        _input(row),
        sorted((event for event in events if not event.was_delayed), key=attrgetter("number")),
        sorted((event for event in events if event.was_delayed), key=attrgetter("at", "number")),
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


def _events(row: asyncpg.Record) -> list[Event]:
    """The messages that a turn may get."""
    if row["numbers"] is None:
        return []
    names = "names", "args", "times", "numbers", "ids", "was_delayed", "reply_to"
    return [
        Event(EventKind.MESSAGE, name, args, at, number, id, was_delayed, unpack_reply_to(to))
        for name, args, at, number, id, was_delayed, to in zip(*map(row.get, names), strict=True)
    ]
