"""The keeper of the SQLite store: leases, losses, cancels, clocks, each within a transaction."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from math import isnan
from typing import Final, NamedTuple
from uuid import UUID

from longshore.core import effects
from longshore.core.effects import Effect
from longshore.core.lanes import GATE_LANE
from longshore.core.leases import ANOTHERS, RESIGNED, is_anothers
from longshore.core.lookahead import not_blamed
from longshore.core.recovery import can_recover, of_lost_turn
from longshore.errors import InvalidInput
from longshore.model.group import GATE
from longshore.model.job import CancelVerdict, Ended, JobState, LogEntry, Options, RetryVerdict
from longshore.model.worker import Attended, Gone, Late, Stats, WorkerInfo
from longshore.ports import Harvested, Promoted
from longshore.store.rows import (
    INT64,
    LARGEST_INT,
    clean,
    entry_end,
    pack_info,
    unpack_info,
    unpack_options,
)
from longshore.store.sqlite.filling import filled
from longshore.store.sqlite.pauses import note_pause
from longshore.store.sqlite.reads import claimed_by, next_due_s
from longshore.store.sqlite.sql import (
    BEAT,
    HELD_AND_DUE,
    HELD_BY_WORKER,
    HELD_PAST_DEADLINE,
    LOG,
    ORPHANED,
    OWNED_KINDS,
    Held,
    Row,
)
from longshore.store.sqlite.states import LIVE_LIST, OWNED_LIST
from longshore.store.sqlite.transaction import Transaction

_MAX_SWEPT: Final = 1000


# dispatchers


def renew(tx: Transaction, dispatcher: UUID, name: str) -> None:
    """Says that a dispatcher lives, by changing its `renewed_no`."""
    tx.execute(
        """INSERT INTO dispatcher (id, name, renewed_no, started_at) VALUES (?, ?, 1, ?)
        ON CONFLICT DO UPDATE SET name = excluded.name, renewed_no = renewed_no + 1""",
        (dispatcher.bytes, clean(name), tx.now),
    )


def retire(tx: Transaction, dispatcher: UUID) -> None:
    """Removes a dispatcher that stops in good order."""
    tx.execute("DELETE FROM dispatcher WHERE id = ?", (dispatcher.bytes,))


def forget_dispatcher(tx: Transaction, dispatcher: UUID) -> None:
    """Removes a dispatcher that stopped renewing and attends no worker any more."""
    tx.execute(
        """DELETE FROM dispatcher WHERE id = ?1
        AND NOT EXISTS (SELECT 1 FROM worker WHERE alive = 1 AND dispatcher = ?1)""",
        (dispatcher.bytes,),
    )


# workers


def attend(
    tx: Transaction,
    dispatcher: UUID,
    info: WorkerInfo,
    *,
    draining: bool = False,
    session: int | None = None,
) -> Attended | Gone | Late:
    """Registers or adopts a worker: raises its session and says what is placed on it."""
    if info.service is not None and not _is_registered(tx, info.service, info.id):
        return Gone(RESIGNED)
    known = tx.execute(
        "SELECT alive, session, ended_why, info FROM worker WHERE id = ?", (info.id.bytes,)
    ).fetchone()
    if known is None:
        first = 1 if session is None else session
        _register(tx, dispatcher, info, draining, first)
        return Attended(first)
    alive, last, ended_why, known_info = known
    if not alive:
        return Gone(ended_why)
    if is_anothers(unpack_info(known_info), info):
        return Gone(ANOTHERS)
    session = last + 1 if session is None else session
    if session <= last:
        return Late(last)
    tx.execute(
        """UPDATE worker SET dispatcher = ?, session = ?, draining = draining OR ?,
            attended_at = ?, info = ? WHERE id = ?""",
        (dispatcher.bytes, session, draining, tx.now, pack_info(info), info.id.bytes),
    )
    tx.execute(
        f"""UPDATE job INDEXED BY job_owned SET session = ?
        WHERE worker = ? AND state IN {OWNED_LIST}""",
        (session, info.id.bytes),
    )
    return Attended(session, tuple(filled(tx, claimed_by(tx, info.id))))


def _register(
    tx: Transaction, dispatcher: UUID, info: WorkerInfo, draining: bool, session: int
) -> None:
    tx.execute(
        """INSERT INTO worker (id, dispatcher, session, alive, draining, started_at, attended_at,
            info) VALUES (?, ?, ?, 1, ?, ?, ?, ?)""",
        (info.id.bytes, dispatcher.bytes, session, draining, tx.now, tx.now, pack_info(info)),
    )


def set_draining(tx: Transaction, worker: UUID, draining: bool) -> bool:
    """Gives a draining worker nothing more; answers whether there is such a live worker."""
    changed = tx.execute(
        "UPDATE worker SET draining = ? WHERE id = ? AND alive = 1", (draining, worker.bytes)
    )
    return changed.rowcount > 0


def beat(tx: Transaction, dispatcher: UUID, beats: Mapping[UUID, Stats]) -> None:
    """These workers were heard of, if they are alive and this dispatcher's."""
    rows: list[Row] = [
        (
            worker.bytes,
            dispatcher.bytes,
            tx.now,
            _number(stats.cpu_percent),
            _number(stats.memory_percent),
        )
        for worker, stats in beats.items()
    ]
    BEAT.run(tx.connection, rows)


def _number(given: float) -> float:
    """The number, or 0 for NaN: SQLite refuses it, and with it the beats of all other workers."""
    return 0.0 if isnan(given) else given


def harvest(
    tx: Transaction,
    worker: UUID,
    session: int,
    why: str,
    crash_limit: int | None,
    undelivered: Collection[int] = (),
) -> Harvested:
    """Declares a worker lost, if it is still in that session, and frees its jobs.

    A crash limit says that the loss counts as a crash, unless the attempt was not delivered.
    """
    buried = tx.connection.execute(
        """UPDATE worker SET alive = 0, ended_at = ?, ended_why = ?
        WHERE id = ? AND alive = 1 AND session = ? RETURNING info""",
        (tx.now, clean(why), worker.bytes, min(session, LARGEST_INT)),
    ).fetchone()
    if buried is None:
        return Harvested(False)
    # What a gateway attended is adopted by another, and its loss is no fault of jobs elsewhere.
    let_go(tx, worker)
    limit = None if is_unattended(tx, worker) else crash_limit
    owned = _owned(tx, worker.bytes, buried[0])
    return _free(tx, [owned], why, limit, undelivered, lost=True)


def bury(tx: Transaction, worker: UUID, why: str, crash_limit: int | None = None) -> Harvested:
    """Ends a worker in whatever session it is, and frees its jobs, without a limit at no cost."""
    query = "SELECT session FROM worker WHERE id = ?"
    found = tx.execute(query, (worker.bytes,)).fetchone()
    return Harvested(False) if found is None else harvest(tx, worker, found[0], why, crash_limit)


def _is_registered(tx: Transaction, service: UUID, worker: UUID) -> bool:
    """Whether a service is registered, and is this worker at present."""
    query = "SELECT 1 FROM web_worker WHERE id = ? AND worker = ? AND ended_at IS NULL"
    return tx.execute(query, (service.bytes, worker.bytes)).fetchone() is not None


def let_go(tx: Transaction, gateway: UUID) -> None:
    """No gateway attends the services any more that this one did."""
    tx.execute(
        "UPDATE web_worker SET gateway = NULL WHERE gateway = ? AND ended_at IS NULL",
        (gateway.bytes,),
    )
    tx.execute("DELETE FROM web_gateway WHERE id = ?", (gateway.bytes,))


def is_unattended(tx: Transaction, worker: UUID) -> bool:
    """Whether a worker is a service that no gateway attends."""
    query = "SELECT 1 FROM web_worker WHERE worker = ? AND gateway IS NULL AND ended_at IS NULL"
    return tx.execute(query, (worker.bytes,)).fetchone() is not None


def sweep(tx: Transaction, crash_limit: int) -> Harvested:
    """Frees jobs whose worker is not alive: a worker after the other, up to a bound."""
    orphans, found = list[_Owned](), 0
    for worker, info in tx.connection.execute(ORPHANED).fetchall():
        orphans.append(_owned(tx, worker, info))
        found += len(orphans[-1].rows)
        if found >= _MAX_SWEPT:
            break
    return _free(tx, orphans, "its worker is not alive", crash_limit, lost=False)


class _Owned(NamedTuple):
    """The jobs that a worker owned: the tokens of those that it held ahead, and turns.

    The latter are those that may recover, with the attempts that their policies allow.
    """

    rows: list[Held]
    ahead: set[int]
    recovering: dict[int, int]


def _owned(tx: Transaction, worker: bytes, info: bytes | None) -> _Owned:
    """The jobs that a worker owns."""
    owned = tx.held_where(HELD_BY_WORKER, (worker,))
    if info is None:
        return _Owned(owned, set(), {})
    known = unpack_info(info)
    kinds = tx.connection.execute(OWNED_KINDS, (worker,)).fetchall()
    of_rows = dict(kinds)
    recovering = {}
    for row in owned:
        if can_recover(known, of_rows[row.token]) and (options := _options(tx, row)).turn:
            recovering[row.token] = options.retry.attempts
    return _Owned(owned, not_blamed(known, kinds), recovering)


def _free(
    tx: Transaction,
    losses: Sequence[_Owned],
    why: str,
    crash_limit: int | None,
    undelivered: Collection[int] = (),
    *,
    lost: bool,
) -> Harvested:
    ended = []
    rows = [(row, owned) for owned in losses for row in owned.rows]
    for row, owned in rows:
        is_free = row.token in owned.ahead or row.token in undelivered
        change = _loss(row, owned, None if is_free else crash_limit, clean(why))[row.state]
        tx.apply(row, change)
        if change.ends:
            ended.append(effects.outcome(row.uuid, change))
    requeued = [row.lane for row, _ in rows if row.state is JobState.READY]
    return Harvested(lost, len(requeued), frozenset(requeued), tuple(ended))


def _loss(row: Held, owned: _Owned, limit: int | None, why: str) -> Effect:
    """What the loss of its worker does to a job; a turn may get the chance to recover."""
    attempts = owned.recovering.get(row.token)
    if attempts is None:
        return effects.of_loss(row.crashes, limit, why)
    return of_lost_turn(row.failures, row.crashes, attempts, limit, why)


# clocks


def promote(tx: Transaction, most: int = 1000) -> Promoted:
    """Makes delayed jobs ready whose time has come."""
    due = tx.held_where(HELD_AND_DUE, (tx.now, most))
    for row in due:
        tx.apply(row, effects.DUE[row.state])
    tx.flush()
    lanes = frozenset(row.lane for row in due)
    return Promoted(len(due), lanes, next_due_s(tx))


def expire(tx: Transaction, most: int = 1000) -> list[Ended]:
    """Fails ready jobs that did not begin before their deadline; answers their outcomes."""
    ended = []
    for row in tx.held_where(HELD_PAST_DEADLINE, (tx.now, most)):
        kind = GATE if row.lane == GATE_LANE else ""
        change = effects.of_expiry(_expires_s(tx, row), kind)[row.state]
        tx.apply(row, change)
        ended.append(effects.outcome(row.uuid, change))
    return ended


def _expires_s(tx: Transaction, row: Held) -> float | None:
    return _options(tx, row).expires_s


def _options(tx: Transaction, row: Held) -> Options:
    [options] = tx.execute("SELECT options FROM job WHERE number = ?", (row.number,)).fetchone()
    return unpack_options(options)


# users


def cancel(
    tx: Transaction, refs: Sequence[UUID | int], by: str = ""
) -> list[tuple[UUID | None, CancelVerdict]]:
    """Cancels what is not running, marks what is `cancelling`; answers in the order given."""
    return [_cancel(tx, row, by) for row in tx.held(refs)]


def _cancel(tx: Transaction, row: Held | None, by: str) -> tuple[UUID | None, CancelVerdict]:
    if row is None:
        return None, CancelVerdict.NOT_FOUND
    verdict = effects.cancel_verdict(row.state)
    if row.state in effects.CANCEL:
        tx.apply(row, effects.CANCEL[row.state], by=by)
    return row.uuid, verdict


def retry(
    tx: Transaction, refs: Sequence[UUID | int], by: str = "", request: UUID | None = None
) -> list[tuple[UUID | None, RetryVerdict]]:
    """Opens a new round for jobs that ended without success, one for each request."""
    return [retry_held(tx, row, by, request) for row in tx.held(refs)]


def retry_held(
    tx: Transaction, row: Held | None, by: str, request: UUID | None = None
) -> tuple[UUID | None, RetryVerdict]:
    """Opens a new round for one job."""
    if row is None:
        return None, RetryVerdict.NOT_FOUND
    if request is not None and _opened_a_round(tx, row, request):
        return row.uuid, RetryVerdict.RETRIED
    in_group = row.group is not None
    verdict = effects.retry_verdict(
        row.state, key_is_taken=_key_is_taken(tx, row), in_group=in_group
    )
    if verdict is RetryVerdict.RETRIED:
        effect = effects.of_retry(row.round, by, request, _expires_s(tx, row))
        tx.apply(row, effect[row.state], by=by)
        # Of two jobs of one unique key only the first may come back.
        tx.flush()
    return row.uuid, verdict


def _key_is_taken(tx: Transaction, row: Held) -> bool:
    holder = tx.execute(
        f"""SELECT 1 FROM job AS mine CROSS JOIN job AS other INDEXED BY job_unique
        ON other.kind = mine.kind AND other.unique_key = mine.unique_key
        WHERE mine.number = ? AND other.unique_key IS NOT NULL
            AND other.state IN {LIVE_LIST}""",
        (row.number,),
    )
    return holder.fetchone() is not None


def _opened_a_round(tx: Transaction, row: Held, request: UUID) -> bool:
    query = "SELECT instr(history, ?) FROM job WHERE number = ?"
    [found] = tx.execute(query, (entry_end(request), row.number)).fetchone()
    return bool(found)


def log(tx: Transaction, entries: Sequence[LogEntry]) -> None:
    """Keeps what attempts said, if their token is still the job's last; a repeat is dropped."""
    rows: list[Row] = [
        (entry.job.bytes, entry.token, entry.seq, entry.kind, tx.now, entry.data)
        for entry in entries
        if entry.token in INT64 and entry.seq in INT64
    ]
    LOG.run(tx.connection, rows)


def set_paused(tx: Transaction, queue: str, paused: bool) -> None:
    """Pauses or resumes a queue. Claims see it at once."""
    if clean(queue) != queue:
        raise InvalidInput(f"{queue!r} cannot be the name of a queue; leave out what is not text")
    tx.execute(
        """INSERT INTO queue (name, paused) VALUES (?, ?)
        ON CONFLICT DO UPDATE SET paused = excluded.paused""",
        (queue, paused),
    )
    note_pause(tx, queue, paused)
    tx.remembered.paused = None
