"""Schedules and their fires in the PostgreSQL store.

Whoever writes fires locks their schedules first, by id: `record_fires`, `fires_submitted` and the
watchers (`tell_schedules`).
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final
from uuid import UUID

import asyncpg

from longshore.core.schedule_changes import pause, put
from longshore.core.schedules import FIRES_KEPT
from longshore.core.watching import outcomes_of
from longshore.model.job import JobState, Refused
from longshore.model.notice import Notice
from longshore.model.schedule import (
    Decision,
    DueSchedules,
    Examined,
    Fate,
    Fire,
    FireResult,
    Made,
    NewSchedule,
    PendingFire,
    Schedule,
)
from longshore.store.postgres.access import FARTHEST_S
from longshore.store.postgres.connections import ConnectionPool, Transaction
from longshore.store.rows import clean
from longshore.store.schedule_rows import MOST_OPEN, pack_new, pack_state, unpack_new, unpack_state

_SCHEDULE: Final = """
SELECT number, version, created_at, look_at, state, new, now() AS now FROM longshore.schedule
"""
_FIRE_COLUMNS: Final = """nominal_at, fate, why, decided_at, last_at, count, late, subject,
    is_group, pending, outcome, ended_at, settled"""
_FIRE: Final = f"SELECT {_FIRE_COLUMNS} FROM longshore.fire"
_OF_SCHEDULE: Final = f"""
{_FIRE} WHERE schedule = (SELECT number FROM longshore.schedule WHERE id = $1)
"""
_BY_NAME: Final = f'{_SCHEDULE} WHERE name COLLATE "C" = $1'
_LIST: Final = f"""
{_SCHEDULE} WHERE name COLLATE "C" > $1 AND ($2::text IS NULL OR app = $2)
ORDER BY name COLLATE "C" LIMIT $3
"""
_DUE: Final = f"{_SCHEDULE} WHERE look_at <= now() ORDER BY look_at LIMIT $1"
_NEXT: Final = """
SELECT extract(epoch FROM min(look_at) - now())::float8 AS next_s
FROM longshore.schedule WHERE look_at > now()
"""
_OPEN: Final = f"""
SELECT s.number, f.* FROM unnest($1::bigint[]) AS s (number)
CROSS JOIN LATERAL (
    {_FIRE} WHERE schedule = s.number AND NOT settled
    ORDER BY outcome IS NULL, nominal_at LIMIT {MOST_OPEN}
) AS f
"""
_INSERT: Final = """
INSERT INTO longshore.schedule (id, name, app, version, created_at, look_at, state, new)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8) ON CONFLICT DO NOTHING RETURNING number
"""
_UPDATE: Final = """
UPDATE longshore.schedule SET version = $2, look_at = $3, state = $4, new = $5 WHERE id = $1
"""
_REMOVE: Final = """
WITH gone AS (
    DELETE FROM longshore.schedule WHERE name COLLATE "C" = $1 AND ($2::text IS NULL OR app = $2)
    RETURNING number
), fires AS (
    DELETE FROM longshore.fire WHERE schedule IN (SELECT number FROM gone)
)
SELECT number FROM gone
"""
_LOCK: Final = """
SELECT id, number, version FROM longshore.schedule WHERE id = ANY ($1::uuid[])
ORDER BY id FOR UPDATE
"""
_ADVANCE: Final = """
UPDATE longshore.schedule AS s SET version = s.version + 1, state = i.state, look_at = i.look_at
FROM unnest($1::bigint[], $2::bytea[], $3::timestamptz[]) AS i (number, state, look_at)
WHERE s.number = i.number
"""
_PUT_FIRES: Final = """
INSERT INTO longshore.fire (schedule, nominal_at, fate, why, decided_at, last_at, count, late,
    subject, is_group, pending, outcome, ended_at, settled, body)
SELECT * FROM unnest($1::bigint[], $2::timestamptz[], $3::text[], $4::text[], $5::timestamptz[],
    $6::timestamptz[], $7::bigint[], $8::boolean[], $9::uuid[], $10::boolean[], $11::boolean[],
    $12::text[], $13::timestamptz[], $14::boolean[], $15::bytea[])
ON CONFLICT (schedule, nominal_at) DO UPDATE SET (fate, why, decided_at, last_at, count, late,
    subject, is_group, pending, outcome, ended_at, settled, body) = (excluded.fate, excluded.why,
    excluded.decided_at, excluded.last_at, excluded.count, excluded.late, excluded.subject,
    excluded.is_group, excluded.pending, excluded.outcome, excluded.ended_at, excluded.settled,
    excluded.body)
"""
_FORGET: Final = f"""
DELETE FROM longshore.fire AS f USING unnest($1::bigint[]) AS s (number)
WHERE f.schedule = s.number AND f.settled AND f.nominal_at < (
    SELECT nominal_at FROM longshore.fire WHERE schedule = s.number AND settled
    ORDER BY nominal_at DESC LIMIT 1 OFFSET {FIRES_KEPT - 1}
)
"""
_PENDING: Final = """
SELECT s.id, f.nominal_at, f.body FROM longshore.fire AS f
JOIN longshore.schedule AS s ON s.number = f.schedule
WHERE f.pending AND f.decided_at <= now() - make_interval(secs => $1)
ORDER BY f.decided_at LIMIT $2
"""
_SUBMITTED: Final = """
UPDATE longshore.fire AS f SET pending = false, body = NULL,
    subject = CASE WHEN i.refused = '' THEN f.subject END,
    settled = f.settled OR i.refused <> '',
    fate = CASE WHEN i.refused = '' THEN f.fate ELSE 'skipped' END,
    why = CASE WHEN i.refused = '' THEN f.why ELSE i.refused END
FROM unnest($1::bigint[], $2::timestamptz[], $3::text[]) AS i (schedule, nominal_at, refused)
WHERE f.schedule = i.schedule AND f.nominal_at = i.nominal_at AND f.pending
RETURNING i.schedule, i.refused
"""
_LOOK_NOW: Final = """
UPDATE longshore.schedule SET version = version + 1, look_at = least(look_at, now())
WHERE number = ANY ($1::bigint[])
"""
_ENDED: Final = """
UPDATE longshore.fire AS f SET outcome = i.state, ended_at = now(), settled = false
FROM unnest($1::uuid[], $2::text[]) AS i (subject, state) WHERE f.subject = i.subject
"""


class PostgresSchedules:
    """The verbs about schedules."""

    _keeping: ConnectionPool
    _reading: ConnectionPool

    async def put_schedule(self, new: NewSchedule, *, replace: bool = False) -> Schedule | Refused:
        """Makes a schedule, or changes the one of that name."""

        async def work(tx: Transaction) -> Schedule | Refused:
            while True:
                found = await tx.fetch(f"{_BY_NAME} FOR UPDATE", clean(new.name))
                known = _schedule(found[0]) if found else None
                now = found[0]["now"] if found else await _now(tx)
                made = put(known, new, now, replace=replace)
                if isinstance(made, Refused) or made is known:
                    return made
                if known is not None:
                    await tx.fetch(_UPDATE, made.new.id, *_values(made))
                    return made
                names = (made.new.id, clean(new.name), clean(new.app))
                version, *values = _values(made)
                if await tx.fetch(_INSERT, *names, version, made.created_at, *values):
                    return made

        return await self._keeping.run(work)

    async def remove_schedule(self, name: str, app: str | None = None) -> bool:
        """Removes a schedule and its fires."""
        return bool(await self._keeping.fetch(_REMOVE, clean(name), app))

    async def pause_schedule(
        self, name: str, paused: bool, by: str, note: str = ""
    ) -> Schedule | None:
        """Pauses or resumes a schedule."""

        async def work(tx: Transaction) -> Schedule | None:
            for row in await tx.fetch(f"{_BY_NAME} FOR UPDATE", clean(name)):
                known = _schedule(row)
                made = pause(known, paused, clean(by), clean(note), row["now"])
                if made is not known:
                    await tx.fetch(_UPDATE, made.new.id, *_values(made))
                return made
            return None

        return await self._keeping.run(work)

    # reading

    async def schedule(self, name: str) -> Examined | None:
        """A schedule with its fires that are not settled."""

        async def work(tx: Transaction) -> list[Examined]:
            return await _examined(tx, await tx.fetch(_BY_NAME, clean(name)))

        return next(iter(await self._reading.run(work)), None)

    async def schedules(
        self, after: str = "", most: int = 100, app: str | None = None
    ) -> list[Schedule]:
        """Schedules by name."""
        rows = await self._reading.fetch(_LIST, clean(after), app, most)
        return [_schedule(row) for row in rows]

    async def fires(
        self, schedule: UUID, before: datetime | None = None, most: int = 20
    ) -> list[Fire]:
        """Fires of a schedule, newest first."""
        query = f"""{_OF_SCHEDULE} AND ($2::timestamptz IS NULL OR nominal_at < $2)
            ORDER BY nominal_at DESC LIMIT $3"""
        return [_fire(row) for row in await self._reading.fetch(query, schedule, before, most)]

    async def fires_between(self, schedule: UUID, first: datetime, last: datetime) -> list[Fire]:
        """Fires of a schedule that stand for times in this span, oldest first."""
        query = f"""{_OF_SCHEDULE} AND nominal_at <= $3 AND coalesce(last_at, nominal_at) >= $2
            ORDER BY nominal_at"""
        return [_fire(row) for row in await self._reading.fetch(query, schedule, first, last)]

    async def fire_of(self, subject: UUID) -> Fire | None:
        """The fire that submitted this job or group."""
        rows = await self._reading.fetch(f"{_FIRE} WHERE subject = $1", subject)
        return _fire(rows[0]) if rows else None

    async def due_schedules(self, most: int = 500) -> DueSchedules:
        """Schedules that are to be looked at, the most overdue first."""
        rows = await self._reading.fetch(_DUE, most)
        if not rows:
            [row] = await self._reading.fetch(_NEXT)
            return DueSchedules((), row["next_s"])

        async def work(tx: Transaction) -> DueSchedules:
            # Schedules and fires of one moment: what is decided of them counts by the version.
            found = await _examined(tx, await tx.fetch(_DUE, most))
            [row] = await tx.fetch(_NEXT)
            next_s = 0.0 if len(found) == most else row["next_s"]
            return DueSchedules(tuple(found), next_s)

        return await self._reading.run(work)

    async def pending_fires(self, older_than_s: float, most: int = 500) -> list[PendingFire]:
        """Submits that were decided so long ago and are still to be made."""
        rows = await self._reading.fetch(_PENDING, min(older_than_s, FARTHEST_S), most)
        return [PendingFire(row["id"], row["nominal_at"], row["body"]) for row in rows]

    # what is decided

    async def record_fires(self, decisions: Sequence[Decision]) -> list[bool]:
        """Writes what was decided; answers for each whether it counts."""

        async def work(tx: Transaction) -> list[bool]:
            found = await tx.fetch(_LOCK, [one.schedule for one in decisions])
            known = {row["id"]: (row["version"], row["number"]) for row in found}
            counts = [known.get(one.schedule, (None, 0))[0] == one.version for one in decisions]
            sound = [
                (known[one.schedule][1], one)
                for one, is_sound in zip(decisions, counts, strict=True)
                if is_sound
            ]
            await _record(tx, sound)
            return counts

        return await self._keeping.run(work) if decisions else []

    async def fires_submitted(self, results: Sequence[FireResult]) -> None:
        """These submits were made, or refused."""

        async def work(tx: Transaction) -> None:
            found = await tx.fetch(_LOCK, [one.schedule for one in results])
            numbers = {row["id"]: row["number"] for row in found}
            rows = [
                (numbers[one.schedule], one.nominal_at, clean(one.refused))
                for one in results
                if one.schedule in numbers
            ]
            if rows:
                done = await tx.fetch(_SUBMITTED, *zip(*rows, strict=True))
                await tx.fetch(_LOOK_NOW, [row["schedule"] for row in done if row["refused"]])

        if results:
            await self._keeping.run(work)


async def tell_schedules(tx: Transaction, notices: Sequence[Notice]) -> bool:
    """Schedules hear how what they submitted ended; answers whether any did."""
    outcomes = outcomes_of(notices)
    if not outcomes:
        return False
    found = await tx.fetch(_LOCK, [schedule for schedule, _, _ in outcomes])
    await tx.fetch(_LOOK_NOW, [row["number"] for row in found])
    states = {subject: state.value for _, subject, state in outcomes}
    await tx.fetch(_ENDED, list(states), list(states.values()))
    return True


async def _now(tx: Transaction) -> datetime:
    [row] = await tx.fetch("SELECT now() AS now")
    now: datetime = row["now"]
    return now


async def _record(tx: Transaction, sound: Sequence[tuple[int, Decision]]) -> None:
    if not sound:
        return
    rows = [(number, pack_state(one.state), one.look_at) for number, one in sound]
    await tx.fetch(_ADVANCE, *zip(*rows, strict=True))
    fires = [(number, *_columns(made)) for number, one in sound for made in one.made]
    if fires:
        await tx.fetch(_PUT_FIRES, *zip(*fires, strict=True))
        await tx.fetch(_FORGET, [number for number, one in sound if one.made])


async def _examined(tx: Transaction, rows: Sequence[asyncpg.Record]) -> list[Examined]:
    open: dict[int, list[Fire]] = {row["number"]: [] for row in rows}
    for row in await tx.fetch(_OPEN, list(open)) if rows else ():
        open[row["number"]].append(_fire(row))
    return [Examined(_schedule(row), tuple(open[row["number"]]), row["now"]) for row in rows]


# rows


def _values(made: Schedule) -> tuple[Any, ...]:
    return made.version, made.look_at, pack_state(made.state), pack_new(made.new)


def _schedule(row: asyncpg.Record) -> Schedule:
    return Schedule(
        new=unpack_new(row["new"]),
        state=unpack_state(row["state"]),
        version=row["version"],
        created_at=row["created_at"],
        look_at=row["look_at"],
    )


def _fire(row: asyncpg.Record) -> Fire:
    columns = {name: value for name, value in row.items() if name != "number"}
    columns["fate"] = Fate(row["fate"])
    columns["outcome"] = None if row["outcome"] is None else JobState(row["outcome"])
    return Fire(**columns)


def _columns(made: Made) -> tuple[Any, ...]:
    fire = made.fire
    return (
        fire.nominal_at,
        fire.fate.value,
        clean(fire.why),
        fire.decided_at,
        fire.last_at,
        fire.count,
        fire.late,
        fire.subject,
        fire.is_group,
        fire.pending,
        None if fire.outcome is None else fire.outcome.value,
        fire.ended_at,
        fire.settled,
        made.body if fire.pending else None,
    )
