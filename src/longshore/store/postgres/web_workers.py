"""Web workers in the PostgreSQL store: who is registered, and which gateway attends it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from uuid import UUID

import asyncpg

from longshore.core.web_workers import (
    KEPT_ENDED,
    REPLACED,
    blamed_limit,
    is_repeat,
    share,
    too_many,
    why_refused,
)
from longshore.errors import Conflict, WrongState
from longshore.model.job import Refused
from longshore.model.upkeep import Harvested
from longshore.model.web_worker import (
    ENDED_WEB_STATES,
    WebAttendance,
    WebNote,
    WebRegistered,
    WebRegistration,
    WebState,
    WebWorker,
)
from longshore.store.postgres.connections import Transaction
from longshore.store.postgres.keeper import PostgresKeeper, Rows, bury
from longshore.store.postgres.keeper_sql import ATTENDED
from longshore.store.postgres.states import OWNED
from longshore.store.rows import clean, pack_registration, unpack_registration

MOST_JOBS: Final = 1_000
"""So many of the jobs that a service has are listed."""

_ONE_AT_A_TIME: Final = "SELECT pg_advisory_xact_lock(x'6c6f6e67776562'::bigint)"
"""Registrations are rare, and two of one address must not overtake each other."""
_FOUND: Final = f"""
SELECT w.*, ARRAY(
    SELECT j.id FROM longshore.job AS j
    WHERE j.worker = w.worker AND j.state IN ({OWNED}) ORDER BY j.number LIMIT {MOST_JOBS}
) AS jobs
FROM longshore.web_worker AS w
"""
_ALL: Final = f"{_FOUND} ORDER BY w.number"
_BY_IDS: Final = f"""
{_FOUND} WHERE w.id = ANY ($1::uuid[]) OR w.worker = ANY ($1::uuid[]) ORDER BY w.number
"""
_KNOWN: Final = f"{_FOUND} WHERE w.id = $1"
_AT_ADDRESS: Final = f"{_FOUND} WHERE w.host = $1 AND w.port = $2 AND w.ended_at IS NULL"
_COUNT: Final = "SELECT count(*) AS n FROM longshore.web_worker WHERE ended_at IS NULL"
_INSERT: Final = """
INSERT INTO longshore.web_worker (id, state, host, port, worker, registration)
VALUES ($1, $2, $3, $4, $1, $5)
"""
_FORGET: Final = """
DELETE FROM longshore.web_worker WHERE ended_at IS NOT NULL
    AND number < (SELECT max(number) FROM longshore.web_worker) - $1::bigint
"""
_END: Final = """
UPDATE longshore.web_worker SET state = $2, ended_at = now(), gateway = NULL
WHERE id = $1 AND ended_at IS NULL RETURNING worker
"""
_LIVE_GATEWAY: Final = "SELECT 1 FROM longshore.worker WHERE id = $1 AND alive FOR KEY SHARE"
_ADD_GATEWAY: Final = "INSERT INTO longshore.web_gateway (id) VALUES ($1) ON CONFLICT DO NOTHING"
_SHARES: Final = f"""
SELECT ({_COUNT}) AS services,
    (SELECT count(*) FROM longshore.web_gateway) AS gateways,
    (
        SELECT count(*) FROM longshore.web_worker WHERE gateway = $1 AND ended_at IS NULL
    ) AS mine
"""
_ADOPT: Final = """
UPDATE longshore.web_worker AS w SET gateway = $1, adoptions = adoptions + 1
FROM (
    SELECT number FROM longshore.web_worker WHERE gateway IS NULL AND ended_at IS NULL
    ORDER BY number LIMIT $2 FOR UPDATE SKIP LOCKED
) AS free
WHERE w.number = free.number
RETURNING w.id
"""
_NOTE: Final = """
UPDATE longshore.web_worker AS w
SET state = i.state, failed_pings = i.failed_pings, last_error = i.last_error, pinged_at = now(),
    worker = coalesce(i.worker, w.worker), ended_at = CASE WHEN i.ended THEN now() END
FROM unnest($2::uuid[], $3::text[], $4::integer[], $5::text[], $6::uuid[], $7::boolean[])
    AS i (id, state, failed_pings, last_error, worker, ended)
WHERE w.id = i.id AND w.gateway = $1 AND w.ended_at IS NULL
"""
_ATTENDANCE: Final = """
SELECT ARRAY(
        SELECT id FROM longshore.web_worker WHERE gateway = $1 AND ended_at IS NULL
    ) AS mine,
    (
        SELECT count(*) FROM longshore.web_worker WHERE gateway IS NULL AND ended_at IS NULL
    ) AS free,
    EXISTS (SELECT 1 FROM longshore.web_gateway WHERE id = $1) AS known
"""


class PostgresWebWorkers(PostgresKeeper):
    """The verbs about web workers."""

    async def register_web_worker(
        self, id: UUID, said: WebRegistration, most: int, crash_limit: int | None = None
    ) -> WebRegistered | Refused:
        """Registers a service; one at the same host and port is replaced, unless it is the same."""

        async def work(tx: Transaction) -> tuple[WebRegistered | Refused, Rows]:
            await tx.fetch(_ONE_AT_A_TIME)
            answer = await _as_known(tx, id, said, most)
            if isinstance(answer, WebRegistered | Refused):
                return answer, []
            freed, ready = None, Rows()
            if answer is not None:
                limit = blamed_limit(answer.registration, said, crash_limit)
                freed, ready = await _end(tx, answer.id, WebState.REPLACED, REPLACED, limit)
            packed = pack_registration(said)
            registered = WebState.REGISTERED.value
            await tx.fetch(_INSERT, id, registered, said.host, said.port, packed)
            await tx.fetch(_FORGET, KEPT_ENDED)
            [new] = await tx.fetch(_KNOWN, id)
            return WebRegistered(_web_worker(new), freed=freed or Harvested(False)), ready

        answer, ready = await self._keeping.run(work)
        if isinstance(answer, WebRegistered):
            self._freed(answer.freed, ready)
        return answer

    async def resign_web_worker(self, id: UUID) -> Harvested | None:
        """Ends a registration and frees its jobs; None if there is none."""

        async def work(tx: Transaction) -> tuple[Harvested | None, Rows]:
            return await _end(tx, id, WebState.RESIGNED, "it resigned")

        freed, ready = await self._keeping.run(work)
        return None if freed is None else self._freed(freed, ready)

    async def adopt_web_workers(self, gateway: UUID, most: int = 100) -> list[WebWorker]:
        """Gives a live gateway its share of the services that none attends; answers those."""

        async def work(tx: Transaction) -> Rows:
            if not await tx.fetch(_LIVE_GATEWAY, gateway):
                return []
            await tx.fetch(_ADD_GATEWAY, gateway)
            [row] = await tx.fetch(_SHARES, gateway)
            room = min(most, share(row["services"], row["gateways"], row["mine"]))
            taken = [one["id"] for one in await tx.fetch(_ADOPT, gateway, room)]
            return await tx.fetch(_BY_IDS, taken) if taken else []

        return [_web_worker(row) for row in await self._keeping.run(work)]

    async def note_web_workers(self, gateway: UUID, notes: Sequence[WebNote]) -> None:
        """Notes what a gateway found out about services that it attends."""
        if notes:
            rows = [
                (
                    one.id,
                    one.state.value,
                    one.failed_pings,
                    clean(one.last_error),
                    one.worker,
                    one.state in ENDED_WEB_STATES,
                )
                for one in sorted(notes, key=lambda one: one.id)
            ]
            await self._keeping.fetch(_NOTE, gateway, *zip(*rows, strict=True))

    async def web_attendance(self, gateway: UUID) -> WebAttendance:
        """What a gateway attends, and how many services are free."""
        [row] = await self._reading.fetch(_ATTENDANCE, gateway)
        return WebAttendance(frozenset(row["mine"]), row["free"], row["known"])

    async def web_workers(self, ids: Sequence[UUID] | None = None) -> list[WebWorker]:
        """Services by number, with the jobs that they have."""
        query = _ALL if ids is None else _BY_IDS
        rows = await self._reading.fetch(query, *([] if ids is None else [list(ids)]))
        return [_web_worker(row) for row in rows]


async def _as_known(
    tx: Transaction, id: UUID, said: WebRegistration, most: int
) -> WebRegistered | Refused | WebWorker | None:
    """The answer to a registration, if it changes nothing; else what it replaces, if anything."""
    for row in await tx.fetch(_KNOWN, id):
        return WebRegistered(_web_worker(row), existing=True)
    rows = await tx.fetch(_AT_ADDRESS, said.host, said.port)
    if not rows:
        [count] = await tx.fetch(_COUNT)
        is_full = count["n"] >= most
        return Refused(id, WrongState.code, too_many(most)) if is_full else None
    known = _web_worker(rows[0])
    if why := why_refused(known.registration, said):
        return Refused(id, Conflict.code, why)
    return WebRegistered(known, True) if is_repeat(known.registration, said) else known


async def _end(
    tx: Transaction, id: UUID, state: WebState, why: str, crash_limit: int | None = None
) -> tuple[Harvested | None, Rows]:
    """Ends a registration and its worker, if there is such a registration."""
    ended = await tx.fetch(_END, id, state.value)
    if not ended:
        return None, []
    worker = ended[0]["worker"]
    for row in await tx.fetch(ATTENDED, worker):
        if row["alive"]:
            return await bury(tx, worker, row["info"], why, crash_limit)
    return Harvested(False), []


def _web_worker(row: asyncpg.Record) -> WebWorker:
    return WebWorker(
        id=row["id"],
        number=row["number"],
        registration=unpack_registration(row["registration"]),
        worker=row["worker"],
        registered_at=row["registered_at"],
        state=WebState(row["state"]),
        gateway=row["gateway"],
        adoptions=row["adoptions"],
        failed_pings=row["failed_pings"],
        last_error=row["last_error"],
        pinged_at=row["pinged_at"],
        jobs=tuple(row["jobs"]),
    )
