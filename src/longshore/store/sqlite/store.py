"""The store in one SQLite file: no server, and several processes may share it.

One thread and one connection do all writes, one after the other. Each write is a transaction that
takes the file's write lock at its start. Another thread and connection do the reads: a read sees
everything that was committed before it began. The clock and the runner are parameters, because a
simulation has neither real time nor threads.

What each verb does is a function of a module beside this one. `_reads` and `_writes` make methods
of these functions.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Mapping, Sequence
from copy import copy
from datetime import datetime
from functools import wraps
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar
from uuid import UUID

from longshore.core.key_limits import KEYS_FOR_A_LANE, MOST_PAGES
from longshore.errors import StoreUnavailable
from longshore.model.access import AuditEntry
from longshore.model.actor import Delivered, UndeliveredSend
from longshore.model.attempt import Attempt
from longshore.model.batch import MAX_GROUP_JOBS
from longshore.model.callback import USUAL_TERMS, CallbackTerms
from longshore.model.fileset import BlobRef
from longshore.model.finding import Finding
from longshore.model.group import MOST_COPIED, RunPlan
from longshore.model.job import Ended
from longshore.model.retention import GroupsPruned, Pruned, Retention
from longshore.model.worker import SessionKey, Stats
from longshore.ports import Batch, BatchResult, Harvested, Hint, Promoted, Settled, Tended, Told
from longshore.store.rows import micros, utc_now
from longshore.store.sqlite import (
    access,
    actor_reads,
    additions,
    checkpoints,
    collecting,
    fair,
    group_reads,
    group_upkeep,
    growth,
    keeper,
    limit_rules,
    limits,
    log_archives,
    new_run,
    reads,
    reopening,
    watchers,
    web_workers,
)
from longshore.store.sqlite import actors as actor_verbs
from longshore.store.sqlite import bulks as bulk_verbs
from longshore.store.sqlite import files as file_verbs
from longshore.store.sqlite import groups as group_verbs
from longshore.store.sqlite import peaks as peak_verbs
from longshore.store.sqlite import prune as pruning
from longshore.store.sqlite import run_times as run_time_verbs
from longshore.store.sqlite import schedules as schedule_verbs
from longshore.store.sqlite.depths import depths
from longshore.store.sqlite.file import DatabaseFile
from longshore.store.sqlite.filling import callback_secret, filled
from longshore.store.sqlite.pump import pump
from longshore.store.sqlite.queue_waits import add_queue_waits
from longshore.store.sqlite.runner import Runner, ThreadRunner, Turn
from longshore.store.sqlite.transaction import Remembered, Snapshot, Transaction

P = ParamSpec("P")
T = TypeVar("T")

Verb = Callable[Concatenate["SqliteStore", P], Coroutine[Any, Any, T]]


def _reads(function: Callable[Concatenate[Snapshot, P], T]) -> Verb[P, T]:
    """A verb of the store that calls this function on the thread that reads."""

    @wraps(function)
    async def verb(store: SqliteStore, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await store._read(lambda tx: function(tx, *args, **kwargs))

    return verb


def _writes(
    function: Callable[Concatenate[Transaction, P], T], turn: Turn = Turn.KEEPER
) -> Verb[P, T]:
    """A verb of the store that calls this function in a transaction that writes."""

    @wraps(function)
    async def verb(store: SqliteStore, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await store._write(lambda tx: function(tx, *args, **kwargs), turn)

    return verb


def _placed(tx: Snapshot, slots: Sequence[SessionKey]) -> list[Attempt]:
    """The attempts these sessions own, whether or not anybody told the workers."""
    return filled(tx, reads.placed(tx, slots))


class SqliteStore:
    """The `Store` port over one file.

    An attempt expires `expiry_margin_s` after its timeout. The store waits `busy_s` for a lock that
    another process holds, and notices within `poll_s` what other processes did.
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
        self._remembered = Remembered()
        self._entry: AuditEntry | None = None
        self._closed = False

    async def open(self) -> None:
        """Connects; raises `SchemaMismatch` unless the schema is this version's."""
        if self._writer is None:
            self._writer = await self._run(Turn.KEEPER, self._file.open)
            self._opened_version = await self._run(Turn.KEEPER, self._changes_elsewhere)
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

    log = _writes(keeper.log, Turn.PUMP)

    # the keeper

    renew = _writes(keeper.renew)
    retire = _writes(keeper.retire)
    forget_dispatcher = _writes(keeper.forget_dispatcher)
    attend = _writes(keeper.attend)
    placed = _reads(_placed)
    set_draining = _writes(keeper.set_draining)
    draining = _reads(reads.draining)
    overdue = _reads(reads.overdue)
    cancel = _writes(keeper.cancel)
    cancelling = _reads(reads.cancelling)
    retry = _writes(keeper.retry)
    set_paused = _writes(keeper.set_paused)
    add_queue_waits = _writes(add_queue_waits)
    set_limit = _writes(limit_rules.set_limit)
    remove_limit = _writes(limit_rules.remove_limit)
    limit_rules = _reads(limit_rules.limit_rules)
    limit_key = _reads(limits.limit_key)
    limit_keys = _reads(limits.limit_keys)
    put_bulk = _writes(bulk_verbs.put_bulk)
    stop_bulk = _writes(bulk_verbs.stop_bulk)
    advance_bulk = _writes(bulk_verbs.advance_bulk)
    bulk = _reads(bulk_verbs.bulk)
    bulks = _reads(bulk_verbs.bulks)
    running_bulks = _reads(bulk_verbs.running_bulks)
    open_limits = _writes(fair.open_limits)
    note_use = _writes(fair.note_use)
    fair_place = _reads(fair.fair_place)

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
            if not reads.has_orphans(self._glance()):
                return Harvested(False)
        return self._transact(lambda tx: keeper.sweep(tx, crash_limit))

    async def promote(self, most: int = 1000) -> Promoted:
        """Makes delayed jobs ready whose time has come."""
        return await self._run(Turn.KEEPER, lambda: self._promote(most))

    def _promote(self, most: int) -> Promoted:
        """Mostly nothing is due: the store sees that without taking the write lock."""
        with self._file.used():
            next_s = reads.next_due_s(self._glance())
        if next_s is None or next_s > 0:
            return Promoted(0, frozenset(), next_s)
        return self._transact(lambda tx: keeper.promote(tx, most))

    # groups

    submit_group = _writes(group_verbs.submit_group)
    add_to_group = _writes(additions.add_to_group)
    cancel_group = _writes(group_verbs.cancel_group)
    pause_group = _writes(group_verbs.pause_group)
    is_sweeping = _reads(group_reads.is_sweeping)
    open_gate = _writes(growth.open_gate)
    retry_group = _writes(reopening.retry_group)
    group = _reads(group_reads.group)
    groups = _reads(group_reads.groups)
    nodes = _reads(group_reads.nodes)
    nodes_near = _reads(group_reads.nodes_near)
    group_progress = _reads(group_upkeep.group_progress)

    async def rerun_group(
        self,
        ref: UUID | int,
        run: UUID,
        *,
        keys: Sequence[str] = (),
        dry_run: bool = False,
        most: int = MOST_COPIED,
        max_group_jobs: int = MAX_GROUP_JOBS,
    ) -> RunPlan | None:
        """Takes a step towards a new run of an ended group, of at most so many jobs."""
        decided = await self._read(
            lambda tx: new_run.decide(tx, ref, run, keys, dry_run=dry_run, max_jobs=max_group_jobs)
        )
        if dry_run:
            return decided and decided.plan
        return await self._write(lambda tx: new_run.take_step(tx, ref, run, decided, most))

    async def settle(
        self,
        groups: Collection[UUID] = (),
        most: int = 1000,
        max_group_jobs: int = MAX_GROUP_JOBS,
    ) -> Settled:
        """Does some of what groups have to do, of at most so many jobs."""
        return await self._run(Turn.KEEPER, lambda: self._settle(groups, most, max_group_jobs))

    def _settle(self, groups: Collection[UUID], most: int, max_group_jobs: int) -> Settled:
        """Mostly there is nothing to do: that is seen without taking the write lock."""
        with self._file.used():
            if not group_verbs.has_work(self._glance(), groups):
                return Settled()
        return self._transact(lambda tx: group_verbs.settle(tx, groups, most, max_group_jobs))

    async def expire(self, most: int = 1000) -> list[Ended]:
        """Fails ready jobs that did not begin before their deadline; answers their outcomes."""
        return await self._run(Turn.KEEPER, lambda: self._expire(most))

    def _expire(self, most: int) -> list[Ended]:
        """Mostly no job is too late: the store sees that without taking the write lock."""
        with self._file.used():
            if not reads.has_expired(self._glance()):
                return []
        return self._transact(lambda tx: keeper.expire(tx, most))

    # actors

    start_actors = _writes(actor_verbs.start_actors)
    pause_actor = _writes(actor_verbs.pause_actor)
    stop_actor = _writes(actor_verbs.stop_actor)
    edit_actor = _writes(actor_verbs.edit_actor)
    sort_mail = _writes(actor_verbs.sort_mail)
    replies = _reads(actor_verbs.replies)
    callback_secret = _reads(callback_secret)
    actor = _reads(actor_reads.actor)
    actors = _reads(actor_reads.actors)
    turns = _reads(actor_reads.turns)
    mail = _reads(actor_reads.mail)

    async def deliver_sends(self, most: int = 1000) -> Delivered:
        """Nothing: applications lend their transactions on PostgreSQL only."""
        return Delivered()

    async def undelivered_sends(self, most: int = 100) -> list[UndeliveredSend]:
        """None: see `deliver_sends`."""
        return []

    async def sort_undelivered(self, id: UUID, *, again: bool) -> bool:
        """False: see `deliver_sends`."""
        return False

    async def tend_actors(self, most: int = 1000) -> Tended:
        """Removes actors that were stopped while a turn ran, and forgets old ids of messages."""
        if not await self._read(actor_verbs.has_work):
            return Tended()
        return await self._write(lambda tx: actor_verbs.tend_actors(tx, most))

    async def tell_watchers(self, most: int = 100, callbacks: CallbackTerms = USUAL_TERMS) -> Told:
        """Tells those who watch jobs and groups of at most so many that ended."""
        return await self._run(Turn.KEEPER, lambda: self._tell_watchers(most, callbacks))

    def _tell_watchers(self, most: int, callbacks: CallbackTerms) -> Told:
        """Mostly nobody is to be told: the store sees that without taking the write lock."""
        with self._file.used():
            if not watchers.has_notices(self._glance()):
                return Told()
        return self._transact(lambda tx: watchers.tell_watchers(tx, most, callbacks))

    # web workers

    register_web_worker = _writes(web_workers.register)
    resign_web_worker = _writes(web_workers.resign)
    adopt_web_workers = _writes(web_workers.adopt)
    note_web_workers = _writes(web_workers.note)
    web_attendance = _reads(web_workers.attendance)
    web_workers = _reads(web_workers.listed)

    # filesets

    pin = _writes(file_verbs.pin)
    note_stored = _writes(file_verbs.note_stored)
    seal = _writes(file_verbs.seal)
    publish = _writes(file_verbs.publish)
    input_version = _writes(file_verbs.input_version)
    version_of_job = _reads(file_verbs.version_of_job)
    versions_of_node = _reads(file_verbs.versions_of_node)
    save_checkpoint = _writes(checkpoints.save_checkpoint)
    checkpoint = _reads(checkpoints.checkpoint)
    filesets = _reads(file_verbs.listed)
    fileset_versions = _reads(file_verbs.versions)
    fileset_version = _reads(file_verbs.version_of)
    remove_versions = _writes(file_verbs.remove_versions)
    blob_generations = _reads(file_verbs.generations)
    doomed_blobs = _reads(collecting.doomed_blobs)
    forget_blobs = _writes(collecting.forget_blobs)
    unused_bytes = _reads(collecting.unused_bytes)
    bind_folder = _writes(collecting.bind_folder)
    old_logs = _reads(log_archives.old_logs)
    note_archived = _writes(log_archives.note_archived)
    drop_archived = _writes(log_archives.drop_archived)
    log_parts = _reads(log_archives.log_parts)

    async def forget_manifests(self, older_than_s: float, most: int = 1000) -> int:
        """Forgets pins of the dead, and manifests that nothing needs."""
        if not await self._read(lambda tx: collecting.has_old(tx, older_than_s)):
            return 0
        return await self._write(lambda tx: collecting.forget_manifests(tx, older_than_s, most))

    async def doom_blobs(self, older_than_s: float, most: int = 1000) -> list[BlobRef]:
        """Dooms blobs of no manifest that nobody has touched for so long."""
        if not await self._read(lambda tx: collecting.has_loose_blobs(tx, older_than_s)):
            return []
        return await self._write(lambda tx: collecting.doom_blobs(tx, older_than_s, most))

    # who may ask for what, and who asked

    def audited(self, entry: AuditEntry) -> SqliteStore:
        """This store, of which each transaction that writes leaves the entry."""
        store = copy(self)
        store._entry = entry
        return store

    create_token = _writes(access.create_token)
    revoke_token = _writes(access.revoke_token)
    tokens = _reads(access.tokens)
    token = _reads(access.token)
    tokens_used = _writes(access.tokens_used)
    audit = _reads(access.audit)
    group_lanes = _reads(access.group_lanes)

    async def forget_audit(self, older_than_s: float, most: int = 1000) -> int:
        """Removes old entries of the audit, and tokens that have long been worthless."""
        if not await self._read(lambda tx: access.has_old(tx, older_than_s)):
            return 0
        return await self._write(lambda tx: access.forget_audit(tx, older_than_s, most))

    # schedules

    put_schedule = _writes(schedule_verbs.put_schedule)
    remove_schedule = _writes(schedule_verbs.remove_schedule)
    pause_schedule = _writes(schedule_verbs.pause_schedule)
    schedule = _reads(schedule_verbs.schedule)
    schedules = _reads(schedule_verbs.schedules)
    fires = _reads(schedule_verbs.fires)
    fires_between = _reads(schedule_verbs.fires_between)
    fire_of = _reads(schedule_verbs.fire_of)
    due_schedules = _reads(schedule_verbs.due_schedules)
    record_fires = _writes(schedule_verbs.record_fires)
    pending_fires = _reads(schedule_verbs.pending_fires)
    fires_submitted = _writes(schedule_verbs.fires_submitted)

    # how long kinds run

    note_runs = _writes(run_time_verbs.note_runs)
    run_times = _reads(run_time_verbs.run_times)
    note_peaks = _writes(peak_verbs.note_peaks)
    peaks = _reads(peak_verbs.peaks)

    # what is over

    async def prune(
        self, kept: Retention, *, after: int = 0, most: int = 1000, dry_run: bool = False
    ) -> Pruned:
        """Removes ended jobs past their bounds, of the next `most` jobs after a number.

        It first looks without the write lock whether there is anything to remove.
        """
        step = most if dry_run else min(most, pruning.STEP)
        seen = await self._read(lambda tx: pruning.look(tx, kept, after, step)[0])
        if dry_run or not seen.removed:
            return seen
        return await self._write(lambda tx: pruning.prune(tx, kept, after, most))

    async def forget_workers(self, older_than_s: float, most: int = 1000) -> int:
        """Removes workers that ended so long ago and own no job; answers how many."""
        if not await self._read(lambda tx: pruning.gone_workers(tx, older_than_s, 1)):
            return 0
        return await self._write(lambda tx: pruning.forget_workers(tx, older_than_s, most))

    async def forget_lanes(self, most: int = 1000) -> int:
        """Removes lanes that hold no job any more, and what nobody needs of limits and waits."""
        forgotten = await self._write(lambda tx: pruning.forget_lanes(tx, most))
        for _ in range(MOST_PAGES):
            if not await self._write(lambda tx: limits.forget_keys(tx, KEYS_FOR_A_LANE * most)):
                break
        return forgotten

    async def prune_groups(
        self, kept: Retention, *, most: int = 1000, dry_run: bool = False
    ) -> GroupsPruned:
        """Does one step of the removal of ended groups past their bounds."""
        if dry_run:
            return await self._read(lambda tx: group_upkeep.count(tx, kept))
        if not await self._read(lambda tx: group_upkeep.has_work(tx, kept)):
            return GroupsPruned(0, 0, done=True)
        return await self._write(lambda tx: group_upkeep.prune_groups(tx, kept, most))

    async def cancel_abandoned(self, older_than_s: float, most: int = 100) -> list[UUID]:
        """Cancels groups of which no part came for so long; answers which."""
        if not await self._read(lambda tx: group_upkeep.abandoned(tx, older_than_s, 1)):
            return []
        return await self._write(lambda tx: group_upkeep.cancel_abandoned(tx, older_than_s, most))

    async def examine_group(self, group: UUID, *, repair: bool = False) -> list[Finding]:
        """What is wrong with a group that runs; with `repair`, its counts are made right."""
        if repair:
            return await self._write(lambda tx: group_upkeep.repair(tx, group))
        return await self._read(lambda tx: group_upkeep.examine(tx, group).findings)

    # reading

    job = _reads(reads.job)
    jobs = _reads(reads.jobs)
    logs = _reads(reads.logs)
    ended = _reads(reads.ended)
    lanes = _reads(reads.lanes)
    queues = _reads(reads.queues)
    depths = _reads(depths)
    workers = _reads(reads.workers)
    dispatchers = _reads(reads.dispatchers)
    explain = _reads(group_reads.explain)

    async def watch(self) -> AsyncIterator[Hint]:
        """Hints that another process changed the file since this one opened it.

        SQLite does not say what changed, so each change gives every hint.
        """
        seen = self._opened_version
        while True:
            version = await self._run(Turn.KEEPER, self._changes_elsewhere)
            if version != seen:
                seen = version
                for hint in Hint:
                    yield hint
            await asyncio.sleep(self._poll_s)

    def tell_others(self) -> None:
        """Nothing to do: they see that the file was changed."""

    # running

    def _changes_elsewhere(self) -> int:
        with self._file.used():
            return _data_version(self._opened(self._writer))

    async def _write(self, work: Callable[[Transaction], T], turn: Turn = Turn.KEEPER) -> T:
        return await self._run(turn, lambda: self._transact(work))

    def _transact(self, work: Callable[[Transaction], T]) -> T:
        """Does all of it, or nothing."""
        connection = self._opened(self._writer)
        with self._file.used():
            connection.execute("BEGIN IMMEDIATE")
            try:
                self._remembered.forget_if_changed(_data_version(connection))
                tx = Transaction(connection, micros(self._utc()), self._remembered)
                answer = work(tx)
                if self._entry is not None:
                    access.write_entry(tx, self._entry)
                tx.settle()
                connection.execute("COMMIT")
                tx.committed()
            except BaseException:
                self._remembered.forget()
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise
        # Not before the commit: the file might go in between.
        self._file.check_in_place()
        return answer

    async def _read(self, work: Callable[[Snapshot], T]) -> T:
        return await self._run(Turn.READ, lambda: self._look(work))

    def _look(self, work: Callable[[Snapshot], T]) -> T:
        """Everything that `work` reads is of one moment."""
        connection = self._opened(self._reader)
        with self._file.used():
            connection.execute("BEGIN")
            try:
                return work(Snapshot(connection, micros(self._utc())))
            finally:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")

    def _glance(self) -> Snapshot:
        """The writer's connection outside of a transaction, for one statement that reads."""
        return Snapshot(self._opened(self._writer), micros(self._utc()))

    def _opened(self, connection: sqlite3.Connection | None) -> sqlite3.Connection:
        if connection is None:
            raise StoreUnavailable(f"{self._file} is not open; call `open` first")
        return connection

    async def _run(self, turn: Turn, work: Callable[[], T]) -> T:
        if self._closed:
            raise StoreUnavailable(f"{self._file} was closed by this process; open a new store")
        return await self._runner.run(turn, work)


def _data_version(connection: sqlite3.Connection) -> int:
    """A number that changes when another connection commits; this one's own do not count."""
    version: int = connection.execute("PRAGMA data_version").fetchone()[0]
    return version
