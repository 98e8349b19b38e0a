"""A store on PostgreSQL, for a fleet: many dispatchers on one database.

The verbs live in three parts: `pump`, `keeper` and `reads`, each with connections of its own.
Behind a pgbouncer in transaction mode give a URL with `?prepared=off`, and as `listen_url` the
server's own address.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from copy import copy
from functools import partial
from time import monotonic
from typing import Final
from uuid import UUID

from msgspec import structs

from longshore.model.access import AuditEntry
from longshore.model.attempt import Attempt
from longshore.model.job import Ended
from longshore.model.worker import Attended, Gone, Late, SessionKey, WorkerInfo
from longshore.payload.callback_jobs import is_callback
from longshore.ports import Batch, BatchResult, Hint
from longshore.store.migrations import check, latest, refuse_newer, steps
from longshore.store.postgres.access import PostgresAccess
from longshore.store.postgres.address import parse_address
from longshore.store.postgres.bulks import PostgresBulks
from longshore.store.postgres.connections import ConnectionPool, Transaction
from longshore.store.postgres.crowds import Held, cancel_held
from longshore.store.postgres.deliveries import PostgresDeliveries
from longshore.store.postgres.files import PostgresFiles
from longshore.store.postgres.group_upkeep import PostgresGroupUpkeep
from longshore.store.postgres.groups import PostgresGroups
from longshore.store.postgres.growth import Refusals
from longshore.store.postgres.hints import RUMOUR_S, Listener, Sender
from longshore.store.postgres.keeper import PostgresKeeper
from longshore.store.postgres.limits import PostgresLimits
from longshore.store.postgres.log_archives import PostgresLogArchives
from longshore.store.postgres.new_run import PostgresNewRuns
from longshore.store.postgres.peaks import PostgresPeaks
from longshore.store.postgres.planning import BY_INDEX, STEADY
from longshore.store.postgres.prune import PostgresPruning
from longshore.store.postgres.pump import Pump
from longshore.store.postgres.run_times import PostgresRunTimes
from longshore.store.postgres.schedules import PostgresSchedules
from longshore.store.postgres.turn_inputs import filled_turns
from longshore.store.postgres.web_workers import PostgresWebWorkers

PUMPING_LINES: Final = 2
FILLING_LINES: Final = 2
"""For what turns get. It is read with each batch, so its plan must be made only once."""
LOCK_SHARE: Final = 0.2
"""The share of its timeout that a pump waits for a lock before it goes on without the item.

With the usual timeouts it is 2 s. The server looks for deadlocks after 1 s (deadlock_timeout), and
must come first: of two pumps that wait for each other it makes one begin anew.
"""
KEEPER_LINES: Final = 2
READING_LINES: Final = 4
MIGRATION_S: Final = 3600.0
MIGRATION_LOCK: Final = 0x6C6F6E67_73686F72  # "longshor"

_DIALECT: Final = "postgres"
# Reads the catalogue itself: a name lookup may answer from before the lock was taken.
_HAS_VERSION: Final = """
SELECT EXISTS (
    SELECT FROM pg_catalog.pg_tables
    WHERE schemaname = 'longshore' AND tablename = 'longshore_schema'
) AS found
"""
_VERSION: Final = "SELECT max(version) AS version FROM longshore.longshore_schema"


class PostgresStore(
    PostgresBulks,
    PostgresLimits,
    PostgresAccess,
    PostgresFiles,
    PostgresLogArchives,
    PostgresSchedules,
    PostgresPruning,
    PostgresRunTimes,
    PostgresPeaks,
    PostgresDeliveries,
    PostgresGroupUpkeep,
    PostgresNewRuns,
    PostgresGroups,
    PostgresWebWorkers,
    PostgresKeeper,
):
    """The `Store` port on a PostgreSQL database, in its schema `longshore`."""

    is_serial = False

    def __init__(
        self,
        url: str,
        *,
        listen_url: str | None = None,
        prepared: bool = True,
        expiry_margin_s: float = 10.0,
        timeout_s: float = 10.0,
    ) -> None:
        super().__init__()
        address = parse_address(url, prepared=prepared)
        self._clock = monotonic
        self._address = address
        self._timeout_s = timeout_s
        self._pump = Pump(expiry_margin_s, monotonic)
        self._pumping = ConnectionPool(
            address,
            most=PUMPING_LINES,
            timeout_s=timeout_s,
            settings=STEADY,
            lock_s=timeout_s * LOCK_SHARE,
        )
        self._keeping = ConnectionPool(
            address, most=KEEPER_LINES, timeout_s=timeout_s, settings=STEADY
        )
        self._reading = ConnectionPool(
            address, most=READING_LINES, timeout_s=timeout_s, settings=BY_INDEX, bare=True
        )
        self._filling = ConnectionPool(
            address, most=FILLING_LINES, timeout_s=timeout_s, settings=STEADY, bare=True
        )
        self._sender = Sender(self._keeping.execute)
        self._rumours = Sender(self._keeping.execute, self._sender.name, RUMOUR_S)
        listen_at = parse_address(listen_url) if listen_url is not None else address
        self._listener = Listener(
            self._sender.name,
            listen_at if listen_at.prepared else None,
            self._news,
            timeout_s,
        )

    async def open(self) -> None:
        """Connects; raises `SchemaMismatch` unless the schema is this version's."""
        check(await self._reading.run(_found_version), _DIALECT, self._address.name)

    async def close(self) -> None:
        """Lets go of the database. What is under way is finished first."""
        await self._listener.close()
        await self._pumping.close()
        await self._sender.close()
        await self._rumours.close()
        await self._keeping.close()
        await self._reading.close()
        await self._filling.close()

    async def migrate(self) -> tuple[int, int]:
        """Brings the schema forward, one transaction a step; answers the version before and after.

        If several processes migrate at once, only one of them takes each step.
        """
        lines = ConnectionPool(
            self._address, most=1, timeout_s=MIGRATION_S, connect_s=self._timeout_s
        )
        try:
            before = await lines.run(_found_version)
            refuse_newer(before or 0, _DIALECT, self._address.name)
            for version, script in steps(_DIALECT):
                await lines.run(partial(_take_step, version, script))
        finally:
            await lines.close()
        return before or 0, latest(_DIALECT)

    async def pump(self, dispatcher: UUID, batch: Batch) -> BatchResult:
        """Records finishes, accepts submits and claims jobs, all in one commit."""
        if not (batch.finishes or batch.submits or batch.claims or batch.sends):
            return BatchResult()

        drawn = await self._pump.alone(self._pumping, dispatcher, batch)
        if drawn is None:
            refusals: Refusals = {}
            drawn = await self._pumping.run(
                lambda tx: self._pump.run(tx, dispatcher, batch, refusals)
            )
        self._pump.committed(drawn)
        self._tallied += drawn.tallied
        if drawn.left_some:
            self._sender.tell(Hint.WORK)
        pumped = await self._with_held(drawn.pumped, drawn.held) if drawn.held else drawn.pumped
        if pumped.ended or pumped.replies:
            self._sender.tell(Hint.ENDED)
        if pumped.stopping:
            self._sender.tell(Hint.CANCEL)
        return pumped if drawn.is_filled else await self._with_results(pumped)

    async def _with_held(self, pumped: BatchResult, held: Sequence[Held]) -> BatchResult:
        """Cancels, one by one, what another transaction held: see `crowds`."""
        found = [await self._keeping.run(partial(cancel_held, held=one)) for one in held]
        return structs.replace(
            pumped,
            ended=[*pumped.ended, *(one for one in found if isinstance(one, Ended))],
            stopping=[*pumped.stopping, *(one for one in found if isinstance(one, UUID))],
        )

    async def _with_results(self, pumped: BatchResult) -> BatchResult:
        for name in ("claimed", "dependents", "started", "turns"):
            attempts: list[Attempt] = getattr(pumped, name)
            if any(map(_has_gaps, attempts)):
                pumped = structs.replace(pumped, **{name: await self._filled(attempts)})
        return pumped

    async def _filled(self, attempts: Sequence[Attempt]) -> list[Attempt]:
        """The attempts as their workers get them: with results, and turns with their events."""
        return await filled_turns(self._filling, await super()._filled(attempts))

    async def attend(
        self,
        dispatcher: UUID,
        info: WorkerInfo,
        *,
        draining: bool = False,
        session: int | None = None,
    ) -> Attended | Gone | Late:
        """Registers or adopts a worker: raises its session and says what is placed on it."""
        answer = await super().attend(dispatcher, info, draining=draining, session=session)
        if isinstance(answer, Attended) and answer.placed:
            return Attended(answer.session, tuple(await self._filled(answer.placed)))
        return answer

    async def placed(self, slots: Sequence[SessionKey]) -> list[Attempt]:
        """The attempts these sessions own, whether or not anybody told the workers."""
        return await self._filled(await super().placed(slots))

    def audited(self, entry: AuditEntry) -> PostgresStore:
        """This store, of which each transaction of the keeper leaves the entry."""
        store = copy(self)
        store._keeping = self._keeping.audited(entry)
        return store

    def watch(self) -> AsyncIterator[Hint]:
        """Hints of what other processes did."""
        return self._listener.watch()

    def tell_others(self) -> None:
        """Hints to other processes, soon, that something changed."""
        self._rumours.tell(Hint.CHANGE)


async def _found_version(tx: Transaction) -> int | None:
    """The version of the schema; None if there is no schema."""
    [row] = await tx.fetch(_HAS_VERSION)
    if not row["found"]:
        return None
    [row] = await tx.fetch(_VERSION)
    version: int | None = row["version"]
    return version


async def _take_step(version: int, script: str, tx: Transaction) -> None:
    await tx.connection.execute(f"SELECT pg_advisory_xact_lock({MIGRATION_LOCK})")
    found = await _found_version(tx)
    if found is not None and found >= version:
        return
    await tx.connection.execute(script)
    await tx.connection.execute("DELETE FROM longshore.longshore_schema")
    await tx.connection.execute(f"INSERT INTO longshore.longshore_schema VALUES ({version})")


def _has_gaps(attempt: Attempt) -> bool:
    """Whether its worker gets more than the row of the job has."""
    options = attempt.options
    return options.references or options.turn or options.reads or is_callback(attempt)
