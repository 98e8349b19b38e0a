"""Messages that applications send to actors in their own transactions, on PostgreSQL.

Theory. An application's transaction may stay open for hours, so it locks no actor: it inserts a row
of its own (`enqueue.enqueue_sends`). Once it has committed, a dispatcher moves the row into the
mailbox (`deliver_sends`): one transaction removes the row and adds the message, so that it arrives
exactly once.

*Order.* Only one dispatcher at a time delivers, and by number. Numbers are given by the inserts.
So messages of one transaction arrive in their order, and those of a transaction that began after
another had committed arrive after its messages. Of two that overlap, either may be first.

A message to an actor that is not there is kept, with the reason: nobody waits for an answer. It can
be delivered again, or dropped. After `UNDELIVERED_S` it is forgotten.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from uuid import UUID

import asyncpg

from longshore.core.turns import MICROS
from longshore.model.actor import Delivered, Message, UndeliveredSend
from longshore.model.batch import BATCH_BYTES
from longshore.ports import Hint
from longshore.store.actor_rows import UNDELIVERED_S, nobody
from longshore.store.postgres import actors_sql
from longshore.store.postgres import deliveries_sql as sql
from longshore.store.postgres.actors import PostgresActors
from longshore.store.postgres.connections import Transaction
from longshore.store.postgres.mailboxes import Mailbox, Mailboxes
from longshore.store.rows import LARGEST_INT

_Found = Sequence[tuple[asyncpg.Record, Message, Mailbox]]

NOTHING: Final = Delivered()


class PostgresDeliveries(PostgresActors):
    """The verbs that deliver what applications sent."""

    async def deliver_sends(self, most: int = 1000) -> Delivered:
        """Puts messages of committed transactions into their mailboxes, in their order."""
        if not await self._reading.fetch(sql.FIRST_SEND):
            return NOTHING
        delivered = await self._keeping.run(lambda tx: self._deliver(tx, most))
        if delivered.count:
            self._sender.tell(Hint.WORK)
        return delivered

    async def _deliver(self, tx: Transaction, most: int) -> Delivered:
        [row] = await tx.fetch(sql.ALONE)
        if not row["alone"]:
            return NOTHING
        rows = await tx.fetch(sql.SENDS, most, BATCH_BYTES)
        boxes = Mailboxes(tx)
        await boxes.hold({(row["type"], row["key"]) for row in rows})
        await boxes.look()
        found = [(row, _message(row)) for row in rows]
        there = [(row, one, box) for row, one in found if (box := boxes.find((one.type, one.key)))]
        await self._post_all(boxes, there)
        gone = [_refused(row, one) for row, one in found if not boxes.find((one.type, one.key))]
        await tx.fetch(sql.DELIVERED, [row["id"] for row, _, _ in there])
        await tx.fetch(sql.REFUSED, [one.id for one in gone], [one.why for one in gone])
        # It may have taken fewer for their size; whether there are more is seen the next time.
        return Delivered(len(there), tuple(gone), more=bool(rows))

    async def _post_all(self, boxes: Mailboxes, found: _Found) -> None:
        """Puts those into their mailboxes that were not there before: by then they are known."""
        ids, actors = [one.id for _, one, _ in found], [box.number for _, _, box in found]
        neither = [False] * len(ids)  # asks, nor callbacks, whose ids are kept
        rows = await boxes.tx.fetch(actors_sql.RECEIVE, ids, actors, neither, neither)
        new = {row["id"] for row in rows}
        for _, message, box in found:
            if message.id in new:
                boxes.put(box, message)
        await boxes.flush()
        await self._wake(boxes)

    async def undelivered_sends(self, most: int = 100) -> list[UndeliveredSend]:
        """The first messages of applications that could not be delivered, the oldest first."""
        bound = min(max(0, most), LARGEST_INT)
        rows = await self._reading.fetch(sql.UNDELIVERED, bound)
        return [UndeliveredSend(*row) for row in rows]

    async def sort_undelivered(self, id: UUID, *, again: bool) -> bool:
        """Has such a message delivered again, or drops it; whether it was there."""
        rows = await self._keeping.fetch(sql.AGAIN if again else sql.DROP, id)
        if rows and again:
            self._sender.tell(Hint.SENDS)
        return bool(rows)

    async def _forget_undelivered(self, most: int) -> None:
        await self._keeping.fetch(sql.FORGET_REFUSED, UNDELIVERED_S, most)


def _message(row: asyncpg.Record) -> Message:
    """A message as it was sent. What is left of its delay counts from now on."""
    due_at = row["due_at"]
    delay_s = None if due_at is None else max(0, due_at - row["now"]) / MICROS
    return Message(row["id"], row["type"], row["key"], row["name"], row["args"], delay_s or None)


def _refused(row: asyncpg.Record, message: Message) -> UndeliveredSend:
    what = message.id, message.type, message.key, message.name, message.args
    return UndeliveredSend(*what, row["at"], row["at"], nobody(message).message)
