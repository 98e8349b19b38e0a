"""The verbs of actors on SQLite: start, pause, stop, edit, sort mail, and the upkeep."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final
from uuid import UUID

from longshore.core import effects
from longshore.core.histories import What, history_job
from longshore.core.lifecycle import OWNED, TERMINAL
from longshore.core.turns import RESUME
from longshore.model.actor import TURNS_KEPT, ActorVerdict, MailAction, NewActor, Reply, Started
from longshore.model.job import Refused
from longshore.ports import Tended
from longshore.store import actor_rows
from longshore.store.rows import INT64, LARGEST_INT
from longshore.store.sqlite.listed_fields import keep_listed
from longshore.store.sqlite.mailing import Mailing
from longshore.store.sqlite.sql import Bulk, Lookup, Row
from longshore.store.sqlite.states import OWNED_LIST
from longshore.store.sqlite.submit import accept
from longshore.store.sqlite.transaction import Snapshot, Transaction
from longshore.store.sqlite.turns import FORGET_TURNS, INSERT_TURNS
from longshore.store.sqlite.waking import (
    ACTIVE,
    PAUSED,
    STOPPING,
    ActorRow,
    drop_job,
    named,
    numbered,
    wake,
)

_EXISTING: Final = Lookup(
    """SELECT json_group_array(json_array(a.type, a.key, hex(a.id), a.status))
    FROM {rows} AS v CROSS JOIN actor AS a
    ON (a.type = v.column1 AND a.key = v.column2) OR a.id = v.column3""",
    3,
    tuple[str, str, str, str],
)
_GONE: Final = Lookup(
    """SELECT json_group_array(hex(r.id))
    FROM {rows} AS v CROSS JOIN receipt AS r ON r.id = v.column1""",
    1,
    str,
)
_INSERT: Final = Bulk(
    """INSERT INTO actor (number, id, type, key, created_at, terms)
    SELECT * FROM {rows} WHERE column1 IS NOT NULL""",
    6,
)
_REPLIES: Final = Bulk(
    """SELECT r.reply FROM {rows} AS v CROSS JOIN receipt AS r ON r.id = v.column1
    WHERE length(r.reply) > 0""",
    1,
)
_STOPPED: Final = f"""
    SELECT number FROM actor INDEXED BY actor_stopping WHERE status = 'stopping' AND NOT EXISTS (
        SELECT 1 FROM job INDEXED BY job_actor
        WHERE job.actor_id = actor.number AND job.actor_id IS NOT NULL
            AND job.state IN {OWNED_LIST})
    ORDER BY number LIMIT ?"""
_OLD_RECEIPTS: Final = "SELECT id FROM receipt INDEXED BY receipt_at WHERE at <= ? LIMIT ?"


# starting


def start_actors(
    tx: Transaction, actors: Sequence[NewActor], *, reuse: bool = False
) -> list[Started | Refused]:
    """Starts actors, each with its first turn; answers item by item."""
    whys = [actor_rows.unstorable_actor(new, tx.now) for new in actors]
    keys: list[Row] = [
        (new.type, new.key, new.id.bytes)
        for new, why in zip(actors, whys, strict=True)
        if why is None
    ]
    found = _EXISTING.find(tx.connection, keys)
    by_name = {(type, key): (UUID(hex=id), status) for type, key, id, status in found}
    ids = {id for id, _ in by_name.values()}
    gone = {UUID(hex=id) for id in _GONE.find(tx.connection, [(id,) for *_, id in keys])}
    answers: list[Started | Refused] = []
    started: list[NewActor] = []
    for new, why in zip(actors, whys, strict=True):
        if why is not None:
            answers.append(actor_rows.actor_not_accepted(new, why))
            continue
        answer = _existing(new, by_name.get((new.type, new.key)), ids, reuse)
        if answer is None and new.id not in gone:
            by_name[new.type, new.key] = new.id, ACTIVE
            ids.add(new.id)
            started.append(new)
        answers.append(answer or Started(new.id))
    _insert(tx, started)
    return answers


def _existing(
    new: NewActor, known: tuple[UUID, str] | None, ids: set[UUID], reuse: bool
) -> Started | Refused | None:
    """The answer to a start whose key or id is taken; None if they are free."""
    if known is None:
        return actor_rows.id_taken(new) if new.id in ids else None
    id, status = known
    if id == new.id:
        return Started(id)
    if reuse and status != STOPPING:
        return Started(id, existing=True)
    return actor_rows.actor_exists(new, stopping=status == STOPPING)


def _insert(tx: Transaction, actors: Sequence[NewActor]) -> None:
    if not actors:
        return
    [last] = tx.execute("SELECT coalesce(max(number), 0) FROM actor").fetchone()
    no_timers = actor_rows.pack_timers(())
    rows, turns = list[Row](), list[Row]()
    for number, new in enumerate(actors, last + 1):
        terms = actor_rows.pack_terms(new.terms)
        rows.append((number, new.id.bytes, new.type, new.key, tx.now, terms))
        turns.append((number, 0, tx.now, None, 0, new.version, 1, no_timers, new.state))
    _INSERT.run(tx.connection, rows)
    INSERT_TURNS.run(tx.connection, turns)
    numbered_actors = enumerate(actors, last + 1)
    keep_listed(tx, [(n, (new.type, new.key), new.listed) for n, new in numbered_actors])
    wake(tx, range(last + 1, last + 1 + len(actors)))
    heard = (
        history_job(new.terms, new.id, (new.type, new.key), 0, What.CREATED, new.state)
        for new in actors
    )
    accept(tx, [job for job in heard if job is not None])


# control


def _live(tx: Transaction, type: str, key: str) -> ActorRow | None:
    actor = named(tx, type, key)
    return None if actor is None or actor.status == STOPPING else actor


def _set_status(tx: Transaction, actor: ActorRow, status: str) -> None:
    tx.execute("UPDATE actor SET status = ? WHERE number = ?", (status, actor.number))


def pause_actor(tx: Transaction, type: str, key: str, paused: bool) -> ActorVerdict:
    """Pauses an actor, or resumes it; a failed one too."""
    actor = _live(tx, type, key)
    if actor is None:
        return ActorVerdict.NOT_FOUND
    failed = actor.state in TERMINAL
    if (actor.status == PAUSED) == paused and (paused or not failed):
        return ActorVerdict.ALREADY
    _set_status(tx, actor, PAUSED if paused else ACTIVE)
    if failed and not paused:
        _try_again(tx, actor)
    wake(tx, [actor.number])
    return ActorVerdict.DONE


def _try_again(tx: Transaction, actor: ActorRow) -> None:
    """Opens a new round of a turn that has ended; one that succeeded is made anew."""
    [row] = tx.held([actor.job or 0])
    assert row is not None
    effect = effects.of_retry(row.round, RESUME, None, actor.terms.options.expires_s)
    if row.state in effect:
        tx.apply(row, effect[row.state])
    else:
        drop_job(tx, actor)


def stop_actor(tx: Transaction, type: str, key: str, by: str = "") -> ActorVerdict:
    """Removes an actor; if a turn runs, `tend_actors` does so after it."""
    actor = named(tx, type, key)
    if actor is None:
        return ActorVerdict.NOT_FOUND
    if actor.status == STOPPING:
        return ActorVerdict.ALREADY
    if actor.state not in OWNED:
        _remove(tx, [actor])
        return ActorVerdict.DONE
    _set_status(tx, actor, STOPPING)
    [row] = tx.held([actor.job or 0])
    if row is not None and row.state in effects.CANCEL:
        tx.apply(row, effects.CANCEL[row.state], by=by)
    return ActorVerdict.DONE


def _remove(tx: Transaction, actors: Sequence[ActorRow]) -> list[Reply]:
    """Removes these actors; answers the replies to asks from outside."""
    mailing = Mailing(tx)
    for actor in actors:
        mailing.remove(actor)
    mailing.close()
    wake(tx, mailing.touched)
    accept(tx, mailing.history)
    return mailing.replies


def edit_actor(
    tx: Transaction,
    type: str,
    key: str,
    state: bytes,
    version: int,
    *,
    turn: int | None = None,
    restart: bool = False,
    listed: Mapping[str, str] | None = None,
) -> ActorVerdict:
    """Replaces the state of an actor between two turns, as a turn of its own."""
    actor = _live(tx, type, key)
    if actor is None:
        return ActorVerdict.NOT_FOUND
    if turn is not None and turn != actor.turn:
        is_repeat = turn + 1 == actor.turn and _was_edited(tx, actor, state, version)
        return ActorVerdict.DONE if is_repeat else ActorVerdict.CHANGED
    if actor.state in OWNED:
        return ActorVerdict.BUSY
    drop_job(tx, actor)
    timers = actor_rows.pack_timers(() if restart else actor.timers)
    n, starts = actor.turn + 1, bool(restart or actor.starts)
    left = actor.read, version, starts, timers, state
    INSERT_TURNS.run(tx.connection, [(actor.number, n, tx.now, None, *left)])
    FORGET_TURNS.run(tx.connection, [(actor.number, n - TURNS_KEPT)])
    if listed is not None:
        keep_listed(tx, [(actor.number, (actor.type, actor.key), listed)])
    wake(tx, [actor.number])
    name = actor.type, actor.key
    heard = history_job(actor.terms, actor.id, name, n, What.UPDATED, state)
    accept(tx, [] if heard is None else [heard])
    return ActorVerdict.DONE


def _was_edited(tx: Transaction, actor: ActorRow, state: bytes, version: int) -> bool:
    """Whether the last turn of an actor is an edit that left this."""
    query = """SELECT 1 FROM turn
        WHERE actor = ? AND n = ? AND worker IS NULL AND state = ? AND version = ?"""
    return tx.execute(query, (actor.number, actor.turn, state, version)).fetchone() is not None


def sort_mail(
    tx: Transaction, type: str, key: str, number: int, action: MailAction
) -> ActorVerdict:
    """Parks a message, puts it back or drops it."""
    actor = _live(tx, type, key)
    if actor is None or number not in INT64:
        return ActorVerdict.NOT_FOUND
    which = (actor.number, number)
    query = "SELECT due_at FROM message WHERE actor = ? AND number = ?"
    found = tx.execute(query, which).fetchone()
    if found is None:
        return ActorVerdict.NOT_FOUND
    if actor.state in OWNED:
        return ActorVerdict.BUSY
    is_parked = found[0] == actor_rows.NEVER
    if action is not MailAction.DROP and is_parked is (action is MailAction.PARK):
        return ActorVerdict.ALREADY
    if action is MailAction.DROP:
        tx.execute("DELETE FROM message WHERE actor = ? AND number = ?", which)
    else:
        due_at = actor_rows.NEVER if action is MailAction.PARK else tx.now
        change = "UPDATE message SET due_at = ? WHERE actor = ? AND number = ?"
        tx.execute(change, (due_at, *which))
    wake(tx, [actor.number])
    return ActorVerdict.DONE


# upkeep


def has_work(tx: Snapshot) -> bool:
    """Whether `tend_actors` has anything to do."""
    old = tx.execute(_OLD_RECEIPTS, (_oldest(tx), 1)).fetchone()
    return old is not None or tx.execute(_STOPPED, (1,)).fetchone() is not None


def tend_actors(tx: Transaction, most: int = 1000) -> Tended:
    """Removes actors that were stopped while a turn ran, and forgets old ids of messages."""
    most = min(most, LARGEST_INT - 1)
    stopped = [number for (number,) in tx.execute(_STOPPED, (most + 1,))]
    replies = _remove(tx, numbered(tx, stopped[:most]))
    old = tx.execute(_OLD_RECEIPTS, (_oldest(tx), most + 1)).fetchall()
    tx.connection.executemany("DELETE FROM receipt WHERE id = ?", old[:most])
    return Tended(tuple(replies), more=max(len(stopped), len(old)) > most)


def _oldest(tx: Snapshot) -> int:
    """Receipts up to this time are forgotten."""
    return tx.now - round(actor_rows.RECEIPTS_S * 1e6)


def replies(tx: Snapshot, ids: Sequence[UUID]) -> list[Reply]:
    """The replies to these asks from outside, as far as there are any."""
    return list(_replies(tx, [(id.bytes,) for id in ids]))


def _replies(tx: Snapshot, keys: Sequence[Row]) -> Iterator[Reply]:
    for text, values in _REPLIES.pieces(keys):
        for (reply,) in tx.connection.execute(text, values).fetchall():
            yield actor_rows.unpack_reply(reply)
