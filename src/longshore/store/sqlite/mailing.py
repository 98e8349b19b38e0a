"""Messages to actors on SQLite, and the replies to them.

A `Mailing` is the mail of one transaction. It looks up all receivers in one statement, and numbers
and writes all messages in one more. Nothing is in a mailbox before `close`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final
from uuid import UUID

from msgspec import Struct

from longshore.core.histories import What, history_job
from longshore.model.actor import Message, Reply, ReplyTo, Sent
from longshore.model.job import Refused, Submission
from longshore.store import actor_rows
from longshore.store.sqlite.sql import Bulk, Lookup, Row
from longshore.store.sqlite.transaction import Transaction
from longshore.store.sqlite.waking import LAST_NUMBER, LAST_TURN, STOPPING, ActorRow, drop_job

_Name = tuple[str, str]


class _Box(Struct, array_like=True):
    """A mailbox: whose it is, and the highest number in it."""

    place: int
    actor: int
    status: str
    last: int
    hex_id: str


_BOXES: Final = Lookup(
    f"""SELECT json_group_array(json_array(v.column1, a.number, a.status, {LAST_NUMBER}, hex(a.id)))
    FROM {{rows}} AS v CROSS JOIN actor AS a ON a.type = v.column2 AND a.key = v.column3
    CROSS JOIN turn AS t ON {LAST_TURN}""",
    3,
    _Box,
)
_SIZES: Final = Lookup(
    """SELECT json_group_array(json_array(v.column1,
        (SELECT count(*) FROM message AS m WHERE m.actor = v.column1)))
    FROM {rows} AS v WHERE v.column1 IS NOT NULL""",
    1,
    tuple[int, int],
)
_PUT: Final = Bulk(
    """INSERT INTO message (actor, number, at, due_at, id, name, reply_to, args)
    SELECT * FROM {rows} WHERE column1 IS NOT NULL""",
    8,
)
_KNOWN: Final = Lookup(
    """SELECT json_group_array(hex(r.id))
    FROM {rows} AS v CROSS JOIN receipt AS r ON r.id = v.column1""",
    1,
    str,
)
RECEIVE: Final = Bulk(
    """INSERT OR IGNORE INTO receipt (id, at, actor, reply)
    SELECT * FROM {rows} WHERE column1 IS NOT NULL""",
    4,
)
_ASKED: Final = Lookup(
    """SELECT json_group_array(hex(r.id))
    FROM {rows} AS v CROSS JOIN receipt AS r ON r.id = v.column1 WHERE r.reply = x''""",
    1,
    str,
)
_REPLY: Final = Bulk(
    """UPDATE receipt SET at = ?1, reply = v.column2
    FROM {rows} AS v WHERE receipt.id = v.column1""",
    2,
)
_ASKS_FROM_OUTSIDE: Final = """
    SELECT id FROM receipt INDEXED BY receipt_asked WHERE reply = x'' AND actor = ? ORDER BY id"""
_FORGET_KEPT: Final = f"""
    DELETE FROM receipt INDEXED BY receipt_kept WHERE actor = ? AND at = {actor_rows.NEVER}"""
_ASKS: Final = """
    SELECT id, reply_to FROM message WHERE actor = ? AND reply_to IS NOT NULL ORDER BY number"""


class Mailing:
    """What is sent in one transaction. `touched` has the actors that got something."""

    def __init__(self, tx: Transaction) -> None:
        self.touched: set[int] = set()
        self.replies: list[Reply] = []
        self.history: list[Submission] = []
        """The jobs that hear of actors that were removed."""
        self._tx = tx
        self._boxes: dict[_Name, _Box | None] = {}
        self._last: dict[int, int] = {}
        self._sizes: dict[int, int] = {}
        self._messages: list[Row] = []
        self._receipts: list[Row] = []
        self._waiting: set[UUID] = set()
        """Asks from outside that wait for a reply."""

    # looking up

    def look_up(self, names: Iterable[_Name]) -> None:
        """Finds the mailboxes of these actors, as far as they are not known yet."""
        new = [name for name in dict.fromkeys(names) if name not in self._boxes]
        sound = [name for name in new if all(actor_rows.is_storable(text) for text in name)]
        keys: list[Row] = [(place, *name) for place, name in enumerate(sound)]
        self._boxes |= dict.fromkeys(new)
        for box in _BOXES.find(self._tx.connection, keys):
            if box.status != STOPPING:
                self._boxes[sound[box.place]] = box
                self._last.setdefault(box.actor, box.last)

    def look_up_asks(self, ids: Iterable[UUID]) -> None:
        """Finds which of these asks from outside wait for a reply."""
        keys: list[Row] = [(id.bytes,) for id in dict.fromkeys(ids)]
        self._waiting |= {UUID(hex=one) for one in _ASKED.find(self._tx.connection, keys)}

    # sending

    def deliver(self, message: Message) -> Refused | None:
        """Puts a message into the mailbox of its receiver, who was looked up."""
        if (why := actor_rows.unstorable_message(message)) is not None:
            return actor_rows.message_not_accepted(message, why)
        box = self._boxes[message.type, message.key]
        if box is None:
            return actor_rows.nobody(message)
        if message.actor is not None and UUID(hex=box.hex_id) != message.actor:
            return actor_rows.nobody(message)
        self._put(box.actor, message)
        return None

    def _put(self, actor: int, message: Message) -> None:
        self._last[actor] = number = self._last[actor] + 1
        due, to = actor_rows.due(message, self._tx.now), actor_rows.pack_reply_to(message.reply_to)
        which = actor, number, self._tx.now, due, message.id.bytes
        self._messages.append((*which, message.name, to, message.args))
        self.touched.add(actor)

    def reply(self, reply: Reply, to: ReplyTo) -> None:
        """Brings a reply to who asked, who was looked up. The first one counts."""
        if not actor_rows.is_from_outside(to):
            self.deliver(actor_rows.reply_message(reply, to))
        elif reply.id in self._waiting:
            self._waiting.discard(reply.id)
            self.replies.append(actor_rows.storable_reply(reply))

    def take_in(self, messages: Sequence[Message], most: int) -> list[Sent | Refused]:
        """Messages from outside, of which repeats are dropped."""
        keys: list[Row] = [(message.id.bytes,) for message in messages]
        known = {UUID(hex=one) for one in _KNOWN.find(self._tx.connection, keys)}
        self.look_up((message.type, message.key) for message in messages)
        self._look_up_sizes(messages)
        answers: list[Sent | Refused] = []
        for message in messages:
            if message.id in known:
                answers.append(Sent(message.id, existing=message.actor is not None))
                continue
            refused = self._take_in(message, most)
            if refused is None:
                known.add(message.id)
            answers.append(refused or Sent(message.id))
        return answers

    def _look_up_sizes(self, messages: Sequence[Message]) -> None:
        boxes = [self._boxes[message.type, message.key] for message in messages]
        actors: list[Row] = [(one,) for one in {box.actor for box in boxes if box is not None}]
        self._sizes = dict(_SIZES.find(self._tx.connection, actors))
        for actor, *_ in self._messages:
            if actor in self._sizes:
                self._sizes[actor] += 1  # type: ignore[index]

    def _take_in(self, message: Message, most: int) -> Refused | None:
        box = self._boxes[message.type, message.key]
        if box is not None and self._sizes[box.actor] >= most:
            return actor_rows.mailbox_full(message, most)
        refused = self.deliver(message)
        if refused is None and box is not None:
            self._sizes[box.actor] += 1
            wanted = b"" if actor_rows.is_from_outside(message.reply_to) else None
            at = self._tx.now if message.actor is None else actor_rows.NEVER
            self._receipts.append((message.id.bytes, at, box.actor, wanted))
        return refused

    # ending

    def remove(self, actor: ActorRow) -> None:
        """Removes an actor with all that is its own. Who asked it something hears of that."""
        tx, number = self._tx, (actor.number,)
        answered = {reply.id for reply in self.replies}
        open_asks = [UUID(bytes=id) for (id,) in tx.execute(_ASKS_FROM_OUTSIDE, number)]
        asks = [id for id in open_asks if id not in answered]
        found = [
            (UUID(bytes=id), actor_rows.unpack_reply_to(to)) for id, to in tx.execute(_ASKS, number)
        ]
        others = [(id, to) for id, to in found if to and not actor_rows.is_from_outside(to)]
        self._waiting.update(asks)
        self.look_up((to.type, to.key) for _, to in others)
        self._note_removed(actor)
        drop_job(tx, actor)
        for table in ("message", "turn", "listed_field"):
            tx.execute(f"DELETE FROM {table} WHERE actor = ?", number)
        tx.execute(_FORGET_KEPT, number)
        tx.execute("DELETE FROM actor WHERE number = ?", number)
        self._receipts.append((actor.id.bytes, tx.now, actor.number, None))
        self._boxes[actor.type, actor.key] = None
        for id, to in [*((id, ReplyTo()) for id in asks), *others]:
            self.reply(actor_rows.stopped_reply(id, actor.type, actor.key), to)

    def _note_removed(self, actor: ActorRow) -> None:
        if actor.terms.history is None:
            return
        last = "SELECT n, state FROM turn WHERE actor = ? ORDER BY n DESC LIMIT 1"
        turn, state = self._tx.execute(last, (actor.number,)).fetchone()
        name = actor.type, actor.key
        job = history_job(actor.terms, actor.id, name, turn, What.REMOVED, state)
        assert job is not None
        self.history.append(job)

    def close(self) -> None:
        """Writes all of it."""
        connection = self._tx.connection
        _PUT.run(connection, self._messages)
        RECEIVE.run(connection, self._receipts)
        replies: list[Row] = [(one.id.bytes, actor_rows.pack_reply(one)) for one in self.replies]
        _REPLY.run(connection, replies, (self._tx.now,))
        self._messages, self._receipts = [], []
