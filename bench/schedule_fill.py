"""Many schedules in a store, as if each had been put there, and what became of their times."""

from __future__ import annotations

import asyncio
import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from datetime import datetime
from typing import Any
from uuid import UUID, uuid4

import asyncpg
from msgspec import msgpack, structs

from bench.sql import ask
from longshore.core.schedule_changes import put
from longshore.model.job import Submission
from longshore.model.schedule import Fate, NewSchedule, Schedule, Spec, Timing
from longshore.store.rows import micros
from longshore.store.schedule_rows import pack_new, pack_state

KIND = "noop"
ARGS = msgpack.encode({"data": "x" * 100})
ZONE = "Europe/Vienna"
_NAMES = "id name version created_at look_at state new"
_INTO_FILE = f"INSERT INTO schedule ({', '.join(_NAMES.split())}) VALUES (?, ?, ?, ?, ?, ?, ?)"
_SETTLE = "VACUUM ANALYZE longshore.schedule; CHECKPOINT"
_FIRES = """
SELECT s.id, f.nominal_at, f.fate, f.pending, f.subject
FROM {schema}fire AS f JOIN {schema}schedule AS s ON s.number = f.schedule
"""
_JOBS = "SELECT id FROM {schema}job"
_COUNT = "SELECT count(*) FROM {schema}job"


def daily(at: datetime, count: int, now: datetime) -> list[Schedule]:
    """So many schedules that submit a job every day at the local time that is now or next `at`."""
    cron = f"{at:%S} {at:%M} {at:%H} * * *"
    timing = Timing((Spec(cron=cron, tz=ZONE),))
    name = f"at-{at:%H-%M-%S}"
    new = NewSchedule(uuid4(), name, timing, job=Submission(uuid4(), KIND, ARGS))
    made = put(None, new, now, replace=False)
    assert isinstance(made, Schedule)
    return [
        structs.replace(made, new=structs.replace(new, id=uuid4(), name=f"{name}-{place:06}"))
        for place in range(count)
    ]


def fill(url: str, schedules: Sequence[Schedule]) -> None:
    """These schedules are in the store, and the database has settled after it."""
    if url.startswith("sqlite:///"):
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection, connection:
            connection.executemany(_INTO_FILE, _rows_of_file(schedules))
        return
    asyncio.run(_copy(url, schedules))
    ask(url, _SETTLE)


def _rows_of_file(schedules: Iterable[Schedule]) -> Iterator[tuple[object, ...]]:
    for one in schedules:
        times = micros(one.created_at), one.look_at and micros(one.look_at)
        yield one.new.id.bytes, one.new.name, one.version, *times, *_packed(one)


async def _copy(url: str, schedules: Sequence[Schedule]) -> None:
    connection = await asyncpg.connect(url)
    try:
        rows = [
            (one.new.id, one.new.name, one.version, one.created_at, one.look_at, *_packed(one))
            for one in schedules
        ]
        await connection.copy_records_to_table(
            "schedule", schema_name="longshore", columns=_NAMES.split(), records=rows
        )
    finally:
        await connection.close()


def _packed(one: Schedule) -> tuple[bytes, bytes]:
    return pack_state(one.state), pack_new(one.new)


def jobs_made(url: str) -> int:
    """How many jobs are in the store."""
    [(count,)] = _all(url, _COUNT)
    return int(count)


def wrong(url: str, due: Sequence[tuple[UUID, datetime]]) -> int:
    """How many of these times, each of a schedule, did not submit exactly one job, and one more
    for each job that none of them submitted.
    """
    fires: dict[tuple[UUID, int], list[tuple[str, bool, UUID]]] = {}
    for id, at, fate, pending, subject in _all(url, _FIRES):
        when = at if isinstance(at, int) else micros(at)
        fires.setdefault((_uuid(id), when), []).append((fate, bool(pending), _uuid(subject)))
    jobs = Counter(_uuid(id) for (id,) in _all(url, _JOBS))
    count = 0
    for id, at in due:
        match fires.get((id, micros(at)), []):
            case [(Fate.SUBMITTED, False, subject)] if jobs.pop(subject, 0) == 1:
                pass
            case _:
                count += 1
    return count + jobs.total()


def _uuid(value: UUID | bytes | None) -> UUID:
    if isinstance(value, UUID):
        return UUID(int=value.int)
    return UUID(bytes=value) if value else UUID(int=0)


def _all(url: str, query: str) -> list[tuple[Any, ...]]:
    if url.startswith("sqlite:///"):
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection:
            return connection.execute(query.format(schema="")).fetchall()
    return [tuple(row.values()) for row in ask(url, query.format(schema="longshore."))]
