"""Many sleeping actors in a store at once, as if each had set a timer and gone to sleep."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TypeAlias
from uuid import UUID

import asyncpg
from msgspec import msgpack

from bench.actor_app import sleepers
from bench.sql import ask
from longshore.client.ids import fresh_id
from longshore.core.lanes import body_hash, lane_of
from longshore.core.turns import turn_job
from longshore.model.actor import Timer
from longshore.model.job import JobState, Submission
from longshore.store.actor_rows import pack_terms, pack_timers
from longshore.store.postgres.states import ACTIVE, CODES
from longshore.store.rows import pack_options

CHUNK = 20_000
FILLED_PER_S = 8_000
"""So many are filled in a second at least: the first timer is due when all are there."""

_LATE = """
SELECT state FROM longshore.turn WHERE n = 1 AND actor IN (
    SELECT number FROM longshore.actor WHERE type = 'Sleeper'
)
"""

Row = tuple[object, ...]
Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"


def fill(url: str, actors: int, over_s: float, after_s: float) -> float:
    """So many actors sleep, and their timers are due one after the other over these seconds.

    The first is due `after_s` after all are there. Answers when that is.
    """
    from_s = time.time() + actors / FILLED_PER_S + after_s
    asyncio.run(_fill(url, actors, over_s, from_s))
    return from_s


def late_ms(url: str, since: float) -> list[float]:
    """How late the timers were that were due since then and have fired, in milliseconds."""
    states = [msgpack.decode(row["state"]) for row in ask(url, _LATE)]
    return [state["late_ms"] for state in states if state["due"] >= since]


async def _fill(url: str, actors: int, over_s: float, from_s: float) -> None:
    connection = await asyncpg.connect(url)
    try:
        job = _turn(UUID(int=0))
        lane = lane_of(job.queue, job.kind, job.target)
        add = "INSERT INTO longshore.lane VALUES ($1, $2, $3, '')"
        await connection.execute(add, lane.hash, lane.queue, lane.kind)
        for first in range(0, actors, CHUNK):
            places = range(first, min(first + CHUNK, actors))
            due = [from_s + over_s * place / actors for place in places]
            await _copy(connection, [f"actor-{place}" for place in places], due, lane.hash)
        tally = "INSERT INTO longshore.tally (lane, state, delta) VALUES ($1, $2, $3)"
        await connection.execute(tally, lane.hash, CODES[JobState.DELAYED], actors)
        for table in ("actor", "turn", "job", "job_number"):
            await connection.execute(f"VACUUM ANALYZE longshore.{table}")
        await connection.execute("CHECKPOINT")
    finally:
        await connection.close()


def _turn(actor: UUID) -> Submission:
    return turn_job(actor, sleepers.type, sleepers._terms, 1, 1)


async def _copy(
    connection: Connection, keys: Sequence[str], due: Sequence[float], lane: int
) -> None:
    draw = "SELECT nextval('longshore.number') AS number FROM generate_series(1, $1)"
    numbers = [row["number"] for row in await connection.fetch(draw, 2 * len(keys))]
    terms = pack_terms(sleepers._terms)
    actors, turns, jobs, of_jobs = list[Row](), list[Row](), list[Row](), list[Row]()
    for key, at, actor, number in zip(keys, due, numbers[::2], numbers[1::2], strict=True):
        id, micros = fresh_id(), round(at * 1e6)
        job, when = _turn(id), datetime.fromtimestamp(at, UTC)
        timers, state = (
            pack_timers([Timer("wake", micros)]),
            msgpack.encode({"due": at, "late_ms": -1.0}),
        )
        actors.append((id, actor, ACTIVE, sleepers.type, key, terms))
        turns.append((actor, 0, when, 0, 1, False, timers, state))
        shape = lane, CODES[JobState.DELAYED], job.kind, job.queue, "", pack_options(job.options)
        history = f'["delayed",{micros},"",""]'
        jobs.append((job.id, number, body_hash(job), job.args, when, history, actor, *shape))
        of_jobs.append((number, job.id))
    await _into(connection, "actor", "id number status type key terms", actors)
    await _into(connection, "turn", "actor n at read_up_to version starts timers state", turns)
    names = "id number body_hash args run_at history actor_id lane state kind queue target options"
    await _into(connection, "job", names, jobs)
    await _into(connection, "job_number", "number id", of_jobs)


async def _into(connection: Connection, table: str, names: str, rows: Sequence[Row]) -> None:
    await connection.copy_records_to_table(
        table, schema_name="longshore", columns=names.split(), records=rows
    )
