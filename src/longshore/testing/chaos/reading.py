"""What the store says when all is over: read through a dispatcher, and noted in the history."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from uuid import UUID

from longshore.client.connection import Connection
from longshore.core.lifecycle import TERMINAL
from longshore.errors import LongshoreError, NotFound, Unavailable
from longshore.model.actor import ActorFilter
from longshore.model.job import Job, JobFilter
from longshore.payload.values import unpack
from longshore.testing.chaos import app
from longshore.testing.chaos.clients import attempt_in
from longshore.testing.chaos.history import Applied, Fires, Found, Left, Missing, Versions, Writer

AT_ONCE = 16
SCHEDULE = "ticks"
EVERY_S = 1.0
MOST_FIRES = 100
LIVE = tuple(state for state in type(next(iter(TERMINAL))) if state not in TERMINAL)


async def unended(connection: Connection) -> tuple[Job, ...]:
    """Some jobs of the store that have not ended."""
    return (await connection.jobs(JobFilter(states=LIVE, limit=100))).jobs


async def drained(connection: Connection, within_s: float, writer: Writer) -> bool:
    """Waits until no job is left; notes what is left once nothing has ended for so long."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + within_s
    left: tuple[Job, ...] = ()
    before: set[UUID] = set()
    words: list[str] = ["no dispatcher answered"]
    while loop.time() < deadline:
        try:
            left = await unended(connection)
            if not left and not await _has_mail(connection):
                return True
            now = {job.id for job in left}
            if now != before:
                before, deadline = now, loop.time() + within_s
            words = [f"job {job.number} {job.id} ({job.kind}) is {job.state}" for job in left[:10]]
        except Unavailable as error:
            words = [str(error)]
        await asyncio.sleep(0.2)
    for place, job in enumerate(left[:5]):
        try:
            words[place] = f"{job.id} ({job.kind}): {(await connection.why(job.id)).why}"
        except LongshoreError:
            break
    writer.add(Left(jobs=len(left), examples=tuple(words)))
    return False


async def _has_mail(connection: Connection) -> bool:
    async for actor in connection.actors.all(ActorFilter(type=app.ledgers.type)):
        if actor.unread or actor.job is not None:
            return True
    return False


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
            str(fire.fate),
            fire.count,
            "" if fire.subject is None else str(fire.subject),
            "" if fire.outcome is None else str(fire.outcome),
        )
        for fire in view.fires
    )
    paused = view.schedule.state.paused_at
    paused_at = 0.0 if paused is None else paused.timestamp()
    writer.add(Fires(schedule=SCHEDULE, every_s=EVERY_S, fires=fires, paused_at=paused_at))
