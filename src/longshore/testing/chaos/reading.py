"""What the store says when all is over: read through a dispatcher, and noted in the history."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from uuid import UUID

from longshore.client.connection import Connection
from longshore.core.lifecycle import TERMINAL
from longshore.errors import LongshoreError, NotFound, Unavailable
from longshore.model.actor import ActorFilter
from longshore.model.job import Job, JobFilter
from longshore.payload.values import unpack
from longshore.testing.chaos import app
from longshore.testing.chaos.clients import attempt_in
from longshore.testing.chaos.history import (
    PAUSED,
    Applied,
    Fires,
    Found,
    Left,
    Missing,
    Versions,
    Writer,
)

AT_ONCE = 16
SCHEDULE = "ticks"
EVERY_S = 1.0
MOST_FIRES = 100
LOOK_S = 0.5
SHOWN = 10
WAS_PAUSED = "the schedule was paused"
"""As `core.schedules` says why it skips a time."""
LIVE = tuple(state for state in type(next(iter(TERMINAL))) if state not in TERMINAL)


async def unended(connection: Connection) -> tuple[Job, ...]:
    """Some jobs of the store that have not ended."""
    return (await connection.jobs(JobFilter(states=LIVE, limit=100))).jobs


async def drained(
    connection: Connection,
    within_s: float,
    writer: Writer,
    unheard: Callable[[], Iterable[str]] = lambda: (),
) -> bool:
    """Waits until nothing is left to do; notes what is left once nothing happened for so long.

    `unheard` names what somebody outside of the store still waits for.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + within_s
    left: dict[str, str] = {}
    before: tuple[object, ...] = ()
    while loop.time() < deadline:
        try:
            left, turns = await _left(connection)
            left |= {one: f"{one} waits to be told" for one in unheard()}
            now = (frozenset(left), turns)
            if not left and now == before:
                return True
            if now != before:
                before, deadline = now, loop.time() + within_s
        except Unavailable as error:
            left = {"store": str(error)}
        await asyncio.sleep(LOOK_S)
    await _note_left(connection, left, writer)
    return False


async def _left(connection: Connection) -> tuple[dict[str, str], tuple[int, ...]]:
    """What is still to be done, each with words, and how many turns each actor has had."""
    jobs = await unended(connection)
    left = {str(job.id): f"job {job.id} ({job.kind}) is {job.state}" for job in jobs}
    turns: list[int] = []
    async for actor in connection.actors.all(ActorFilter(type=app.ledgers.type)):
        turns.append(actor.turn)
        if actor.unread or actor.job is not None:
            left[actor.key] = f"actor {actor.key} has {actor.unread} messages to read"
    view = await connection.schedules.show(SCHEDULE, MOST_FIRES)
    for fire in view.fires:
        if not fire.settled:
            left[str(fire.nominal_at)] = f"the time {fire.nominal_at} is {fire.fate}"
    return left, tuple(turns)


async def _note_left(connection: Connection, left: dict[str, str], writer: Writer) -> None:
    """Notes what is left; of jobs, why."""
    words: list[str] = []
    for name, said in list(left.items())[:SHOWN]:
        try:
            words.append(f"{said}: {(await connection.why(UUID(name))).why}")
        except (LongshoreError, ValueError):
            words.append(said)
    writer.add(Left(jobs=len(left), examples=tuple(words)))


async def read_all(connection: Connection, jobs: Iterable[str], writer: Writer) -> None:
    """Notes what became of these jobs, of all actors and of the versions."""
    room = asyncio.Semaphore(AT_ONCE)

    async def read(job: str) -> None:
        async with room:
            await _note_job(connection, job, writer)

    await asyncio.gather(*map(read, jobs))
    await _note_actors(connection, writer)
    await _note_versions(connection, writer)


async def _note_job(connection: Connection, job: str, writer: Writer) -> None:
    try:
        found = await connection.job(UUID(job))
    except NotFound:
        writer.add(Missing(job=job))
        return
    ends = tuple(str(one.state) for one in found.history if one.state in TERMINAL)
    error = found.error
    writer.add(
        Found(
            job=job,
            kind=found.kind,
            state=str(found.state),
            attempt=attempt_in(found.result),
            ends=ends,
            attempts=found.attempt,
            crashes=found.crashes,
            why="" if error is None else f"{error.reason}: {error.message}"[:300],
        )
    )


async def _note_actors(connection: Connection, writer: Writer) -> None:
    async for actor in connection.actors.all(ActorFilter(type=app.ledgers.type)):
        whole = await connection.actors.show(actor.type, actor.key)
        state = unpack(whole.state)
        entries = tuple((str(s), int(n), str(to)) for s, n, to in state["entries"])
        writer.add(Applied(actor=actor.key, entries=entries))


async def _note_versions(connection: Connection, writer: Writer) -> None:
    jobs: list[str] = []
    before: int | None = None
    while True:
        try:
            page = await connection.files.versions(app.MADE, before, 100)
        except NotFound:
            page = ()
        jobs += [str(one.job) for one in page]
        if len(page) < 100:
            break
        before = page[-1].version
    writer.add(Versions(jobs=tuple(jobs)))


async def note_fires(connection: Connection, writer: Writer) -> None:
    """Notes the newest fires of the schedule."""
    view = await connection.schedules.show(SCHEDULE, MOST_FIRES)
    fires = tuple(
        (
            fire.nominal_at.timestamp(),
            PAUSED if fire.why == WAS_PAUSED else str(fire.fate),
            fire.count,
            "" if fire.subject is None else str(fire.subject),
            "" if fire.outcome is None else str(fire.outcome),
        )
        for fire in view.fires
    )
    paused = view.schedule.state.paused_at
    paused_at = 0.0 if paused is None else paused.timestamp()
    writer.add(Fires(schedule=SCHEDULE, every_s=EVERY_S, fires=fires, paused_at=paused_at))
