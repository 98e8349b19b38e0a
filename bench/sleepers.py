"""Many sleeping actors in a store at once, as if each had set a timer and gone to sleep."""

from __future__ import annotations

import asyncio
import itertools
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from datetime import UTC, datetime
from typing import NamedTuple, TypeAlias
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
SELECT state FROM {schema}turn WHERE n = 1 AND actor IN (
    SELECT number FROM {schema}actor WHERE type = 'Sleeper'
)
"""
_ACTOR = "id number status type key terms"
_TURN = "actor n at read_up_to version starts timers state"
_JOB = "id number body_hash args run_at history actor_id lane state kind queue target options"
_OF_FILE = "created_at priority"
"""Columns that have no default in a file."""

Row = tuple[object, ...]
Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"


class Sleepers(NamedTuple):
    """Some actors with their turns and the jobs that wake them, as rows; times in seconds."""

    actors: list[Row]
    turns: list[Row]
    jobs: list[Row]


def fill(url: str, actors: int, over_s: float, after_s: float) -> float:
    """So many actors sleep, and their timers are due one after the other over these seconds.

    The first is due `after_s` after all are there. Answers when that is.
    """
    from_s = time.time() + actors / FILLED_PER_S + after_s
    if url.startswith("sqlite:///"):
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection:
            _fill_file(connection, actors, over_s, from_s)
    else:
        asyncio.run(_fill(url, actors, over_s, from_s))
    return from_s


def late_ms(url: str, since: float) -> list[float]:
    """How late the timers were that were due since then and have fired, in milliseconds."""
    if url.startswith("sqlite:///"):
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection:
            found = [state for (state,) in connection.execute(_LATE.format(schema=""))]
    else:
        found = [row["state"] for row in ask(url, _LATE.format(schema="longshore."))]
    states = map(msgpack.decode, found)
    return [state["late_ms"] for state in states if state["due"] >= since]


def _chunks(actors: int, over_s: float, from_s: float) -> Iterator[tuple[list[str], list[float]]]:
    """The keys of so many actors at a time, and when their timers are due."""
    for first in range(0, actors, CHUNK):
        places = range(first, min(first + CHUNK, actors))
        due = [from_s + over_s * place / actors for place in places]
        yield [f"actor-{place}" for place in places], due


def _rows(
    keys: Sequence[str], due: Sequence[float], numbers: Sequence[tuple[int, int]], *, of_file: bool
) -> Sleepers:
    """The rows for actors with these keys; `numbers` are those of each actor and of its job."""
    terms = pack_terms(sleepers._terms)
    found = Sleepers([], [], [])
    for key, at, (actor, number) in zip(keys, due, numbers, strict=True):
        id, micros = fresh_id(), round(at * 1e6)
        job, when = _turn(id), micros if of_file else datetime.fromtimestamp(at, UTC)
        timers = pack_timers([Timer("wake", micros)])
        state = msgpack.encode({"due": at, "late_ms": -1.0})
        status = "active" if of_file else ACTIVE
        delayed = JobState.DELAYED.value if of_file else CODES[JobState.DELAYED]
        lane = lane_of(job.queue, job.kind, job.target).hash
        entry = f'["delayed",{micros},"",""]'
        history, options = f"[{entry}]" if of_file else entry, pack_options(job.options)
        shape = lane, delayed, job.kind, job.queue, "", options
        found.actors.append((_id(id, of_file), actor, status, sleepers.type, key, terms))
        found.turns.append((actor, 0, when, 0, 1, False, timers, state))
        of_job = _id(job.id, of_file), number, body_hash(job), job.args, when, history, actor
        found.jobs.append((*of_job, *shape))
    return found


def _id(id: UUID, of_file: bool) -> UUID | bytes:
    return id.bytes if of_file else id


def _turn(actor: UUID) -> Submission:
    return turn_job(actor, sleepers.type, sleepers._terms, 1, 1)


# SQLite


def _fill_file(connection: sqlite3.Connection, actors: int, over_s: float, from_s: float) -> None:
    job = _turn(UUID(int=0))
    lane = lane_of(job.queue, job.kind, job.target)
    numbers = itertools.count(1)
    with connection:
        for keys, due in _chunks(actors, over_s, from_s):
            of_chunk = [(number, number) for number in itertools.islice(numbers, len(keys))]
            rows = _rows(keys, due, of_chunk, of_file=True)
            at = round(time.time() * 1e6)
            _insert(
                connection, "actor", f"{_ACTOR} created_at", [(*one, at) for one in rows.actors]
            )
            _insert(connection, "turn", _TURN, rows.turns)
            jobs = [(*one, at, job.priority) for one in rows.jobs]
            _insert(connection, "job", f"{_JOB} {_OF_FILE}", jobs)
        connection.execute(
            "INSERT INTO lane VALUES (?, ?, ?, '')", (lane.hash, lane.queue, lane.kind)
        )
        tally = (lane.hash, JobState.DELAYED.value, actors)
        connection.execute("INSERT INTO tally VALUES (?, ?, ?)", tally)
        connection.execute("UPDATE sequence SET number = ?", (actors,))
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def _insert(connection: sqlite3.Connection, table: str, names: str, rows: Sequence[Row]) -> None:
    columns = names.split()
    places = ", ".join("?" * len(columns))
    connection.executemany(f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({places})", rows)


# PostgreSQL


async def _fill(url: str, actors: int, over_s: float, from_s: float) -> None:
    connection = await asyncpg.connect(url)
    try:
        job = _turn(UUID(int=0))
        lane = lane_of(job.queue, job.kind, job.target)
        add = "INSERT INTO longshore.lane VALUES ($1, $2, $3, '')"
        await connection.execute(add, lane.hash, lane.queue, lane.kind)
        for keys, due in _chunks(actors, over_s, from_s):
            await _copy(connection, keys, due)
        tally = "INSERT INTO longshore.tally (lane, state, delta) VALUES ($1, $2, $3)"
        await connection.execute(tally, lane.hash, CODES[JobState.DELAYED], actors)
        for table in ("actor", "turn", "job", "job_number"):
            await connection.execute(f"VACUUM ANALYZE longshore.{table}")
        await connection.execute("CHECKPOINT")
    finally:
        await connection.close()


async def _copy(connection: Connection, keys: Sequence[str], due: Sequence[float]) -> None:
    draw = "SELECT nextval('longshore.number') AS number FROM generate_series(1, $1)"
    drawn = [row["number"] for row in await connection.fetch(draw, 2 * len(keys))]
    numbers = list(zip(drawn[::2], drawn[1::2], strict=True))
    rows = _rows(keys, due, numbers, of_file=False)
    await _into(connection, "actor", _ACTOR, rows.actors)
    await _into(connection, "turn", _TURN, rows.turns)
    await _into(connection, "job", _JOB, rows.jobs)
    await _into(connection, "job_number", "number id", [(one[1], one[0]) for one in rows.jobs])


async def _into(connection: Connection, table: str, names: str, rows: Sequence[Row]) -> None:
    await connection.copy_records_to_table(
        table, schema_name="longshore", columns=names.split(), records=rows
    )
