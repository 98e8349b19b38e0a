"""The actors that one transaction on PostgreSQL holds, and what goes into their mailboxes.

Theory. `hold` locks the rows of all actors that the transaction may change. `look` reads what their
newest turns left and what waits in their mailboxes. From then on this process knows all that
matters of them: it numbers new messages by itself, and `flush` stores them in one statement.
`next_turns` decides last what becomes of the next turns.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple
from uuid import UUID

import asyncpg

from longshore.core.histories import What, history_job
from longshore.model.actor import Message, Reply, ReplyTo, Timer
from longshore.model.ids import derive_id
from longshore.model.job import Submission
from longshore.store.actor_rows import (
    NEVER,
    due,
    is_from_outside,
    pack_reply,
    pack_reply_to,
    reply_message,
    stopped_reply,
    storable_reply,
    unpack_reply_to,
    unpack_terms,
    unpack_timers,
)
from longshore.store.postgres import actors_sql as sql
from longshore.store.postgres.connections import Again, Transaction
from longshore.store.postgres.prune import DROP
from longshore.store.postgres.states import OWNED_CODES, STOPPING
from longshore.store.rows import moment

Name = tuple[str, str]
"""The type and the key of an actor."""


class Mailbox:
    """One actor whose row is locked. What its turns left is known after a look."""

    def __init__(self, row: asyncpg.Record) -> None:
        self.row = row
        self.number: int = row["number"]
        self.id: UUID = row["id"]
        self.name: Name = (row["type"], row["key"])
        self.status: int = row["status"]
        self.terms: bytes = row["terms"]
        self.turn = -1
        self.version = 1
        self.last_worker: UUID | None = None
        self.starts = False
        self.timers: tuple[Timer, ...] = ()
        self.read_up_to = 0
        self.last = 0
        """The number of its last message, or that which it has read up to."""
        self.has_mail = False
        self.delayed_at: int | None = None
        self.has_late = False
        """Whether it has delayed or parked messages."""
        self.posted = 0
        """How many messages this transaction has put into it."""
        self.is_touched = False
        """Whether its next turn has to be looked at."""
        self.job: asyncpg.Record | None = None
        self.knows_job = False

    @property
    def next_job(self) -> UUID:
        """The id of the job of its next turn."""
        return derive_id(self.id, self.turn + 1)

    @property
    def is_busy(self) -> bool:
        """Whether a worker has its turn."""
        return self.job is not None and self.job["state"] in OWNED_CODES

    def see(self, row: asyncpg.Record) -> None:
        """Takes in a row of `LOOK` or `KEEP`."""
        self.turn, self.version, self.starts = row["n"], row["version"], row["starts"]
        self.last_worker = row["worker"]
        self.timers = unpack_timers(row["timers"])
        self.read_up_to, self.last = row["read_up_to"], row["last"]
        self.has_mail, late = row["has_mail"], row["delayed_at"]
        self.has_late, self.delayed_at = late is not None, None if late == NEVER else late

    def forget_job(self) -> None:
        """Its next turn has no job, or another one than was seen: a turn was taken."""
        self.job, self.knows_job = None, False


class _Posted(NamedTuple):
    """A new message, as it will be stored."""

    box: Mailbox
    number: int
    message: Message
    due_at: int | None


class Mailboxes:
    """The actors that a transaction holds."""

    def __init__(self, tx: Transaction) -> None:
        self.tx = tx
        self.now = 0
        self.by_id: dict[UUID, Mailbox] = {}
        self.replies: dict[UUID, Reply] = {}
        """The replies to asks from outside; only those that counted, after `flush`."""
        self._by_name: dict[Name, Mailbox] = {}
        self._wanted: set[Name] = set()
        self._posted: list[_Posted] = []
        self._asks: dict[UUID, list[tuple[UUID, ReplyTo]]] = {}
        self._removed: list[Mailbox] = []
        self.history: list[Submission] = []
        """The jobs that hear of what happened to the actors; to be submitted with it."""

    # first of all

    async def hold(
        self,
        names: Iterable[Name],
        ids: Iterable[UUID] = (),
        removing: Collection[UUID] = (),
    ) -> None:
        """Locks these actors until the commit, as far as there are any.

        Those that may be removed come with the actors that wait for their replies.
        """
        asks = await self._asks_of(removing)
        names = {*names, *_askers(asks)}
        types, keys = [type for type, _ in names], [key for _, key in names]
        for row in await self.tx.fetch(sql.HOLD, types, keys, [*ids]):
            box = Mailbox(row)
            self.by_id[box.id] = self._by_name[box.name] = box
        self._wanted |= names

    # then

    async def look(self, boxes: Iterable[Mailbox] | None = None) -> None:
        """Reads what the next turns of these actors depend on; of all, if none are given."""
        chosen = self.by_id.values() if boxes is None else boxes
        by_number = {box.number: box for box in chosen}
        self.seen(by_number, await self.tx.fetch(sql.LOOK, list(by_number)) if by_number else [])

    def seen(self, by_number: dict[int, Mailbox], rows: Sequence[asyncpg.Record]) -> None:
        """Takes in what was read of these actors."""
        for row in rows:
            self.now = row["now"]
            by_number[row["actor"]].see(row)

    async def find_jobs(self, boxes: Iterable[Mailbox]) -> None:
        """Reads the jobs of next turns that are not known, without a lock."""
        by_job = {box.next_job: box for box in boxes if not box.knows_job}
        if by_job:
            _take_in(by_job, await self.tx.fetch(sql.JOBS, list(by_job)))

    async def lock_jobs(self, boxes: Iterable[Mailbox]) -> None:
        """Locks the jobs of these actors' next turns, by id; what was seen of them may be old."""
        by_job = {box.next_job: box for box in boxes}
        if by_job:
            _take_in(by_job, await self.tx.fetch(sql.LOCK_JOBS, sorted(by_job)))

    # mail

    def named(self, name: Name) -> Mailbox | None:
        """The actor with this name, even if it is being stopped."""
        return self._by_name.get(name)

    def find(self, name: Name) -> Mailbox | None:
        """The actor that gets messages under this name."""
        box = self._by_name.get(name)
        return None if box is None or box.status == STOPPING else box

    def put(self, box: Mailbox, message: Message) -> None:
        """Puts a message into a mailbox."""
        due_at = due(message, self.now)
        box.last += 1
        box.posted += 1
        box.is_touched = True
        if due_at is None:
            box.has_mail = True
        else:
            box.delayed_at, box.has_late = min(due_at, box.delayed_at or due_at), True
        self._posted.append(_Posted(box, box.last, message, due_at))

    def answer(self, reply: Reply, to: ReplyTo) -> None:
        """Brings a reply to the actor that asked, or to who asked from outside."""
        if is_from_outside(to):
            self.replies.setdefault(reply.id, storable_reply(reply))
        elif (box := self.find((to.type, to.key))) is not None:
            self.put(box, reply_message(reply, to))

    async def flush(self) -> None:
        """Stores the new messages and the replies; finds the jobs of those who got mail."""
        if self._posted:
            boxes = {id(one.box): one.box for one in self._posted}.values()
            by_job = {box.next_job: box for box in boxes if not box.knows_job}
            columns = _message_columns(self._posted)
            _take_in(by_job, await self.tx.fetch(sql.POST_AND_FIND, *columns, list(by_job)))
            self._posted.clear()
        if self.replies:
            packed = [pack_reply(reply) for reply in self.replies.values()]
            rows = await self.tx.fetch(sql.REPLY, list(self.replies), packed)
            self.replies = {row["id"]: self.replies[row["id"]] for row in rows}

    def note(self, box: Mailbox, turn: int, what: What, state: bytes) -> None:
        """Something happened to an actor, which left this state."""
        job = history_job(unpack_terms(box.terms), box.id, box.name, turn, what, state)
        if job is not None:
            self.history.append(job)

    # stopping

    async def read_asks(self, actors: Collection[UUID]) -> None:
        """Reads who waits for replies of these actors, which are held and will be removed."""
        self._asks = await self._asks_of(actors)
        if not _askers(self._asks) <= self._wanted:
            raise Again("another actor asked one that is being stopped")

    async def _asks_of(self, actors: Collection[UUID]) -> dict[UUID, list[tuple[UUID, ReplyTo]]]:
        rows = await self.tx.fetch(sql.ASKS, list(actors)) if actors else []
        asks: dict[UUID, list[tuple[UUID, ReplyTo]]] = {}
        for row in rows:
            to = unpack_reply_to(row["reply_to"])
            if to is None or not is_from_outside(to):
                asks.setdefault(row["actor"], []).append((row["id"], to or ReplyTo()))
        return asks

    def remove(self, box: Mailbox) -> None:
        """Takes an actor away that gets no more mail; those who asked it hear of that."""
        del self.by_id[box.id], self._by_name[box.name]
        self._removed.append(box)
        for id, to in self._asks.get(box.id, ()):
            self.answer(stopped_reply(id, *box.name), to)

    async def drop_removed(self) -> None:
        """Removes the rows of actors that were taken away, and the locked jobs of their turns."""
        if not self._removed:
            return
        await self._note_removed()
        await drop_jobs(self.tx, [box.job for box in self._removed if box.job is not None])
        ids, numbers = [box.id for box in self._removed], [box.number for box in self._removed]
        await self.tx.fetch(sql.REMOVE, ids, numbers)

    async def _note_removed(self) -> None:
        heard = [box for box in self._removed if unpack_terms(box.terms).history is not None]
        for box in heard:
            [last] = await self.tx.fetch(sql.LAST, box.number)
            self.note(box, last["n"], What.REMOVED, last["state"])


def _take_in(by_job: dict[UUID, Mailbox], rows: Sequence[asyncpg.Record]) -> None:
    """Notes which of these actors have a job for their next turn."""
    for box in by_job.values():
        box.job, box.knows_job = None, True
    for row in rows:
        by_job[row["id"]].job = row


async def drop_jobs(tx: Transaction, rows: Sequence[asyncpg.Record]) -> None:
    """Removes these jobs, which are locked, with all that belongs to them."""
    if rows:
        await tx.fetch(DROP, [row["id"] for row in rows], [row["number"] for row in rows])
    for row in rows:
        tx.count(row["lane"], row["state"], None)


def _askers(asks: dict[UUID, list[tuple[UUID, ReplyTo]]]) -> set[Name]:
    """The actors among those who asked."""
    return {(to.type, to.key) for some in asks.values() for _, to in some if to.type}


def _message_columns(posted: Sequence[_Posted]) -> list[list[object]]:
    """What `POST` takes."""
    return [
        [one.box.number for one in posted],
        [one.number for one in posted],
        [one.message.id for one in posted],
        [one.message.name for one in posted],
        [one.message.args for one in posted],
        [None if one.due_at is None else moment(one.due_at) for one in posted],
        [pack_reply_to(one.message.reply_to) for one in posted],
    ]
