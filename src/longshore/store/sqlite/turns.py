"""Turns of actors on SQLite, within the pump: what they leave, and what outboxes send to actors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from typing import Final, NamedTuple
from uuid import UUID

from msgspec import Struct, structs

from longshore.core import effects
from longshore.core.histories import What, history_job
from longshore.core.turns import set_at
from longshore.model.actor import TURNS_KEPT, Message, Reply, Sent
from longshore.model.attempt import Attempt
from longshore.model.batch import Batch
from longshore.model.ends import Succeeded, TurnTaken
from longshore.model.job import Ended, Finished, JobState, Refused, Submission, Verdict
from longshore.model.reports import OutboxMessage, OutboxReply
from longshore.store import actor_rows
from longshore.store.rows import INT64, LARGEST_INT
from longshore.store.sqlite.listed_fields import keep_listed
from longshore.store.sqlite.mailing import RECEIVE, Mailing
from longshore.store.sqlite.sql import Bulk, Lookup, Row
from longshore.store.sqlite.submit import accept
from longshore.store.sqlite.transaction import Transaction
from longshore.store.sqlite.waking import (
    LAST_NUMBER,
    LAST_TURN,
    PAUSED,
    STOPPING,
    TurnSlots,
    drop_jobs,
    numbered,
    wake,
)


class _Running(Struct, array_like=True):
    """A turn's job, and its actor."""

    place: int
    job: int
    lane: int
    state: JobState
    token: int
    worker: str
    actor: int
    hex_id: str
    type: str
    key: str
    hex_terms: str
    last_turn: int
    read: int
    last_number: int


class Sender(NamedTuple):
    """Who sends what is in an outbox: a job, or an actor by its type and key."""

    end: Succeeded | TurnTaken
    job: int
    actor: tuple[str, str] | None = None


_RUNNING: Final = Lookup(
    f"""SELECT json_group_array(json_array(v.column1, job.number, job.lane, job.state, job.token,
        hex(job.worker), a.number, hex(a.id), a.type, a.key, hex(a.terms), t.n, t.read_up_to,
        {LAST_NUMBER}))
    FROM {{rows}} AS v CROSS JOIN job ON job.id = v.column2
    CROSS JOIN actor AS a ON a.number = job.actor_id CROSS JOIN turn AS t ON {LAST_TURN}""",
    2,
    _Running,
)
INSERT_TURNS: Final = Bulk(
    """INSERT INTO turn (actor, n, at, worker, read_up_to, version, starts, timers, state)
    SELECT * FROM {rows} WHERE column1 IS NOT NULL""",
    9,
)
FORGET_TURNS: Final = Bulk(
    """DELETE FROM turn WHERE rowid IN (SELECT t.rowid FROM {rows} AS v
    CROSS JOIN turn AS t ON t.actor = v.column1 AND t.n <= v.column2)""",
    2,
)
_READ: Final = Bulk(
    """DELETE FROM message WHERE rowid IN (SELECT m.rowid FROM {rows} AS v
    CROSS JOIN message AS m INDEXED BY message_unread
    ON m.actor = v.column1 AND m.number <= v.column2 WHERE m.due_at IS NULL)""",
    2,
)
_READ_DELAYED: Final = Bulk(
    """DELETE FROM message WHERE rowid IN (SELECT m.rowid FROM {rows} AS v
    CROSS JOIN message AS m INDEXED BY message_number
    ON m.actor = v.column1 AND m.number = v.column2 WHERE m.due_at < v.column3)""",
    3,
)
_PARK: Final = Bulk(
    """UPDATE message SET due_at = v.column3
    FROM {rows} AS v WHERE message.actor = v.column1 AND message.number = v.column2""",
    3,
)
_SET_STATUS: Final = Bulk(
    """UPDATE actor SET status = v.column2
    FROM {rows} AS v WHERE actor.number = v.column1 AND actor.status <> 'stopping'""",
    2,
)
_ACTORS_OF: Final = Lookup(
    """SELECT json_group_array(job.actor_id) FROM {rows} AS v
    CROSS JOIN job ON job.number = v.column1 WHERE job.actor_id IS NOT NULL""",
    1,
    int,
)


class Turns:
    """The turns that end in one transaction, and all mail of it."""

    def __init__(self, tx: Transaction) -> None:
        self.ended: list[Ended] = []
        self._tx = tx
        self._touched: set[int] = set()
        self._stopped: list[int] = []
        self._history: list[Submission] = []
        """The jobs that hear of these turns."""
        self._read: dict[int, tuple[int, Reply]] = {}
        """Jobs that read actors, their lanes and replies."""

    # what turns leave

    def record(self, ends: Sequence[TurnTaken]) -> tuple[list[Finished], list[Sender | None]]:
        """Records the turns that still own their jobs; answers also what they may send."""
        keys: list[Row] = [(place, end.job.bytes) for place, end in enumerate(ends)]
        running = {one.place: one for one in _RUNNING.find(self._tx.connection, keys)}
        taken: dict[int, tuple[TurnTaken, _Running]] = {}
        answers, senders = list[Finished](), list[Sender | None]()
        for place, end in enumerate(ends):
            row = running.get(place)
            verdict = Verdict.STALE if row is None or row.job in taken else _judge(row, end)
            if row is None or verdict is not Verdict.RECORDED:
                state = row.state if row and verdict is Verdict.ALREADY_RECORDED else None
                answers.append(Finished(end.job, end.token, verdict, state))
                senders.append(None)
                continue
            taken[row.job] = end, row
            answers.append(Finished(end.job, end.token, verdict, JobState.SUCCEEDED))
            senders.append(Sender(end, row.job, (row.type, row.key)))
            self.ended.append(Ended(end.job, JobState.SUCCEEDED))
        self._write(list(taken.values()))
        return answers, senders

    def _write(self, taken: Sequence[tuple[TurnTaken, _Running]]) -> None:
        drop_jobs(self._tx, [(row.job, row.lane, row.state) for _, row in taken])
        turns, read, old = list[Row](), list[Row](), list[Row]()
        delayed, statuses, parked = list[Row](), list[Row](), list[Row]()
        for end, row in taken:
            turn = end.turn
            up_to = min(max(turn.read, row.read), row.last_number)
            timers = actor_rows.pack_timers(set_at(turn.timers, self._tx.now))
            by = bytes.fromhex(row.worker)
            left = up_to, min(turn.version, LARGEST_INT), 0, timers, turn.state
            turns.append((row.actor, end.number, self._tx.now, by, *left))
            read.append((row.actor, up_to))
            named = [number for number in turn.read_delayed if number in INT64]
            delayed += [(row.actor, number, actor_rows.NEVER) for number in named]
            asides = [number for number in turn.parks if number in INT64]
            parked += [(row.actor, number, actor_rows.NEVER) for number in asides]
            if end.number >= TURNS_KEPT:
                old.append((row.actor, end.number - TURNS_KEPT))
            if turn.pauses or turn.stops:
                statuses.append((row.actor, STOPPING if turn.stops else PAUSED))
            if turn.stops:
                self._stopped.append(row.actor)
            else:
                self._note(row, end)
            self._touched.add(row.actor)
        connection = self._tx.connection
        INSERT_TURNS.run(connection, turns)
        FORGET_TURNS.run(connection, old)
        _PARK.run(connection, parked)
        _READ.run(connection, read)
        _READ_DELAYED.run(connection, delayed)
        _SET_STATUS.run(connection, statuses)
        keep_listed(
            self._tx,
            [
                (row.actor, (row.type, row.key), end.turn.listed)
                for end, row in taken
                if end.turn.listed is not None
            ],
        )

    def _note(self, row: _Running, end: TurnTaken) -> None:
        terms = actor_rows.unpack_terms(bytes.fromhex(row.hex_terms))
        name, turn = (row.type, row.key), end.turn
        job = history_job(terms, end.actor, name, end.number, What.UPDATED, turn.state)
        if job is not None:
            self._history.append(job)

    def put_aside(self, jobs: Sequence[int]) -> None:
        """The turns with these numbers were put aside. Their actors may have been resumed."""
        self._touched.update(_ACTORS_OF.find(self._tx.connection, [(job,) for job in jobs]))

    def read_done(self, job: int, lane: int, reply: Reply) -> None:
        """A job that read an actor has ended, and is to go."""
        self._read[job] = lane, actor_rows.storable_reply(reply)

    def drop_read(self) -> None:
        """Removes the jobs that read actors and have ended; keeps their replies."""
        ended = [(job, lane, JobState.SUCCEEDED) for job, (lane, _) in self._read.items()]
        drop_jobs(self._tx, ended)
        rows: list[Row] = [
            (reply.id.bytes, self._tx.now, 0, actor_rows.pack_reply(reply))
            for _, reply in self._read.values()
        ]
        RECEIVE.run(self._tx.connection, rows)

    # what is sent

    def post(
        self,
        batch: Batch,
        senders: Sequence[Sender],
        refused_jobs: Sequence[tuple[Sender, Message]],
        slots: TurnSlots,
    ) -> Posted:
        """Delivers what ends send, then what comes from outside; wakes whoever got something."""
        mailing = Mailing(self._tx)
        _look_up(mailing, [*senders, *(sender for sender, _ in refused_jobs)])
        notes = [*_deliver(mailing, senders)]
        for sender, lost in refused_jobs:
            _return(mailing, sender, lost)
        for actor in numbered(self._tx, self._stopped):
            mailing.remove(actor)
        first = self._touched | mailing.touched
        sent = mailing.take_in(batch.sends, batch.max_mailbox) if batch.sends else []
        mailing.close()
        woken = wake(self._tx, first | mailing.touched, first, slots)
        if history := [*self._history, *mailing.history]:
            woken.by_ends.update(accept(self._tx, history)[1])
        replies = [*mailing.replies, *(reply for _, reply in self._read.values())]
        by_ends, by_sends = woken.by_ends, woken.by_sends
        return Posted(sent, replies, by_ends, by_sends, notes, woken.started)

    @property
    def has_work(self) -> bool:
        """Whether a turn or a read ended, or a turn was put aside."""
        return bool(self._touched or self._read)


class Posted(NamedTuple):
    """What became of the mail of a transaction.

    `notes` says which items of jobs' outboxes were not accepted, and why; `started` has the turns
    that began.
    """

    sent: list[Sent | Refused]
    replies: list[Reply]
    by_ends: Counter[int]
    by_sends: Counter[int]
    notes: Collection[tuple[Sender, int, str]]
    started: Sequence[Attempt] = ()


NOTHING_POSTED: Final = Posted([], [], Counter(), Counter(), ())


def _judge(row: _Running, end: TurnTaken) -> Verdict:
    owner = UUID(hex=row.worker) if row.worker else None
    is_next = UUID(hex=row.hex_id) == end.actor and row.last_turn + 1 == end.number
    return effects.judge(row.state, row.token, owner, end) if is_next else Verdict.STALE


def has_mail(end: Succeeded | TurnTaken) -> bool:
    """Whether an attempt sends to actors."""
    return any(isinstance(item, OutboxMessage | OutboxReply) for item in end.outbox)


def _look_up(mailing: Mailing, senders: Sequence[Sender]) -> None:
    names = [sender.actor for sender in senders if sender.actor is not None]
    asks = []
    for sender in senders:
        for item in sender.end.outbox:
            if isinstance(item, OutboxMessage):
                names.append((item.message.type, item.message.key))
            elif isinstance(item, OutboxReply):
                if actor_rows.is_from_outside(item.to):
                    asks.append(item.reply.id)
                else:
                    names.append((item.to.type, item.to.key))
    mailing.look_up(names)
    mailing.look_up_asks(asks)


def _deliver(mailing: Mailing, senders: Sequence[Sender]) -> Iterator[tuple[Sender, int, str]]:
    """Delivers all outboxes. What is not accepted comes back to a turn, and is noted for a job."""
    for sender in senders:
        for index, item in enumerate(sender.end.outbox):
            if isinstance(item, OutboxReply):
                mailing.reply(item.reply, item.to)
            elif isinstance(item, OutboxMessage):
                refused = mailing.deliver(item.message)
                if refused is not None and sender.actor is None:
                    yield sender, index, refused.message
                elif refused is not None:
                    _return(mailing, sender, actor_rows.undelivered(item.message, refused.message))


def _return(mailing: Mailing, sender: Sender, lost: Message) -> None:
    """An actor hears of what was not accepted, unless it is about to go."""
    assert sender.actor is not None
    type, key = sender.actor
    mailing.deliver(structs.replace(lost, type=type, key=key))
