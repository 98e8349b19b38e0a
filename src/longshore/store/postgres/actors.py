"""Actors on PostgreSQL: what users do to them, and their upkeep. `turns` has what the pump does.

Each verb locks its actor, and all others that it may change, before it reads anything.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Final
from uuid import UUID

from longshore.core import effects
from longshore.core.histories import What
from longshore.core.turns import RESUME
from longshore.errors import StoreUnavailable
from longshore.model.actor import ActorVerdict, MailAction, NewActor, Reply, Started
from longshore.model.callback import USUAL_TERMS, CallbackTerms
from longshore.model.job import Refused
from longshore.ports import Hint, Tended, Told
from longshore.store.actor_rows import (
    RECEIPTS_S,
    actor_exists,
    actor_not_accepted,
    id_taken,
    pack_terms,
    pack_timers,
    unpack_reply,
    unstorable_actor,
)
from longshore.store.postgres import actors_sql as sql
from longshore.store.postgres.actor_reads import PostgresActorReads
from longshore.store.postgres.changes import apply
from longshore.store.postgres.connections import TURNS, Transaction, is_data_error
from longshore.store.postgres.keeper import PostgresKeeper
from longshore.store.postgres.keeper_sql import REOPEN
from longshore.store.postgres.listed_fields import keep_listed
from longshore.store.postgres.mailboxes import Mailbox, Mailboxes, drop_jobs
from longshore.store.postgres.next_turns import wake
from longshore.store.postgres.notice_cursor import NoticeCursor
from longshore.store.postgres.states import ACTIVE, ENDED, PAUSED, STATES, STOPPING
from longshore.store.postgres.submit import SubmitBatch
from longshore.store.postgres.watchers import tell_watchers
from longshore.store.rows import INT64, clean, micros, unpack_options, utc_now

FROM_START_EVERY: Final = 20
LONG_AGO: Final = datetime(2000, 1, 1, tzinfo=UTC)

V = ActorVerdict
Work = Callable[[Mailboxes, Mailbox], Awaitable[ActorVerdict]]


class PostgresActors(PostgresActorReads, PostgresKeeper):
    """The verbs that start, stop and change actors."""

    def __init__(self) -> None:
        super().__init__()
        self._notices = NoticeCursor()
        self._receipts_from = LONG_AGO
        self._tended = 0

    # starting

    async def start_actors(
        self, actors: Sequence[NewActor], *, reuse: bool = False
    ) -> list[Started | Refused]:
        """Starts actors, each with its first turn; answers item by item."""
        now = micros(utc_now())
        bad = {id(one): why for one in actors if (why := unstorable_actor(one, now)) is not None}
        sound = [one for one in actors if id(one) not in bad]
        answers: dict[int, Started | Refused] = {}
        if sound:
            answers, started = await self._keeping.run(lambda tx: self._start(tx, sound, reuse))
            if started:
                self._sender.tell(Hint.WORK)
        return [
            actor_not_accepted(one, bad[id(one)]) if id(one) in bad else answers[id(one)]
            for one in actors
        ]

    async def _start(
        self, tx: Transaction, actors: Sequence[NewActor], reuse: bool
    ) -> tuple[dict[int, Started | Refused], bool]:
        answers: dict[int, Started | Refused] = {}
        started = False
        for _ in range(TURNS):
            left = [one for one in actors if id(one) not in answers]
            if not left:
                return answers, started
            new = await self._insert(tx, left, answers)
            started |= bool(new)
            answers |= await _known(tx, [one for one in left if id(one) not in answers], reuse)
        raise StoreUnavailable("the keys of actors changed hands too often; try again")

    async def _insert(
        self, tx: Transaction, actors: Sequence[NewActor], answers: dict[int, Started | Refused]
    ) -> set[UUID]:
        """Starts the actors whose ids and keys are free, and answers those.

        An actor that was started and removed before is answered too, and not started again.
        """
        if not tx.isolate_bad_items:
            new = await self._insert_all(tx, actors)
        else:
            new = set()
            for one in actors:
                try:
                    async with tx.savepoint():
                        new |= await self._insert_all(tx, [one])
                except Exception as error:
                    if not is_data_error(error):
                        raise
                    answers[id(one)] = actor_not_accepted(one, clean(str(error)))
        first: dict[UUID, NewActor] = {}
        for one in actors:
            if one.id in new and id(one) not in answers:
                first.setdefault(one.id, one)
        answers |= {id(one): Started(one.id) for one in first.values()}
        return new

    async def _insert_all(self, tx: Transaction, actors: Sequence[NewActor]) -> set[UUID]:
        rows = await tx.fetch(
            sql.START,
            [one.id for one in actors],
            [one.type for one in actors],
            [one.key for one in actors],
            [pack_terms(one.terms) for one in actors],
        )
        numbers = {row["id"]: row["number"] for row in rows}
        gone = await _undo_late(tx, list(numbers))
        for id in gone:
            del numbers[id]
        if not numbers:
            return gone
        by_id = {one.id: one for one in reversed(actors)}
        first = [by_id[id] for id in numbers]
        versions, states = [one.version for one in first], [one.state for one in first]
        none = pack_timers(())
        await tx.fetch(sql.FIRST_TURNS, list(numbers.values()), versions, states, none)
        listed = [(numbers[one.id], (one.type, one.key), one.listed) for one in first if one.listed]
        await keep_listed(tx, listed)
        boxes = Mailboxes(tx)
        await boxes.hold((), numbers)
        for one in first:
            boxes.note(boxes.by_id[one.id], 0, What.CREATED, one.state)
        await boxes.look()
        await self._wake(boxes)
        return gone.union(numbers)

    # users

    async def pause_actor(self, type: str, key: str, paused: bool) -> ActorVerdict:
        """Pauses an actor after the turn that runs, or resumes it; a failed one too."""

        async def work(boxes: Mailboxes, box: Mailbox) -> ActorVerdict:
            failed = box.job is not None and box.job["state"] >= ENDED
            if (box.status == PAUSED) == paused and (paused or not failed):
                return V.ALREADY
            box.status = PAUSED if paused else ACTIVE
            await boxes.tx.fetch(sql.SET_STATUS, [box.id], box.status)
            if failed and not paused:
                await self._try_again(boxes, box)
            await self._wake(boxes)
            return V.DONE

        return await self._change(type, key, work, Hint.WORK)

    async def _try_again(self, boxes: Mailboxes, box: Mailbox) -> None:
        """Opens a new round of a turn that ended; one that did not end as a turn does goes."""
        await boxes.lock_jobs([box])
        row = box.job
        if row is not None and row["state"] >= ENDED:
            expires_s = unpack_options(row["options"]).expires_s
            effect = effects.of_retry(row["round"], RESUME, None, expires_s)
            if (change := effect.get(STATES[row["state"]])) is None:
                await drop_jobs(boxes.tx, [row])
            else:
                await apply(boxes.tx, [(row, change)], statement=REOPEN)
                self._put_back([row])
        box.forget_job()

    async def stop_actor(self, type: str, key: str, by: str = "") -> ActorVerdict:
        """Removes an actor with its mailbox and timers; who asked it something hears of that."""

        async def work(tx: Transaction) -> tuple[ActorVerdict, bool]:
            known = await tx.fetch(sql.KNOWN, [type], [key], [])
            boxes = Mailboxes(tx)
            await boxes.hold([(type, key)], removing=[row["id"] for row in known])
            box = boxes.named((type, key))
            if box is None:
                tx.rest_on_found()
                return V.NOT_FOUND, False
            if box.status == STOPPING:
                tx.rest_on_found()
                return V.ALREADY, False
            await boxes.look()
            await boxes.lock_jobs([box])
            box.status = STOPPING
            if not box.is_busy:
                await self._remove(boxes, [box])
                return V.DONE, False
            assert box.job is not None
            await tx.fetch(sql.SET_STATUS, [box.id], STOPPING)
            if (change := effects.CANCEL.get(STATES[box.job["state"]])) is not None:
                await apply(tx, [(box.job, change)], clean(by))
            return V.DONE, True

        if not _is_text(type, key):
            return V.NOT_FOUND
        verdict, is_running = await self._keeping.run(work)
        if verdict is V.DONE:
            self._sender.tell(*[Hint.CANCEL] if is_running else [Hint.ENDED, Hint.WORK])
        return verdict

    async def _remove(self, boxes: Mailboxes, chosen: Sequence[Mailbox]) -> list[Reply]:
        """Removes actors that are held, with the locked jobs of their turns; answers replies."""
        await boxes.read_asks([box.id for box in chosen])
        for box in chosen:
            box.status = STOPPING
        for box in chosen:
            boxes.remove(box)
        await boxes.flush()
        await boxes.drop_removed()
        await self._wake(boxes)
        return [*boxes.replies.values()]

    async def edit_actor(
        self,
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

        async def work(boxes: Mailboxes, box: Mailbox) -> ActorVerdict:
            if turn is not None and turn != box.turn:
                [last] = await boxes.tx.fetch(sql.LAST, box.number)
                done = last["n"], last["worker"], last["state"], last["version"]
                return V.DONE if done == (turn + 1, None, state, version) else V.CHANGED
            await boxes.lock_jobs([box])
            if box.is_busy:
                return V.BUSY
            await drop_jobs(boxes.tx, [box.job] if box.job is not None else [])
            none = pack_timers(())
            await boxes.tx.fetch(sql.EDIT, box.number, version, state, restart, none)
            if listed is not None:
                await keep_listed(boxes.tx, [(box.number, box.name, listed)])
            boxes.note(box, box.turn + 1, What.UPDATED, state)
            box.forget_job()
            await boxes.look()
            await self._wake(boxes)
            return V.DONE

        return await self._change(type, key, work, Hint.WORK)

    async def sort_mail(self, type: str, key: str, number: int, action: MailAction) -> ActorVerdict:
        """Parks a message, so that it is passed over, puts it back or drops it."""

        async def work(boxes: Mailboxes, box: Mailbox) -> ActorVerdict:
            found = await boxes.tx.fetch(sql.MAIL_ITEM, box.number, number)
            if not found:
                return V.NOT_FOUND
            await boxes.lock_jobs([box])
            if box.is_busy:
                return V.BUSY
            if action is MailAction.DROP:
                await boxes.tx.fetch(sql.DROP_MAIL, box.number, number)
            elif found[0]["parked"] is (action is MailAction.PARK):
                return V.ALREADY
            else:
                parks = action is MailAction.PARK
                await boxes.tx.fetch(sql.SORT_MAIL, box.number, number, parks)
            await boxes.look()
            await self._wake(boxes)
            return V.DONE

        if number not in INT64:
            return V.NOT_FOUND
        return await self._change(type, key, work, Hint.WORK)

    async def _change(self, type: str, key: str, work: Work, hint: Hint) -> ActorVerdict:
        """Does something to one actor, which is locked and known; others hear of it."""

        async def within(tx: Transaction) -> ActorVerdict:
            boxes = Mailboxes(tx)
            await boxes.hold([(type, key)])
            box = boxes.find((type, key))
            tx.rest_on_found()
            if box is None:
                return V.NOT_FOUND
            await boxes.look()
            await boxes.find_jobs([box])
            return await work(boxes, box)

        verdict = await self._keeping.run(within) if _is_text(type, key) else V.NOT_FOUND
        if verdict is V.DONE:
            self._sender.tell(hint)
        return verdict

    async def _wake(self, boxes: Mailboxes) -> None:
        """Brings the next turns of all actors that are held to where they belong."""
        intake = SubmitBatch(boxes.tx, set())
        await wake(boxes, [*boxes.by_id.values()], intake, self._pump.cursors)
        if boxes.history:
            await intake.accept(boxes.history)

    # upkeep

    async def callback_secret(self) -> bytes:
        """The secret of this store from which the keys for callback tokens follow."""
        [row] = await self._reading.fetch(sql.SECRET)
        secret: bytes = row["value"]
        return secret

    async def replies(self, ids: Sequence[UUID]) -> list[Reply]:
        """The replies to these asks from outside, as far as there are any."""
        rows = await self._reading.fetch(sql.REPLIES, list(ids)) if ids else []
        return [unpack_reply(row["reply"]) for row in rows]

    async def tend_actors(self, most: int = 1000) -> Tended:
        """Removes actors that were stopped while a turn ran, and forgets old ids of messages."""
        found = await self._keeping.fetch(sql.STOPPED, most + 1)
        ids = [row["id"] for row in found[:most]]
        replies = await self._keeping.run(lambda tx: self._tend(tx, ids)) if ids else []
        if replies:
            self._sender.tell(Hint.ENDED)
        more = await self._forget_receipts(most)
        await self._forget_undelivered(most)
        return Tended(tuple(replies), more=more or len(found) > most)

    async def tell_watchers(self, most: int = 100, callbacks: CallbackTerms = USUAL_TERMS) -> Told:
        """Tells those who watch jobs and groups of at most so many that ended."""
        began, cursors = self._clock(), self._pump.cursors
        since = self._notices.begin(began)
        told, up_to = await self._keeping.run(
            lambda tx: tell_watchers(tx, most, since, cursors, callbacks)
        )
        now = self._clock()
        self._notices.found(since, up_to, now - began, now, is_all=not told.more)
        if told.ready:
            self._sender.tell(Hint.WORK)
        return told

    async def _tend(self, tx: Transaction, ids: Sequence[UUID]) -> list[Reply]:
        boxes = Mailboxes(tx)
        await boxes.hold((), ids, removing=ids)
        await boxes.look()
        stopping = [box for box in boxes.by_id.values() if box.status == STOPPING]
        await boxes.lock_jobs(stopping)
        return await self._remove(boxes, [box for box in stopping if not box.is_busy])

    @abstractmethod
    async def _forget_undelivered(self, most: int) -> None: ...

    async def _forget_receipts(self, most: int) -> bool:
        """Forgets old ids; now and then from the first on. Answers whether there are more."""
        self._tended += 1
        start = self._receipts_from if self._tended % FROM_START_EVERY else LONG_AGO
        [row] = await self._keeping.fetch(sql.FORGET_OLD, start, RECEIPTS_S, most)
        self._receipts_from = row["up_to"]
        return bool(row["n"] >= most)


async def _undo_late(tx: Transaction, ids: Sequence[UUID]) -> set[UUID]:
    """Takes back the starts of actors that were removed before; answers their ids.

    By a statement after the insert: that may have waited for the transaction that removed them.
    """
    gone = {row["id"] for row in await tx.fetch(sql.RECEIVED, ids)} if ids else set[UUID]()
    if gone:
        await tx.fetch(sql.UNDO_START, list(gone))
    return gone


async def _known(
    tx: Transaction, actors: Sequence[NewActor], reuse: bool
) -> dict[int, Started | Refused]:
    """Answers for actors whose id or key another one has."""
    if not actors:
        return {}
    tx.rest_on_found()
    types, keys = [one.type for one in actors], [one.key for one in actors]
    rows = await tx.fetch(sql.KNOWN, types, keys, [one.id for one in actors])
    by_name = {(row["type"], row["key"]): row for row in rows}
    ids = {row["id"] for row in rows}
    answers: dict[int, Started | Refused] = {}
    for one in actors:
        row = by_name.get((one.type, one.key))
        if row is not None and row["id"] == one.id:
            answers[id(one)] = Started(one.id)
        elif row is not None and reuse and row["status"] != STOPPING:
            answers[id(one)] = Started(row["id"], existing=True)
        elif row is not None:
            answers[id(one)] = actor_exists(one, stopping=row["status"] == STOPPING)
        elif one.id in ids:
            answers[id(one)] = id_taken(one)
    return answers


def _is_text(*texts: str) -> bool:
    return all(clean(text) == text for text in texts)
