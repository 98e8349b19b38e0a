"""The store in one SQLite file: no server, and several processes may share it.

Writes go one at a time through one thread and its connection, each in a transaction that takes
the file's write lock at its start; reads have a thread and a connection of their own, and see
whatever was committed before they began. The clock is a parameter, and so is the runner: a
simulation has neither threads nor real time.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TypeVar
from uuid import UUID

from longshore.errors import StoreUnavailable
from longshore.model.attempt import Attempt
from longshore.model.job import (
    CancelVerdict,
    Ended,
    Job,
    JobFilter,
    JobPage,
    LogEntry,
    RetryVerdict,
)
from longshore.model.log import KeptEntry
from longshore.model.retention import Pruned, Retention
from longshore.model.worker import (
    Attended,
    DispatcherView,
    Facts,
    Gone,
    Lane,
    Late,
    QueueView,
    Slot,
    Stats,
    WorkerInfo,
    WorkerView,
)
from longshore.ports import Batch, BatchResult, Harvested, Hint, Promoted
from longshore.store.rows import micros, utc_now
from longshore.store.sqlite import keeper, reads
from longshore.store.sqlite import prune as pruning
from longshore.store.sqlite.file import DatabaseFile
from longshore.store.sqlite.logs import logs as read_logs
from longshore.store.sqlite.pump import pump
from longshore.store.sqlite.runner import Runner, ThreadRunner, Turn
from longshore.store.sqlite.transaction import Transaction

T = TypeVar("T")


class SqliteStore:
    """The `Store` port over one file.

    An attempt expires `expiry_margin_s` after its timeout. A lock that another process holds is
    waited for `busy_s`; what other processes did is noticed within `poll_s`.
    """

    is_serial = True

    def __init__(
        self,
        path: str | Path,
        *,
        runner: Runner | None = None,
        expiry_margin_s: float = 10.0,
        busy_s: float = 5.0,
        poll_s: float = 0.5,
        utc: Callable[[], datetime] = utc_now,
    ) -> None:
        self._file = DatabaseFile(Path(path), busy_s)
        self._runner: Runner = runner or ThreadRunner()
        self._expiry_margin_s = expiry_margin_s
        self._poll_s = poll_s
        self._utc = utc
        self._writer: sqlite3.Connection | None = None
        self._reader: sqlite3.Connection | None = None
        self._opened_version = 0
        self._written_version = 0
        self._known_lanes: set[int] = set()
        self._closed = False

    async def open(self) -> None:
        """Connects; raises `SchemaMismatch` unless the schema is this version's."""
        if self._writer is None:
            self._writer = await self._run(Turn.KEEPER, self._file.open)
            self._opened_version = await self._run(Turn.KEEPER, self._data_version)
        if self._reader is None:
            self._reader = await self._run(Turn.READ, self._file.open)

    async def close(self) -> None:
        """Lets go of the file. What is under way is finished first."""
        if self._closed:
            return
        self._closed = True
        await self._runner.close()
        for connection in (self._reader, self._writer):
            if connection is not None:
                connection.close()
        self._reader = self._writer = None

    async def migrate(self) -> tuple[int, int]:
        """Makes the file if need be; answers the schema's version before and after."""
        return await self._run(Turn.KEEPER, self._file.migrate)

    # the pump

    async def pump(self, dispatcher: UUID, batch: Batch) -> BatchResult:
        """Records finishes, accepts submits and claims jobs, all in one commit."""
        margin_s = self._expiry_margin_s
        return await self._write(lambda tx: pump(tx, dispatcher, batch, margin_s), Turn.PUMP)

    async def log(self, entries: Sequence[LogEntry]) -> None:
        """Keeps what attempts said, if their token is still the job's last; a repeat is dropped."""
        await self._write(lambda tx: keeper.log(tx, entries), Turn.PUMP)

    # the keeper

    async def renew(self, dispatcher: UUID, name: str) -> None:
        """Says that a dispatcher lives, by changing its `renewed_no`."""
        await self._write(lambda tx: keeper.renew(tx, dispatcher, name))

    async def retire(self, dispatcher: UUID) -> None:
        """Removes a dispatcher that stops in good order."""
        await self._write(lambda tx: keeper.retire(tx, dispatcher))

    async def attend(
        self,
        dispatcher: UUID,
        info: WorkerInfo,
        *,
        draining: bool = False,
        session: int | None = None,
    ) -> Attended | Gone | Late:
        """Registers or adopts a worker: raises its session and says what is placed on it."""
        return await self._write(lambda tx: keeper.attend(tx, dispatcher, info, draining, session))

    async def placed(self, slots: Sequence[Slot]) -> list[Attempt]:
        """The attempts these sessions own, whether or not anybody told the workers."""
        return await self._read(lambda connection, _: reads.placed(connection, slots))

    async def set_draining(self, worker: UUID, draining: bool) -> bool:
        """A draining worker is given nothing more; answers whether there is such a live worker."""
        return await self._write(lambda tx: keeper.set_draining(tx, worker, draining))

    async def draining(self, dispatcher: UUID) -> list[UUID]:
        """The live workers of this dispatcher that are to be given nothing more."""
        return await self._read(lambda connection, _: reads.draining(connection, dispatcher))

    async def beat(self, dispatcher: UUID, beats: Mapping[UUID, Stats]) -> None:
        """These workers were heard of, if they are alive and this dispatcher's."""
        if beats:
            await self._write(lambda tx: keeper.beat(tx, dispatcher, beats))

    async def harvest(
        self,
        worker: UUID,
        session: int,
        why: str,
        *,
        crash: bool,
        crash_limit: int,
        undelivered: Collection[int] = (),
    ) -> Harvested:
        """Declares a worker lost, if it is still in that session, and frees its jobs."""
        limit = crash_limit if crash else None
        return await self._write(
            lambda tx: keeper.harvest(tx, worker, session, why, limit, undelivered)
        )

    async def sweep(self, crash_limit: int) -> Harvested:
        """Frees jobs that are owned by a worker that is not alive."""
        return await self._run(Turn.KEEPER, lambda: self._sweep(crash_limit))

    def _sweep(self, crash_limit: int) -> Harvested:
        """Mostly there is nothing to free: that is seen without taking the write lock."""
        with self._file.used():
            if not reads.has_orphans(self._opened(self._writer)):
                return Harvested(False)
        return self._transact(lambda tx: keeper.sweep(tx, crash_limit))

    async def promote(self, most: int = 1000) -> Promoted:
        """Makes delayed jobs ready whose time has come."""
        return await self._run(Turn.KEEPER, lambda: self._promote(most))

    def _promote(self, most: int) -> Promoted:
        """Mostly nothing is due: that is seen without taking the write lock."""
        with self._file.used():
            next_s = reads.next_due_s(self._opened(self._writer), micros(self._utc()))
        if next_s is None or next_s > 0:
            return Promoted(0, frozenset(), next_s)
        return self._transact(lambda tx: keeper.promote(tx, most))

    async def overdue(self, most: int = 1000) -> list[Attempt]:
        """Running attempts past their timeout and the backstop's margin after it."""
        return await self._read(lambda connection, now: reads.overdue(connection, now, most))

    async def cancel(
        self, refs: Sequence[UUID | int], by: str = ""
    ) -> list[tuple[UUID | None, CancelVerdict]]:
        """Cancels what is not running, marks what is `cancelling`; answers in the order given."""
        return await self._write(lambda tx: keeper.cancel(tx, refs, by))

    async def cancelling(self, dispatcher: UUID) -> list[Attempt]:
        """Attempts being cancelled on this dispatcher's live workers."""
        return await self._read(lambda connection, _: reads.cancelling(connection, dispatcher))

    async def retry(
        self, refs: Sequence[UUID | int], by: str = "", request: UUID | None = None
    ) -> list[tuple[UUID | None, RetryVerdict]]:
        """Opens a new round for jobs that ended without success."""
        return await self._write(lambda tx: keeper.retry(tx, refs, by, request))

    async def set_paused(self, queue: str, paused: bool) -> None:
        """Pauses or resumes a queue. Claims see it at once."""
        await self._write(lambda tx: keeper.set_paused(tx, queue, paused))

    async def forget_dispatcher(self, dispatcher: UUID) -> None:
        """Removes a dispatcher that stopped renewing and attends no worker any more."""
        await self._write(lambda tx: keeper.forget_dispatcher(tx, dispatcher))

    # what is over

    async def prune(
        self, kept: Retention, *, after: int = 0, most: int = 1000, dry_run: bool = False
    ) -> Pruned:
        """Removes ended jobs past their bounds, of the next `most` jobs after a number.

        What there is to remove is first looked for without taking the write lock.
        """
        step = most if dry_run else min(most, pruning.STEP)
        seen = await self._read(
            lambda connection, now: pruning.look(connection, now, kept, after, step)[0]
        )
        if dry_run or not seen.removed:
            return seen
        return await self._write(lambda tx: pruning.prune(tx, kept, after, most))

    async def forget_workers(self, older_than_s: float, most: int = 1000) -> int:
        """Removes workers that ended so long ago and own no job; answers how many."""
        found = await self._read(
            lambda connection, now: pruning.gone_workers(connection, now, older_than_s, most)
        )
        if not found:
            return 0
        return await self._write(lambda tx: pruning.forget_workers(tx, older_than_s, most))

    async def forget_lanes(self, most: int = 1000) -> int:
        """Removes lanes that hold no job any more; answers how many."""
        if not await self._read(lambda connection, _: pruning.empty_lanes(connection, 1)):
            return 0
        return await self._write(lambda tx: self._forget_lanes(tx, most))

    def _forget_lanes(self, tx: Transaction, most: int) -> int:
        gone = pruning.forget_lanes(tx, most)
        self._known_lanes.difference_update(gone)
        return len(gone)

    # reading

    async def job(self, ref: UUID | int) -> Job | None:
        """One job, whole."""
        return await self._read(lambda connection, _: reads.job(connection, ref))

    async def jobs(self, wanted: JobFilter) -> JobPage:
        """Jobs, newest first, without their arguments, results, history and logs."""
        return await self._read(lambda connection, _: reads.jobs(connection, wanted))

    async def logs(
        self,
        ref: UUID | int,
        *,
        token: int | None = None,
        after: tuple[int, int] = (0, 0),
        most: int = 1000,
    ) -> list[KeptEntry]:
        """What a job's attempts said, in order."""
        return await self._read(
            lambda connection, _: read_logs(connection, ref, token, after, most)
        )

    async def ended(self, ids: Sequence[UUID]) -> list[Ended]:
        """The outcomes of those of these jobs that have one."""
        return await self._read(lambda connection, _: reads.ended(connection, ids))

    async def lanes(self, most: int | None = None, served: Collection[int] = ()) -> list[Lane]:
        """Every lane that held a job and was not forgotten."""
        return await self._read(lambda connection, _: reads.lanes(connection))

    async def queues(self) -> list[QueueView]:
        """Every queue that ever held a job or was paused."""
        return await self._read(lambda connection, _: reads.queues(connection))

    async def workers(self) -> list[WorkerView]:
        """Live workers, and those that ended lately."""
        return await self._read(lambda connection, _: reads.workers(connection))

    async def dispatchers(self) -> list[DispatcherView]:
        """Every dispatcher that has not retired."""
        return await self._read(lambda connection, _: reads.dispatchers(connection))

    async def explain(self, job: Job) -> Facts:
        """What keeps a job where it is: its queue, the workers, the jobs ahead of it."""
        return await self._read(lambda connection, now: reads.explain(connection, now, job))

    async def watch(self) -> AsyncIterator[Hint]:
        """Hints that another process changed the file since this one opened it.

        What it did is not known, so it may have been anything.
        """
        seen = self._opened_version
        while True:
            version = await self._run(Turn.KEEPER, self._data_version)
            if version != seen:
                seen = version
                for hint in Hint:
                    yield hint
            await asyncio.sleep(self._poll_s)

    # running

    def _data_version(self) -> int:
        """A number that changes when another connection commits; this one's own do not count."""
        with self._file.used():
            version: int = self._opened(self._writer).execute("PRAGMA data_version").fetchone()[0]
            return version

    async def _write(self, work: Callable[[Transaction], T], turn: Turn = Turn.KEEPER) -> T:
        return await self._run(turn, lambda: self._transact(work))

    def _transact(self, work: Callable[[Transaction], T]) -> T:
        """Does all of it, or nothing."""
        connection = self._opened(self._writer)
        with self._file.used():
            connection.execute("BEGIN IMMEDIATE")
            try:
                self._mind_other_processes()
                tx = Transaction(connection, micros(self._utc()), self._known_lanes)
                answer = work(tx)
                tx.settle()
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise
        # Not before the commit: the file might go in between.
        self._file.check_in_place()
        self._known_lanes.update(tx.new_lanes)
        return answer

    def _mind_other_processes(self) -> None:
        """Whoever else wrote to the file may have forgotten lanes that this process has seen."""
        version = self._data_version()
        if version != self._written_version:
            self._written_version = version
            self._known_lanes.clear()

    async def _read(self, work: Callable[[sqlite3.Connection, int], T]) -> T:
        return await self._run(Turn.READ, lambda: self._look(work))

    def _look(self, work: Callable[[sqlite3.Connection, int], T]) -> T:
        """All that is read is of one moment."""
        connection = self._opened(self._reader)
        with self._file.used():
            connection.execute("BEGIN")
            try:
                return work(connection, micros(self._utc()))
            finally:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")

    def _opened(self, connection: sqlite3.Connection | None) -> sqlite3.Connection:
        if connection is None:
            raise StoreUnavailable(f"{self._file} is not open; call `open` first")
        return connection

    async def _run(self, turn: Turn, work: Callable[[], T]) -> T:
        if self._closed:
            raise StoreUnavailable(f"{self._file} was closed by this process; open a new store")
        return await self._runner.run(turn, work)
