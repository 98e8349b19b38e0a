"""Turns and messages within the pump of the PostgreSQL store.

Theory. A batch that concerns actors first locks them all (`hold`). The ends remove the jobs of the
turns that were taken (`FinishBatch`). Then `commit` keeps what these turns left, delivers the
outboxes in the order of the ends, then what was sent from outside, and wakes the next turns. Each
step is one statement, or a few, for the whole batch.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import Final
from uuid import UUID

from longshore.core.histories import What
from longshore.core.turns import set_at, turn_of
from longshore.model.actor import Message, Reply, Sent
from longshore.model.ends import End, PutAside, ReadDone, Succeeded, TurnTaken
from longshore.model.job import Finished, Refused, Submission, Verdict
from longshore.model.reports import OutboxGroup, OutboxMessage, OutboxReply
from longshore.ports import Batch
from longshore.store.actor_rows import (
    is_from_outside,
    mailbox_full,
    message_not_accepted,
    nobody,
    pack_reply,
    pack_timers,
    storable_reply,
    told_once,
    undelivered,
    undelivered_group,
    unstorable_message,
)
from longshore.store.postgres import actors_sql as sql
from longshore.store.postgres.connections import Transaction
from longshore.store.postgres.cursors import ClaimCursors
from longshore.store.postgres.finish import FinishBatch
from longshore.store.postgres.listed_fields import keep_listed
from longshore.store.postgres.mailboxes import Mailbox, Mailboxes, Name
from longshore.store.postgres.next_turns import wake
from longshore.store.postgres.settling import Settling
from longshore.store.postgres.staging import submit_whole
from longshore.store.postgres.states import PAUSED, STOPPING
from longshore.store.postgres.submit import SubmitBatch
from longshore.store.rows import INT64, LARGEST_INT, clean

MAIL: Final = (OutboxMessage, OutboxReply)


def concerns_actors(batch: Batch) -> bool:
    """Whether a batch has turns, or messages to actors."""
    return bool(batch.sends) or any(map(of_actors, batch.finishes))


def of_actors(end: End) -> bool:
    """Whether an end is that of a turn, or sends something to actors."""
    if isinstance(end, Succeeded):
        return bool(end.outbox) and any(isinstance(item, MAIL) for item in end.outbox)
    return isinstance(end, TurnTaken | PutAside | ReadDone)


class TurnBatch:
    """The turns and messages of one transaction."""

    def __init__(self, tx: Transaction, batch: Batch, cursors: ClaimCursors) -> None:
        self.ready: Counter[int] = Counter()
        """Turns that were there, and became ready by messages from outside alone."""
        self.ready_by_ends: Counter[int] = Counter()
        self.sent: list[Sent | Refused] = []
        self._tx = tx
        self._batch = batch
        self._cursors = cursors
        self.boxes = Mailboxes(tx)
        self._aside: dict[UUID, UUID] = {}
        self._read: list[Reply] = []

    @property
    def history(self) -> list[Submission]:
        """The jobs that hear of these turns."""
        return self.boxes.history

    @property
    def replies(self) -> list[Reply]:
        """The replies to asks from outside that count."""
        return [*self.boxes.replies.values(), *self._read]

    async def hold(self) -> None:
        """Locks all actors that finish or receive, before anything else is locked."""
        ends = self._batch.finishes
        turns = [end for end in ends if isinstance(end, TurnTaken)]
        names = {name for end in ends for name in _receivers(end)}
        names |= {(message.type, message.key) for message in self._batch.sends}
        self._aside = await self._put_aside(ends)
        ids = {end.actor for end in turns} | {*self._aside.values()}
        removing = [end.actor for end in turns if end.turn.stops]
        await self.boxes.hold(filter(_is_sound, names), ids, removing)

    async def _put_aside(self, ends: Sequence[End]) -> dict[UUID, UUID]:
        """The turns that are put aside, and their actors.

        If such an actor was resumed meanwhile, its turn goes on.
        """
        jobs = [end.job for end in ends if isinstance(end, PutAside)]
        rows = await self._tx.fetch(sql.OF_JOBS, jobs) if jobs else []
        return {row["id"]: turn_of(row["args"])[0] for row in rows}

    async def commit(
        self,
        ends: Sequence[End],
        finished: Sequence[Finished],
        records: FinishBatch,
        intake: SubmitBatch,
    ) -> None:
        """Does what follows from the ends that were recorded, and from what was sent."""
        pairs = zip(ends, finished, strict=True)
        recorded = [end for end, answer in pairs if answer.verdict is Verdict.RECORDED]
        kept = await self._keep(records)
        await self._keep_read([end.reply for end in recorded if isinstance(end, ReadDone)])
        await self.boxes.look([box for id, box in self.boxes.by_id.items() if id not in kept])
        await self._follow(recorded, records)
        by_ends = self._touched()
        self.sent = await self._send(self._batch.sends)
        by_sends = [box for box in self._touched() if box not in by_ends]
        await self.boxes.flush()
        await self.boxes.drop_removed()
        self.ready_by_ends += await wake(self.boxes, by_ends, intake, self._cursors, by_ends=True)
        self.ready += await wake(self.boxes, by_sends, intake, self._cursors)

    async def bring_back(
        self, lost: Sequence[tuple[TurnTaken, Message]], intake: SubmitBatch
    ) -> None:
        """Tells turns of their jobs and groups that were not accepted."""
        senders = [self.boxes.by_id.get(end.actor) for end, _ in lost]
        told = []
        for box, (_, message) in zip(senders, lost, strict=True):
            if box is not None and box.status != STOPPING:
                self.boxes.put(box, message)
                told.append(box)
        if told:
            await self.boxes.flush()
            boxes = [*dict.fromkeys(told)]
            self.ready_by_ends += await wake(self.boxes, boxes, intake, self._cursors, by_ends=True)

    async def submit_groups(
        self, ends: Sequence[End], finished: Sequence[Finished], settling: Settling
    ) -> list[tuple[TurnTaken, Message]]:
        """Submits the groups of turns; answers what these hear of groups that were refused."""
        lost = []
        for end, answer in zip(ends, finished, strict=True):
            if not isinstance(end, TurnTaken) or answer.verdict is not Verdict.RECORDED:
                continue
            for item in end.outbox:
                if isinstance(item, OutboxGroup):
                    refused = await submit_whole(self._tx, item.part, settling)
                    if refused is not None:
                        message = undelivered_group(item.part.head, refused.message)
                        lost.append((end, message))
        return lost

    def _touched(self) -> list[Mailbox]:
        return [box for box in self.boxes.by_id.values() if box.is_touched]

    async def _keep(self, records: FinishBatch) -> set[UUID]:
        """Keeps what the turns left that were taken; answers whose these are: they are known."""
        rows, delayed = [], []
        kept: dict[int, Mailbox] = {}
        for end, worker, now in records.taken:
            if (box := self.boxes.by_id.get(end.actor)) is None:
                continue
            turn, timers = end.turn, pack_timers(set_at(end.turn.timers, now))
            read, version = min(turn.read, LARGEST_INT), min(turn.version, LARGEST_INT)
            rows.append((box.number, end.number, worker, read, version, timers, turn.state))
            for number in turn.parks:
                if number in INT64:
                    await self._tx.fetch(sql.SORT_MAIL, box.number, number, True)
            delayed += [(box.number, one) for one in turn.read_delayed if one in INT64]
            box.knows_job = box.is_touched = True
            kept[box.number] = box
            if not turn.stops:
                self.boxes.note(box, end.number, What.UPDATED, turn.state)
        listed = [
            (box.number, box.name, end.turn.listed)
            for end, _, _ in records.taken
            if end.turn.listed is not None and (box := self.boxes.by_id.get(end.actor))
        ]
        await keep_listed(self._tx, listed)
        if rows:
            columns, numbers = zip(*rows, strict=True), zip(*delayed, strict=True)
            jobs = [end.job for end, _, _ in records.taken]
            named = numbers if delayed else ([], [])
            self.boxes.seen(kept, await self._tx.fetch(sql.KEEP, *columns, *named, jobs))
        return {box.id for box in kept.values()}

    async def _keep_read(self, replies: Sequence[Reply]) -> None:
        """Keeps the replies of jobs that read actors, and are gone."""
        if replies:
            packed = [pack_reply(reply) for reply in replies]
            await self._tx.fetch(sql.KEEP_READ, [reply.id for reply in replies], packed)
            self._read = [storable_reply(reply) for reply in replies]

    async def _follow(self, recorded: Sequence[End], records: FinishBatch) -> None:
        """Delivers the outboxes, and pauses and removes actors whose turns say so."""
        turns = [end for end in recorded if isinstance(end, TurnTaken)]
        stopped = [self.boxes.by_id[end.actor] for end in turns if end.turn.stops]
        await self.boxes.read_asks([box.id for box in stopped])
        await self._pause([self.boxes.by_id[end.actor] for end in turns if end.turn.pauses])
        for box in stopped:
            box.status = STOPPING
        for end in recorded:
            if isinstance(end, Succeeded | TurnTaken):
                self._deliver(end, records)
            elif isinstance(end, PutAside) and end.job in self._aside:
                self.boxes.by_id[self._aside[end.job]].is_touched = True
        for box in sorted(stopped, key=attrgetter("name")):
            self.boxes.remove(box)

    async def _pause(self, boxes: Sequence[Mailbox]) -> None:
        """Pauses actors whose turns say so; those that are being stopped stay so."""
        paused = [box for box in boxes if box.status != STOPPING]
        for box in paused:
            box.status = PAUSED
        if paused:
            await self._tx.fetch(sql.SET_STATUS, [box.id for box in paused], PAUSED)

    def _deliver(self, end: Succeeded | TurnTaken, records: FinishBatch) -> None:
        for index, item in enumerate(end.outbox):
            if isinstance(item, OutboxReply):
                self.boxes.answer(item.reply, item.to)
            elif isinstance(item, OutboxMessage) and (refused := self._post(item.message)):
                if isinstance(end, Succeeded):
                    records.refused.append((end, index, refused.message))
                elif (own := self.boxes.by_id[end.actor]).status != STOPPING:
                    self.boxes.put(own, undelivered(item.message, refused.message))

    def _post(self, message: Message) -> Refused | None:
        """Puts a message of a turn or a job into its mailbox; answers why it cannot."""
        if why := unstorable_message(message):
            return message_not_accepted(message, why)
        box = self.boxes.find((message.type, message.key))
        if box is None:
            return nobody(message)
        self.boxes.put(box, message)
        return None

    # from outside

    async def _send(self, messages: Sequence[Message]) -> list[Sent | Refused]:
        """Puts messages into their mailboxes that were not there before; answers item by item."""
        answers: dict[UUID, Sent | Refused] = {}
        found: dict[UUID, tuple[Message, Mailbox]] = {}
        missing: dict[UUID, Message] = {}
        for message in messages:
            if message.id in answers or message.id in found or message.id in missing:
                continue
            box = self.boxes.find((message.type, message.key))
            if why := unstorable_message(message):
                answers[message.id] = message_not_accepted(message, why)
            elif box is None or message.actor not in (None, box.id):
                missing[message.id] = message
            else:
                found[message.id] = message, box
        answers |= await self._receive(found)
        answers |= await self._miss(missing)
        return told_once(messages, answers)

    async def _receive(
        self, found: dict[UUID, tuple[Message, Mailbox]]
    ) -> dict[UUID, Sent | Refused]:
        """Takes the messages in whose ids are new, as far as their mailboxes have room."""
        if not found:
            return {}
        actors = [box.number for _, box in found.values()]
        asks = [is_from_outside(message.reply_to) for message, _ in found.values()]
        kept = [message.actor is not None for message, _ in found.values()]
        rows = await self._tx.fetch(sql.RECEIVE, list(found), actors, asks, kept)
        new = {row["id"] for row in rows}
        if len(new) < len(found):
            self._tx.rest_on_found()
        room = await self._room([box for id, (_, box) in found.items() if id in new])
        answers: dict[UUID, Sent | Refused] = {
            id: Sent(id, existing=message.actor is not None and id not in new)
            for id, (message, _) in found.items()
        }
        full = []
        for id, (message, box) in found.items():
            if id not in new:
                continue
            if room[box.number] > 0:
                room[box.number] -= 1
                self.boxes.put(box, message)
            else:
                full.append(id)
                answers[id] = mailbox_full(message, self._batch.max_mailbox)
        if full:
            await self._tx.fetch(sql.FORGET_RECEIPTS, full)
        return answers

    async def _room(self, receiving: Sequence[Mailbox]) -> dict[int, int]:
        """How many messages each mailbox takes. It is counted only where it may be too few.

        The numbers of messages give a bound, unless some are delayed or parked.
        """
        wanted = Counter(box.number for box in receiving)
        boxes = {box.number: box for box in receiving}
        room, most = {}, self._batch.max_mailbox
        for number, box in boxes.items():
            if not box.has_late:
                room[number] = most - (box.last - box.read_up_to)
        unsure = [box for number, box in boxes.items() if room.get(number, 0) < wanted[number]]
        if unsure:
            read = [box.read_up_to for box in unsure]
            rows = await self._tx.fetch(sql.UNREAD, [box.number for box in unsure], read)
            for row in rows:
                room[row["actor"]] = most - row["n"] - boxes[row["actor"]].posted
        return room

    async def _miss(self, missing: dict[UUID, Message]) -> dict[UUID, Sent | Refused]:
        """Answers messages to nobody; those that were sent before, when there was somebody, are."""
        if not missing:
            return {}
        self._tx.rest_on_found()
        sent = {row["id"] for row in await self._tx.fetch(sql.RECEIVED, list(missing))}
        return {id: Sent(id) if id in sent else nobody(message) for id, message in missing.items()}


def _receivers(end: End) -> Iterable[Name]:
    """The actors that get something of an end's outbox."""
    if not isinstance(end, Succeeded | TurnTaken):
        return
    for item in end.outbox:
        if isinstance(item, OutboxMessage):
            yield item.message.type, item.message.key
        elif isinstance(item, OutboxReply) and item.to.type:
            yield item.to.type, item.to.key


def _is_sound(name: Name) -> bool:
    return all(clean(text) == text for text in name)
