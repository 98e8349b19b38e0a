"""Web workers in the SQLite store: who is registered, and which gateway attends it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final
from uuid import UUID

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
from longshore.store.rows import clean, moment, pack_registration, unpack_registration
from longshore.store.sqlite.keeper import bury
from longshore.store.sqlite.sql import Row
from longshore.store.sqlite.states import OWNED_LIST
from longshore.store.sqlite.transaction import Snapshot, Transaction

MOST_JOBS: Final = 1_000
"""So many of the jobs that a service has are listed."""

_COLUMNS: Final = (
    "id, number, registration, worker, registered_at, state, gateway, adoptions, failed_pings, "
    "last_error, pinged_at"
)
_FOUND: Final = f"SELECT {_COLUMNS} FROM web_worker"


def register(
    tx: Transaction, id: UUID, said: WebRegistration, most: int, crash_limit: int | None = None
) -> WebRegistered | Refused:
    """Registers a service; one at the same host and port is replaced, unless it is the same."""
    repeated = _one(tx, "WHERE id = ?", (id.bytes,))
    if repeated is not None:
        return WebRegistered(repeated, existing=True)
    at_address = "WHERE host = ? AND port = ? AND ended_at IS NULL"
    known = _one(tx, at_address, (said.host, said.port))
    if known is None and _count(tx, "WHERE ended_at IS NULL") >= most:
        return Refused(id, WrongState.code, too_many(most))
    if known is not None and (why := why_refused(known.registration, said)):
        return Refused(id, Conflict.code, why)
    if known is not None and is_repeat(known.registration, said):
        return WebRegistered(known, existing=True)
    freed = Harvested(False)
    if known is not None:
        limit = blamed_limit(known.registration, said, crash_limit)
        freed = _end(tx, known, WebState.REPLACED, REPLACED, limit)
    _insert(tx, id, said)
    [new] = listed(tx, [id])
    return WebRegistered(new, freed=freed)


def _insert(tx: Transaction, id: UUID, said: WebRegistration) -> None:
    tx.execute(
        """INSERT INTO web_worker (id, state, host, port, worker, registered_at, registration)
        VALUES (?, ?, ?, ?, ?, ?, ?)""",
        (
            id.bytes,
            WebState.REGISTERED.value,
            said.host,
            said.port,
            id.bytes,
            tx.now,
            pack_registration(said),
        ),
    )
    tx.execute(
        """DELETE FROM web_worker WHERE ended_at IS NOT NULL
        AND number < (SELECT max(number) FROM web_worker) - ?""",
        (KEPT_ENDED,),
    )


def resign(tx: Transaction, id: UUID) -> Harvested | None:
    """Ends a registration and frees its jobs; None if there is none."""
    known = _one(tx, "WHERE id = ? AND ended_at IS NULL", (id.bytes,))
    return None if known is None else _end(tx, known, WebState.RESIGNED, "it resigned")


def _end(
    tx: Transaction, known: WebWorker, state: WebState, why: str, crash_limit: int | None = None
) -> Harvested:
    tx.execute(
        "UPDATE web_worker SET state = ?, ended_at = ?, gateway = NULL WHERE id = ?",
        (state.value, tx.now, known.id.bytes),
    )
    return bury(tx, known.worker, why, crash_limit)


def adopt(tx: Transaction, gateway: UUID, most: int = 100) -> list[WebWorker]:
    """Gives a live gateway its share of the services that none attends; answers those."""
    live = "SELECT 1 FROM worker WHERE id = ? AND alive = 1"
    if tx.execute(live, (gateway.bytes,)).fetchone() is None:
        return []
    tx.execute("INSERT INTO web_gateway (id) VALUES (?) ON CONFLICT DO NOTHING", (gateway.bytes,))
    services = _count(tx, "WHERE ended_at IS NULL")
    [gateways] = tx.execute("SELECT count(*) FROM web_gateway").fetchone()
    mine = _count(tx, "WHERE gateway = ? AND ended_at IS NULL", (gateway.bytes,))
    taken = tx.execute(
        """UPDATE web_worker SET gateway = ?, adoptions = adoptions + 1 WHERE number IN (
            SELECT number FROM web_worker WHERE gateway IS NULL AND ended_at IS NULL
            ORDER BY number LIMIT ?) RETURNING id""",
        (gateway.bytes, min(most, share(services, gateways, mine))),
    ).fetchall()
    return listed(tx, [UUID(bytes=id) for (id,) in taken]) if taken else []


def note(tx: Transaction, gateway: UUID, notes: Sequence[WebNote]) -> None:
    """Notes what a gateway found out about services that it attends."""
    for one in notes:
        tx.execute(
            """UPDATE web_worker SET state = ?, failed_pings = ?, last_error = ?, pinged_at = ?,
                worker = coalesce(?, worker), ended_at = ?
            WHERE id = ? AND gateway = ? AND ended_at IS NULL""",
            (
                one.state.value,
                one.failed_pings,
                clean(one.last_error),
                tx.now,
                None if one.worker is None else one.worker.bytes,
                tx.now if one.state in ENDED_WEB_STATES else None,
                one.id.bytes,
                gateway.bytes,
            ),
        )


def attendance(tx: Snapshot, gateway: UUID) -> WebAttendance:
    """What a gateway attends, and how many services are free."""
    mine = tx.execute(
        "SELECT id FROM web_worker WHERE gateway = ? AND ended_at IS NULL", (gateway.bytes,)
    ).fetchall()
    free = _count(tx, "WHERE gateway IS NULL AND ended_at IS NULL")
    known = tx.execute("SELECT 1 FROM web_gateway WHERE id = ?", (gateway.bytes,)).fetchone()
    return WebAttendance(frozenset(UUID(bytes=id) for (id,) in mine), free, known is not None)


def listed(tx: Snapshot, ids: Sequence[UUID] | None = None) -> list[WebWorker]:
    """Services by number, with the jobs that they have."""
    if ids is None:
        rows = tx.execute(f"{_FOUND} ORDER BY number").fetchall()
    else:
        rows = []
        for id in ids:
            rows += tx.execute(f"{_FOUND} WHERE id = ?1 OR worker = ?1", (id.bytes,)).fetchall()
    return [_web_worker(tx, row) for row in rows]


def _one(tx: Snapshot, where: str, values: Row) -> WebWorker | None:
    row = tx.execute(f"{_FOUND} {where}", values).fetchone()
    return None if row is None else _web_worker(tx, row)


def _count(tx: Snapshot, where: str, values: Row = ()) -> int:
    count: int = tx.execute(f"SELECT count(*) FROM web_worker {where}", values).fetchone()[0]
    return count


def _web_worker(tx: Snapshot, row: tuple[Any, ...]) -> WebWorker:
    id, number, said, worker, registered_at, state, gateway, adoptions, failed, error, pinged = row
    jobs = tx.execute(
        f"""SELECT id FROM job INDEXED BY job_owned
        WHERE worker = ? AND state IN {OWNED_LIST} ORDER BY number LIMIT ?""",
        (worker, MOST_JOBS),
    ).fetchall()
    return WebWorker(
        id=UUID(bytes=id),
        number=number,
        registration=unpack_registration(said),
        worker=UUID(bytes=worker),
        registered_at=moment(registered_at),
        state=WebState(state),
        gateway=None if gateway is None else UUID(bytes=gateway),
        adoptions=adoptions,
        failed_pings=failed,
        last_error=error,
        pinged_at=None if pinged is None else moment(pinged),
        jobs=tuple(UUID(bytes=job) for (job,) in jobs),
    )
