"""The keeper of the PostgreSQL store: leases, losses, cancels and clocks.

It has connections of its own, so that it never waits behind the pump. Each verb first locks what it
changes, then decides by the tables of the core, then writes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Final, TypeVar
from uuid import UUID

import asyncpg

from longshore.core import effects
from longshore.core.effects import Effect
from longshore.core.leases import ANOTHERS, RESIGNED, is_anothers
from longshore.core.lookahead import not_blamed
from longshore.core.recovery import can_recover, of_lost_turn
from longshore.model.attempt import Attempt
from longshore.model.job import CancelVerdict, Ended, JobState, LogEntry, RetryVerdict
from longshore.model.worker import Attended, Gone, Lane, Late, SessionKey, Stats, WorkerInfo
from longshore.ports import Harvested, Hint, Promoted
from longshore.store.postgres import keeper_sql as sql
from longshore.store.postgres.changes import apply, locked
from longshore.store.postgres.connections import ConnectionPool, Transaction
from longshore.store.postgres.due_cursor import DueCursor
from longshore.store.postgres.hints import Sender
from longshore.store.postgres.known_sql import HOLDERS, KNOWN
from longshore.store.postgres.pauses import note_pause
from longshore.store.postgres.pump import Pump
from longshore.store.postgres.queue_waits import ADD_WAITS
from longshore.store.postgres.reads import NUMBERS, PostgresReads, claimed
from longshore.store.postgres.states import DELAYED, OWNED_CODES, READY, STATES
from longshore.store.rows import (
    INT64,
    LARGEST_INT,
    clean,
    entry_end,
    pack_info,
    unpack_info,
    unpack_options,
)

MOST_SWEPT: Final = 1000
ADOPT_SHARE: Final = 50.0
ADOPT_REST_S: Final = 0.2
ADOPT_LONGEST_REST_S: Final = 10.0
FOLD_AT: Final = 1000
FOLD_EVERY_S: Final = 60.0
FOLD_FROM_START_EVERY: Final = 20
MOST_FOLDED: Final = 10_000

Rows = list[asyncpg.Record]
V = TypeVar("V")


class PostgresKeeper(PostgresReads):
    """The verbs that keep the store true while jobs come and go."""

    _keeping: ConnectionPool
    _pump: Pump
    _sender: Sender
    _clock: Callable[[], float]

    def __init__(self) -> None:
        self._tallied = 0
        self._folds = 0
        self._folded_at = 0.0
        self._folded_up_to = 0
        self._adopts_at = 0.0
        self._due = DueCursor()

    # lanes

    async def lanes(self, most: int | None = None, served: Collection[int] = ()) -> list[Lane]:
        """Every lane that held a job and was not forgotten.

        It takes in the lanes of jobs that applications enqueued, until there are `most` in all;
        past that, only those that are `served`.
        """
        began = self._clock()
        if began >= self._adopts_at:
            await self._keeping.fetch(sql.ADOPT_LANES, LARGEST_INT if most is None else most, None)
            if served and most is not None:
                await self._keeping.fetch(sql.ADOPT_LANES, LARGEST_INT, sorted(served))
            now = self._clock()
            rest_s = min(max((now - began) * ADOPT_SHARE, ADOPT_REST_S), ADOPT_LONGEST_REST_S)
            self._adopts_at = now + rest_s
        lanes = await super().lanes()
        self._pump.keep_lanes({lane.hash for lane in lanes})
        return lanes

    async def forget_lanes(self, most: int = 1000) -> int:
        """Removes lanes that hold no job any more; answers how many.

        A process that has not heard of it may store a job without its lane. The tally tells of
        that lane, and `lanes` takes it in again.
        """
        gone = {row["hash"] for row in await self._keeping.fetch(sql.FORGET_LANES, most)}
        self._pump.forget_lanes(gone)
        return len(gone)

    # dispatchers and workers

    async def renew(self, dispatcher: UUID, name: str) -> None:
        """Says that a dispatcher lives, by changing its `renewed_no`."""
        await self._keeping.fetch(sql.RENEW, dispatcher, clean(name))

    async def retire(self, dispatcher: UUID) -> None:
        """Removes a dispatcher that stops in good order."""
        await self._keeping.fetch(sql.RETIRE, dispatcher)

    async def forget_dispatcher(self, dispatcher: UUID) -> None:
        """Removes a dispatcher that stopped renewing and attends no worker any more."""
        await self._keeping.fetch(sql.FORGET, dispatcher)

    async def attend(
        self,
        dispatcher: UUID,
        info: WorkerInfo,
        *,
        draining: bool = False,
        session: int | None = None,
    ) -> Attended | Gone | Late:
        """Registers or adopts a worker: raises its session and says what is placed on it."""
        values = (info.id, dispatcher, pack_info(info), draining, session)

        async def work(tx: Transaction) -> Attended | Gone | Late:
            # Before the worker's row: whoever ends a registration locks the two in this order.
            service = info.service
            if service is not None and not await tx.fetch(sql.REGISTERED, service, info.id):
                return Gone(RESIGNED)
            for new in await tx.fetch(sql.REGISTER, *values):
                return Attended(new["session"])
            [row] = await tx.fetch(sql.ATTENDED, info.id)
            if not row["alive"]:
                return Gone(row["ended_why"])
            if is_anothers(unpack_info(row["info"]), info):
                return Gone(ANOTHERS)
            if session is not None and session <= row["session"]:
                return Late(row["session"])
            [adopted] = await tx.fetch(sql.ADOPT, *values)
            ids = [row["id"] for row in await _owned(tx, info.id)]
            placed = await tx.fetch(sql.FOLLOW, ids, adopted["session"]) if ids else []
            return Attended(adopted["session"], tuple(_in_order(placed)))

        return await self._keeping.run(work)

    async def placed(self, slots: Sequence[SessionKey]) -> list[Attempt]:
        """The attempts these sessions own, whether or not anybody told the workers.

        It waits for a pump that was given up: that pump may be about to commit.
        """
        known = list(dict.fromkeys(slots))
        workers, sessions = [slot.worker for slot in known], [slot.session for slot in known]

        async def work(tx: Transaction) -> Rows:
            await tx.fetch(sql.HOLD, sorted(workers))
            return await tx.fetch(sql.PLACED, workers, sessions)

        return _in_order(await self._keeping.run(work)) if known else []

    async def set_draining(self, worker: UUID, draining: bool) -> bool:
        """A draining worker is given nothing more; answers whether there is such a live worker."""
        found = await self._keeping.fetch(sql.DRAIN, worker, draining)
        self._sender.tell(Hint.CANCEL)
        return bool(found)

    async def draining(self, dispatcher: UUID) -> list[UUID]:
        """The live workers of this dispatcher that are to be given nothing more."""
        return [row["id"] for row in await self._keeping.fetch(sql.DRAINING, dispatcher)]

    async def beat(self, dispatcher: UUID, beats: Mapping[UUID, Stats]) -> None:
        """These workers were heard of, if they are alive and this dispatcher's."""
        if beats:
            cpu = [stats.cpu_percent for stats in beats.values()]
            memory = [stats.memory_percent for stats in beats.values()]
            await self._keeping.fetch(sql.BEAT, dispatcher, list(beats), cpu, memory)

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

        async def work(tx: Transaction) -> tuple[Harvested, Rows]:
            row = next(iter(await tx.fetch(sql.ATTENDED, worker)), None)
            if row is None or not row["alive"] or row["session"] != session:
                return Harvested(False), []
            limit = crash_limit if crash else None
            return await bury(tx, worker, row["info"], why, limit, undelivered)

        return self._freed(*await self._keeping.run(work))

    async def sweep(self, crash_limit: int) -> Harvested:
        """Frees jobs whose worker is not alive: each worker's in a transaction of its own."""
        freed = Harvested(False)
        for orphaned in await self._keeping.fetch(sql.ORPHANED, MOST_SWEPT):
            found = await self._sweep(orphaned["worker"], crash_limit)
            freed = Harvested(
                False,
                freed.requeued + found.requeued,
                freed.lanes | found.lanes,
                freed.ended + found.ended,
            )
        return freed

    async def _sweep(self, worker: UUID, crash_limit: int) -> Harvested:
        async def work(tx: Transaction) -> tuple[Harvested, Rows]:
            row = next(iter(await tx.fetch(sql.ATTENDED, worker)), None)
            if row is not None and row["alive"]:
                return Harvested(False), []
            info = None if row is None else row["info"]
            why = "its worker is not alive"
            return await _lose(tx, worker, info, why, crash_limit, lost=False)

        return self._freed(*await self._keeping.run(work))

    def _freed(self, answer: Harvested, rows: Rows) -> Harvested:
        self._put_back(rows)
        if answer.requeued:
            self._sender.tell(Hint.WORK)
        if answer.ended:
            self._sender.tell(Hint.ENDED)
        return answer

    # clocks

    async def promote(self, most: int = 1000) -> Promoted:
        """Makes delayed jobs ready whose time has come."""

        began = self._clock()
        since = self._due.begin(began)

        async def work(tx: Transaction) -> tuple[Rows, asyncpg.Record]:
            rows = await tx.fetch(sql.PROMOTE, most, since)
            for row in rows:
                tx.count(row["lane"], DELAYED, READY)
            [left] = await tx.fetch(sql.NEXT_DUE, since)
            return rows, left

        rows, left = await self._keeping.run(work)
        is_all = len(rows) < most
        up_to = left["now"] if is_all else max(row["run_at"] for row in rows)
        now = self._clock()
        self._due.found(since, up_to, now - began, now)
        next_s = None if left["seconds"] is None else max(0.0, left["seconds"])
        self._put_back(rows)
        if rows:
            self._sender.tell(Hint.WORK)
        await self._fold_now_and_then()
        return Promoted(len(rows), frozenset(row["lane"] for row in rows), next_s)

    async def expire(self, most: int = 1000) -> list[Ended]:
        """Fails ready jobs that did not begin before their deadline; answers their outcomes."""

        async def work(tx: Transaction) -> list[Ended]:
            rows = await tx.fetch(sql.PAST_DEADLINE, most)
            found = [
                (row, effects.of_expiry(_expires_s(row), row["kind"])[STATES[row["state"]]])
                for row in rows
            ]
            await apply(tx, found)
            return [effects.outcome(row["id"], change) for row, change in found]

        ended = await self._keeping.run(work)
        if ended:
            self._sender.tell(Hint.ENDED)
        return ended

    async def overdue(self, most: int = 1000) -> list[Attempt]:
        """Running attempts past their timeout and the backstop's margin after it."""
        return [claimed(row) for row in await self._keeping.fetch(sql.OVERDUE, most)]

    async def _fold_now_and_then(self) -> None:
        """Keeps the tally short, in bounded steps."""
        now = self._clock()
        if self._tallied < FOLD_AT and now - self._folded_at < FOLD_EVERY_S:
            return
        self._tallied, self._folded_at = 0, now
        self._folds += 1
        start = self._folded_up_to if self._folds % FOLD_FROM_START_EVERY else 0
        [row] = await self._keeping.fetch(sql.FOLD, start, MOST_FOLDED)
        self._folded_up_to = row["up_to"]

    # what users do

    async def cancel(
        self, refs: Sequence[UUID | int], by: str = ""
    ) -> list[tuple[UUID | None, CancelVerdict]]:
        """Cancels what is not running, marks what is `cancelling`; answers in the order given."""

        async def work(tx: Transaction) -> tuple[list[UUID | None], dict[UUID, CancelVerdict]]:
            ids = await _resolved(tx, refs)
            return ids, await _cancel(tx, ids, by, sql.LOCK_FREE)

        ids, verdicts = await self._keeping.run(work) if refs else ([], {})
        # A pump may hold a job that it ends while it waits for one that depends on it. So what was
        # held is waited for one by one, by a transaction that holds nothing else.
        unseen = [id for id in dict.fromkeys(ids) if id is not None and id not in verdicts]
        held = await self._keeping.fetch(KNOWN, unseen) if unseen else []
        for row in held:
            verdicts |= await self._keeping.run(partial(_cancel, ids=[row["id"]], by=by))
        if CancelVerdict.CANCELLING in verdicts.values():
            self._sender.tell(Hint.CANCEL)
        if CancelVerdict.CANCELLED in verdicts.values():
            self._sender.tell(Hint.ENDED)
        return _in_order_given(ids, verdicts, CancelVerdict.NOT_FOUND)

    async def cancelling(self, dispatcher: UUID) -> list[Attempt]:
        """Attempts being cancelled on this dispatcher's live workers."""
        return [claimed(row) for row in await self._keeping.fetch(sql.BEING_CANCELLED, dispatcher)]

    async def retry(
        self, refs: Sequence[UUID | int], by: str = "", request: UUID | None = None
    ) -> list[tuple[UUID | None, RetryVerdict]]:
        """Opens a new round for jobs that ended without success, one for each `request`."""

        async def work(tx: Transaction) -> tuple[list[UUID | None], dict[UUID, RetryVerdict], Rows]:
            ids = await _resolved(tx, refs)
            rows = await locked(tx, ids)
            again = await _opened_before(tx, rows, request)
            rows = [row for row in rows if row["id"] not in again]
            verdicts, reopened = await retry_locked(tx, rows, by, request, ids)
            return ids, verdicts | dict.fromkeys(again, RetryVerdict.RETRIED), reopened

        ids, verdicts, reopened = await self._keeping.run(work) if refs else ([], {}, [])
        self._put_back(reopened)
        if reopened:
            self._sender.tell(Hint.WORK)
        return _in_order_given(ids, verdicts, RetryVerdict.NOT_FOUND)

    async def log(self, entries: Sequence[LogEntry]) -> None:
        """Keeps what attempts said, if their token is still the job's last; a repeat is dropped."""
        rows = [
            (entry.job, entry.token, entry.seq, entry.kind, entry.data)
            for entry in entries
            if entry.token in INT64 and entry.seq in INT64
        ]
        if rows:
            await self._keeping.fetch(sql.LOG, *zip(*rows, strict=True))

    async def set_paused(self, queue: str, paused: bool) -> None:
        """Pauses or resumes a queue. Claims see it at once."""

        async def work(tx: Transaction) -> None:
            await tx.fetch(sql.PAUSE, queue, paused)
            await note_pause(tx, queue, paused)

        await self._keeping.run(work)
        if not paused:
            self._sender.tell(Hint.WORK)

    async def add_queue_waits(self, waits: Mapping[tuple[str, str], float]) -> None:
        """Adds so many seconds to what the jobs of queues waited, by cause."""
        if waits:
            rows = [(queue, str(cause), s) for (queue, cause), s in waits.items()]
            await self._keeping.fetch(ADD_WAITS, *zip(*rows, strict=True))

    def _put_back(self, rows: Iterable[asyncpg.Record]) -> None:
        """Makes the claims of this process find at once what it made ready again."""
        for row in rows:
            place = (row["rank"], row["number"])
            self._pump.cursors.put_back(row["lane"], row["urgency"], place)


def _in_order(rows: Rows) -> list[Attempt]:
    return sorted(map(claimed, rows), key=lambda attempt: attempt.number)


def _in_order_given(
    ids: Sequence[UUID | None], verdicts: Mapping[UUID, V], missing: V
) -> list[tuple[UUID | None, V]]:
    """One answer for each reference; an id that leads to no job is answered without it."""
    return [
        (id, verdicts[id]) if id is not None and id in verdicts else (None, missing) for id in ids
    ]


async def _resolved(tx: Transaction, refs: Sequence[UUID | int]) -> list[UUID | None]:
    """The id of each reference, as far as its number is known."""
    numbers = [ref for ref in refs if isinstance(ref, int) and ref in INT64]
    rows = await tx.fetch(NUMBERS, numbers) if numbers else []
    known = {row["number"]: row["id"] for row in rows}
    return [known.get(ref) if isinstance(ref, int) else ref for ref in refs]


async def _cancel(
    tx: Transaction, ids: Sequence[UUID | None], by: str, how: str = sql.LOCK
) -> dict[UUID, CancelVerdict]:
    """Cancels the jobs that it can lock; answers what it did to each."""
    rows = await locked(tx, ids, how)
    found = [(row, effects.CANCEL.get(STATES[row["state"]])) for row in rows]
    await apply(tx, [(row, change) for row, change in found if change is not None], by)
    return {row["id"]: effects.cancel_verdict(STATES[row["state"]]) for row in rows}


async def _owned(tx: Transaction, worker: UUID) -> Rows:
    """Locks the jobs that a worker owns until the commit; answers their rows."""
    rows = await locked(tx, [row["id"] for row in await tx.fetch(sql.OWNED_BY, worker)])
    return [row for row in rows if row["state"] in OWNED_CODES and row["worker"] == worker]


async def bury(
    tx: Transaction,
    worker: UUID,
    info: bytes,
    why: str,
    crash_limit: int | None = None,
    undelivered: Collection[int] = (),
) -> tuple[Harvested, Rows]:
    """Ends a live worker whose row is locked. What a gateway attended, no gateway does then.

    If no gateway attends the worker, a service, then its loss costs nothing.
    """
    await tx.fetch(sql.BURY, worker, clean(why))
    await tx.fetch(sql.LET_GO, worker)
    await tx.fetch(sql.FORGET_GATEWAY, worker)
    limit = None if await tx.fetch(sql.UNATTENDED, worker) else crash_limit
    return await _lose(tx, worker, info, why, limit, undelivered, lost=True)


async def _lose(
    tx: Transaction,
    worker: UUID,
    info: bytes | None,
    why: str,
    crash_limit: int | None,
    undelivered: Collection[int] = (),
    *,
    lost: bool,
) -> tuple[Harvested, Rows]:
    """Takes the jobs of a worker that is gone; a crash limit says that the loss is a crash.

    It costs nothing what the worker held ahead. Answers also the rows that are ready again.
    """
    rows = await _owned(tx, worker)
    kinds = [(row["token"], row["kind"]) for row in rows]
    known = None if info is None else unpack_info(info)
    ahead = set[int]() if known is None else not_blamed(known, kinds)
    changes = []
    for row in rows:
        free = row["token"] in ahead or row["token"] in undelivered
        limit = None if free else crash_limit
        effect = _loss(row, known, limit, clean(why))
        changes.append((row, effect[STATES[row["state"]]]))
    await apply(tx, changes)
    requeued = [row for row, change in changes if change.state is JobState.READY]
    lanes = frozenset(row["lane"] for row in requeued)
    ended = tuple(effects.outcome(row["id"], change) for row, change in changes if change.ends)
    return Harvested(lost, len(requeued), lanes, ended), requeued


def _loss(row: asyncpg.Record, worker: WorkerInfo | None, limit: int | None, why: str) -> Effect:
    """What the loss of its worker does to a job; a turn may get the chance to recover."""
    if can_recover(worker, row["kind"]) and (options := unpack_options(row["options"])).turn:
        counts = row["failures"], row["crashes"], options.retry.attempts
        return of_lost_turn(*counts, limit, why)
    return effects.of_loss(row["crashes"], limit, why)


def _expires_s(row: asyncpg.Record) -> float | None:
    return unpack_options(row["options"]).expires_s


def _retry(row: asyncpg.Record, by: str, request: UUID | None) -> Effect:
    return effects.of_retry(row["round"], by, request, _expires_s(row))


async def retry_locked(
    tx: Transaction,
    rows: Rows,
    by: str,
    request: UUID | None = None,
    order: Sequence[UUID | None] = (),
) -> tuple[dict[UUID, RetryVerdict], Rows]:
    """Opens a new round for locked rows; answers what became of each, and which are ready again.

    Of two with one unique key the first in this order is taken.
    """
    verdicts = await _retry_verdicts(tx, rows, order or [row["id"] for row in rows])
    reopened = [row for row in rows if verdicts[row["id"]] is RetryVerdict.RETRIED]
    changes = [(row, _retry(row, by, request)[STATES[row["state"]]]) for row in reopened]
    await apply(tx, changes, by, sql.REOPEN)
    return verdicts, reopened


async def _opened_before(tx: Transaction, rows: Rows, request: UUID | None) -> set[UUID]:
    """The jobs among these for which this request has opened a round before."""
    if request is None or not rows:
        return set()
    ids = [row["id"] for row in rows]
    return {row["id"] for row in await tx.fetch(sql.OPENED_A_ROUND, ids, entry_end(request))}


async def _retry_verdicts(
    tx: Transaction, rows: Rows, ids: Sequence[UUID | None]
) -> dict[UUID, RetryVerdict]:
    """What a retry does to each job. Of two with one unique key, it takes only the first given."""
    by_id = {row["id"]: row for row in rows}
    taken = await _taken_keys(tx, rows)
    verdicts: dict[UUID, RetryVerdict] = {}
    for id in dict.fromkeys(ids):
        if id is None or id not in by_id:
            continue
        row = by_id[id]
        key = (row["kind"], row["unique_key"])
        in_group = row["group_id"] is not None
        verdicts[id] = effects.retry_verdict(
            STATES[row["state"]], key_is_taken=key in taken, in_group=in_group
        )
        if verdicts[id] is RetryVerdict.RETRIED and row["unique_key"] is not None:
            taken.add(key)
    return verdicts


async def _taken_keys(tx: Transaction, rows: Rows) -> set[tuple[str, str]]:
    """The unique keys among these that a live job holds."""
    keys = {(row["kind"], row["unique_key"]) for row in rows if row["unique_key"] is not None}
    if not keys:
        return set()
    found = await tx.fetch(HOLDERS, *zip(*keys, strict=True))
    return {(row["kind"], row["unique_key"]) for row in found}
