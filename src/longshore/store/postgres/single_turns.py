"""One message, or one turn, by itself: what an idle fleet has to do, on three ways to the server.

Theory. A batch of many messages and turns takes one statement for each step. For a single one the
ways to the server and back are the cost. So its actor is locked by the message that also begins the
transaction, one statement does all the rest, and the third message commits. The lock must come
first, in a message of its own: a statement sees what committed before it began, so only a statement
after the lock sees what the last holder of the lock left.

To send a message in one statement, the job of the next turn must be described before the actor is
seen: its id follows from the number of the turn. So the pump remembers what the last turns of some
actors left (`KnownActors`). The statement compares. If it finds anything else than an actor of that
turn that sleeps without timers, with an empty mailbox, it does nothing, and the transaction goes on
as any other does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final, NamedTuple
from uuid import UUID

import asyncpg

from longshore.core.turns import set_at, turn_job
from longshore.model.actor import (
    TURNS_KEPT,
    Event,
    EventKind,
    Message,
    Reply,
    Sent,
    TurnInput,
)
from longshore.model.attempt import Attempt
from longshore.model.ends import TurnTaken
from longshore.model.ids import derive_id
from longshore.model.job import Finished, JobState, Verdict
from longshore.model.reports import OutboxReply
from longshore.ports import Batch, BatchResult
from longshore.store.actor_rows import (
    is_from_outside,
    pack_reply,
    pack_reply_to,
    pack_timers,
    storable_reply,
    turn_attempt,
    unpack_terms,
    unpack_timers,
    unstorable_message,
)
from longshore.store.postgres.actors_sql import FIRST_DUE, NEWEST, NOW, SECRET
from longshore.store.postgres.columns import SoundItems, columns, lane_of_item
from longshore.store.postgres.connections import Again, Transaction
from longshore.store.postgres.cursors import ClaimCursors
from longshore.store.postgres.finish import outcomes
from longshore.store.postgres.mailboxes import Mailbox, Mailboxes, Name
from longshore.store.postgres.next_turns import wake
from longshore.store.postgres.sql import TALLIED, inserted
from longshore.store.postgres.states import ACTIVE, OWNED, READY, RUNNING
from longshore.store.postgres.submit import SubmitBatch, TurnSlots
from longshore.store.rows import INT64, LARGEST_INT

MOST_KNOWN: Final = 1_000
"""Of so many actors the pump remembers what their last turns left."""
FEW: Final = 8
"""Only what batches of so few actors show is remembered: others come from a busy fleet."""

_FOUND: Final = f"""found AS MATERIALIZED (
    SELECT t.*
    FROM (SELECT number FROM longshore.actor WHERE id = $23::uuid AND status = {ACTIVE}) AS a
    CROSS JOIN LATERAL (
        SELECT n, read_up_to, starts, timers, state FROM longshore.turn
        WHERE actor = a.number ORDER BY actor DESC, n DESC LIMIT 1
    ) AS t
    WHERE a.number = $22::bigint AND t.n = $24::bigint AND NOT t.starts
        AND NOT EXISTS (
            SELECT FROM longshore.message WHERE actor = $22::bigint AND number > t.read_up_to
        )
        AND NOT EXISTS (
            SELECT FROM longshore.message WHERE actor = $22::bigint AND due_at IS NOT NULL
        )
        AND NOT EXISTS (SELECT FROM longshore.job WHERE id = $1::uuid)
),
received AS (
    INSERT INTO longshore.receipt (id, actor, is_ask, at)
    SELECT $25::uuid, $22::bigint, $29::boolean, statement_timestamp() FROM found
    ON CONFLICT DO NOTHING
    RETURNING id
),
posted AS (
    INSERT INTO longshore.message (actor, number, id, name, args, at, reply_to)
    SELECT $22::bigint, found.read_up_to + 1, received.id, $26::text, $27::bytea,
        statement_timestamp(), $28::bytea
    FROM found CROSS JOIN received
),"""
SEND_ONE: Final = f"""{
    inserted(
        started=True, one=True, turns=True, first=_FOUND, guard="EXISTS (SELECT FROM received)"
    )
},{TALLIED}
SELECT new.id, new.number, new.state, new.lane, new.token, found.read_up_to + 1 AS message,
    found.timers, found.state AS actor_state, {NOW} AS now, ({SECRET}) AS secret
FROM found CROSS JOIN received LEFT JOIN new ON true
"""
"""Puts a message into the empty mailbox of an actor that is locked, and starts its next turn."""

TAKE_ONE: Final = f"""
WITH gone AS (
    DELETE FROM longshore.job AS j
    USING (
        SELECT number AS actor FROM longshore.actor
        WHERE id = $1::uuid AND status = {ACTIVE} OFFSET 0
    ) AS a
    WHERE j.id = $2::uuid AND j.token = $3::bigint
        AND CASE WHEN j.state IN ({OWNED}) THEN j.worker = coalesce($4::uuid, j.worker) END
    RETURNING a.actor, j.state, j.lane, j.number, j.worker
),
numbers AS (
    DELETE FROM longshore.job_number WHERE number = ANY (ARRAY(SELECT number FROM gone))
),
logs AS (
    DELETE FROM longshore.log WHERE job = $2::uuid AND EXISTS (SELECT FROM gone)
),
tallied AS (
    INSERT INTO longshore.tally (lane, state, delta) SELECT lane, state, -1 FROM gone
),
before AS MATERIALIZED (
    SELECT g.actor, g.worker, g.state, g.lane, t.read_up_to AS read_before, l.last,
        least(greatest($6::bigint, t.read_up_to), l.last) AS read_now
    FROM gone AS g
    CROSS JOIN LATERAL ({NEWEST.format(actor="g.actor")}) AS t
    CROSS JOIN LATERAL (
        SELECT coalesce((
            SELECT number FROM longshore.message
            WHERE actor = g.actor AND number > t.read_up_to
            ORDER BY actor DESC, number DESC LIMIT 1
        ), t.read_up_to) AS last
    ) AS l
),
new AS (
    INSERT INTO longshore.turn (
        actor, n, at, worker, read_up_to, version, starts, timers, state
    )
    SELECT actor, $5::bigint, statement_timestamp(), worker, read_now, $7::bigint, false,
        $8::bytea, $9::bytea
    FROM before
),
old AS (
    DELETE FROM longshore.turn AS t
    USING (
        SELECT l.tid FROM before AS b
        CROSS JOIN LATERAL (
            SELECT ctid AS tid FROM longshore.turn
            WHERE actor = b.actor AND n = $5::bigint - {TURNS_KEPT} OFFSET 0
        ) AS l
        OFFSET 0
    ) AS o
    WHERE t.ctid = o.tid
),
mail AS (
    DELETE FROM longshore.message AS m
    USING (
        SELECT l.tid FROM before AS b
        CROSS JOIN LATERAL (
            SELECT ctid AS tid FROM longshore.message
            WHERE actor = b.actor AND number > b.read_before AND number <= $6::bigint
                AND CASE WHEN due_at IS NULL THEN true END
            OFFSET 0
        ) AS l
        OFFSET 0
    ) AS o
    WHERE m.ctid = o.tid
),
answered AS (
    UPDATE longshore.receipt AS r
    SET reply = n.reply, at = statement_timestamp()
    FROM (
        SELECT i.reply, l.tid FROM (
            SELECT * FROM unnest($10::uuid[], $11::bytea[]) AS i (id, reply)
            WHERE EXISTS (SELECT FROM gone) ORDER BY i.id OFFSET 0
        ) AS i
        CROSS JOIN LATERAL (
            SELECT ctid AS tid FROM longshore.receipt
            WHERE id = i.id AND CASE WHEN is_ask THEN reply IS NULL END OFFSET 0
        ) AS l
        OFFSET 0
    ) AS n
    WHERE r.ctid = n.tid AND r.reply IS NULL
    RETURNING r.id
)
SELECT i.actor, $5::bigint AS n, i.worker, i.read_now AS read_up_to, $7::bigint AS version,
    false AS starts, $8::bytea AS timers, {NOW} AS now, i.last, i.state AS was, i.lane,
    EXISTS (
        SELECT FROM longshore.message
        WHERE actor = i.actor AND number > i.read_now AND CASE WHEN due_at IS NULL THEN true END
    ) AS has_mail,
    ({FIRST_DUE.format(actor="i.actor")}) AS delayed_at,
    ARRAY(SELECT id FROM answered) AS answered
FROM before AS i
"""
"""Ends a turn, fenced as `TAKE` is, and keeps what it left, as `KEEP` does, with its replies.

Its actor and its job are locked, so the log of the job is whole.
"""


class Known(NamedTuple):
    """What the newest turn of an actor left, as far as it says what its next turn is."""

    row: asyncpg.Record
    """That of the actor, as `HOLD` reads it."""
    turn: int
    version: int
    last_worker: UUID | None


class KnownActors:
    """What the pump remembers of actors. It may be old: the statements compare."""

    def __init__(self) -> None:
        self._by_name: dict[Name, Known] = {}
        self._names: dict[UUID, Name] = {}

    def named(self, name: Name) -> Known | None:
        """What is known of the actor with this name."""
        return self._by_name.get(name)

    def of(self, actor: UUID) -> Known | None:
        """What is known of the actor with this id."""
        name = self._names.get(actor)
        return None if name is None else self._by_name.get(name)

    def note(self, found: Iterable[Known]) -> None:
        """So it is, by a commit."""
        for known in found:
            name = known.row["type"], known.row["key"]
            self.forget(name)
            self._by_name[name] = known
            self._names[known.row["id"]] = name
        while len(self._by_name) > MOST_KNOWN:
            self.forget(next(iter(self._by_name)))

    def forget(self, name: Name) -> None:
        """What was known of this actor may be wrong."""
        if (old := self._by_name.pop(name, None)) is not None:
            self._names.pop(old.row["id"], None)


def known_of(boxes: Mailboxes) -> list[Known]:
    """What a batch with few actors has shown of them."""
    if len(boxes.by_id) > FEW:
        return []
    return [
        Known(box.row, box.turn, box.version, box.last_worker)
        for box in boxes.by_id.values()
        if box.turn >= 0
    ]


# a message


def sendable(batch: Batch, actors: KnownActors) -> Known | None:
    """The actor of a batch that is one message for it, if it is known; None for other batches."""
    if batch.finishes or batch.submits or len(batch.sends) != 1 or batch.max_mailbox < 1:
        return None
    [message] = batch.sends
    if message.delay_s or message.actor is not None or unstorable_message(message):
        return None
    return actors.named((message.type, message.key))


def lock_actor(actor: UUID) -> str:
    """SQL that locks an actor."""
    return f"SELECT FROM longshore.actor WHERE id = '{actor}' FOR UPDATE"


async def send_one(
    tx: Transaction, message: Message, known: Known, slots: TurnSlots, lanes: set[int]
) -> BatchResult | None:
    """Sends a message to an actor that is locked; None if that takes more than one statement.

    So it is if the lane of its turns is not among `lanes`, which are stored.
    """
    row = known.row
    terms = unpack_terms(row["terms"])
    number = known.turn + 1
    job = turn_job(row["id"], message.type, terms, known.version, number, None, known.last_worker)
    items = SoundItems([job]).items
    if not items or (lane := lane_of_item(items[0]).hash) not in lanes:
        return None
    starts = slots.starts_for(items)
    values = [*columns(items, sparse=True), *starts.columns(items)]
    is_ask = is_from_outside(message.reply_to)
    to = pack_reply_to(message.reply_to)
    of_actor = row["number"], row["id"], known.turn
    of_message = message.id, message.name, message.args, to, is_ask
    rows = await tx.fetch(SEND_ONE, *map(only, values), *of_actor, *of_message)
    if not rows:
        return None
    [found] = rows
    if found["id"] is None:
        raise Again("a turn appeared whose actor was locked")
    ready = Counter({lane: 1}) if found["state"] == READY else Counter[int]()
    began = []
    if found["state"] == RUNNING:
        began.append(starts.attempt(job, found["number"], found["token"]))
    event = Event(
        EventKind.MESSAGE,
        message.name,
        message.args,
        found["now"],
        found["message"],
        message.id,
        reply_to=message.reply_to,
    )
    turns = [_filled(attempt, known, found, event) for attempt in began]
    return BatchResult(ready=ready, sent=[Sent(message.id)], turns=turns)


def _filled(attempt: Attempt, known: Known, found: asyncpg.Record, event: Event) -> Attempt:
    """The attempt at a turn with this one event, as its worker gets it."""
    row, timers = known.row, unpack_timers(found["timers"])
    which = row["id"], row["type"], row["key"], known.turn + 1
    left = found["actor_state"], known.version, found["now"], timers
    input = TurnInput(*which, *left, (), known.last_worker)
    secret = found["secret"]
    return turn_attempt(attempt, input, [event], [], starts=False, paused=False, secret=secret)


def only(value: object) -> object:
    """The element of a list of at most one; any other value as it is."""
    if isinstance(value, list):
        return value[0] if value else None
    return value


# a turn


def takeable(batch: Batch, actors: KnownActors) -> Known | None:
    """The actor of a batch that is the end of one turn, if it is known and the turn has no more.

    More is whatever concerns other actors or jobs, and what has to be looked up first.
    """
    if batch.sends or batch.submits or len(batch.finishes) != 1:
        return None
    [end] = batch.finishes
    if not isinstance(end, TurnTaken) or end.token not in INT64:
        return None
    turn = end.turn
    if turn.stops or turn.pauses or turn.parks or turn.read_delayed or turn.listed is not None:
        return None
    if any(timer.after_s is not None or timer.at is None for timer in turn.timers):
        return None
    if not all(isinstance(one, OutboxReply) and is_from_outside(one.to) for one in end.outbox):
        return None
    if not 0 < end.number <= LARGEST_INT or end.job != derive_id(end.actor, end.number):
        return None
    known = actors.of(end.actor)
    if known is None or unpack_terms(known.row["terms"]).history is not None:
        return None
    return known


def lock_turn(end: TurnTaken) -> str:
    """SQL that locks the actor of a turn, and then the job."""
    return (
        f"{lock_actor(end.actor)}; "
        f"SELECT FROM longshore.job WHERE id = '{end.job}' AND token = {end.token} FOR UPDATE"
    )


async def take_one(
    tx: Transaction, end: TurnTaken, known: Known, intake: SubmitBatch, cursors: ClaimCursors
) -> tuple[BatchResult, Known] | None:
    """Ends a turn that is locked, and makes the next one; None if it is not so simple."""
    turn = end.turn
    replies = {
        one.reply.id: storable_reply(one.reply)
        for one in reversed(end.outbox)
        if isinstance(one, OutboxReply)
    }
    packed = [pack_reply(reply) for reply in replies.values()]
    read, version = min(turn.read, LARGEST_INT), min(turn.version, LARGEST_INT)
    left = end.number, read, version, pack_timers(set_at(turn.timers, 0)), turn.state
    which = end.actor, end.job, end.token, end.worker
    rows = await tx.fetch(TAKE_ONE, *which, *left, list(replies), packed)
    if not rows:
        return None
    [row] = rows
    boxes, box = Mailboxes(tx), Mailbox(known.row)
    # What is known may be older than a resume. The statement saw that it is active, and holds it.
    box.status = ACTIVE
    boxes.by_id[box.id], boxes.now = box, row["now"]
    box.see(row)
    box.knows_job = True
    ready = await wake(boxes, [box], intake, cursors, by_ends=True)
    ready += intake.ready
    answered: list[Reply] = [replies[id] for id in row["answered"]]
    result = BatchResult(
        [Finished(end.job, end.token, Verdict.RECORDED, JobState.SUCCEEDED)],
        ready=ready,
        ready_by_ends=ready,
        ended=outcomes(end, row["was"], JobState.SUCCEEDED),
        replies=answered,
        turns=intake.turns,
    )
    return result, Known(known.row, box.turn, box.version, box.last_worker)
