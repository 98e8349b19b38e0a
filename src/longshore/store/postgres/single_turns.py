"""One message, or one turn, by itself: what an idle fleet has to do, on one way to the server.

Theory. A batch of many messages and turns takes one statement for each step. For a single one the
ways to the server and back are the cost. One statement does all there is to do. But the actor must
be locked by a statement before it: a statement sees what committed before it began, so only one
that begins after the lock sees what the last holder of the lock left.

The driver sends one statement several times at once, with other parameters each time, as one
transaction (`ConnectionPool.locked`). So the statements have a parameter that says which of the two
they are: with it they only take the locks and do nothing else. Sent twice, first with it and then
without, they are the whole transaction, commit included.

A turn after which another one is due takes more statements. So does any, where sessions are shared.
Then the message that begins the transaction locks, too, the statement is the second way to the
server, and the third commits. An actor that has more to do once has so for a while (`is_quiet`).

To send a message in one statement, the job of the next turn must be described before the actor is
seen: its id follows from the number of the turn. So the pump remembers what the last turns of some
actors left (`KnownActors`). The statement compares. If it finds anything else than an actor of that
turn that sleeps without timers, with an empty mailbox, it does nothing, and the transaction goes on
as any other does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple
from uuid import UUID

import asyncpg

from longshore.core.turns import set_at, turn_job
from longshore.model.actor import (
    TURNS_KEPT,
    Event,
    EventKind,
    Message,
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
from longshore.store.postgres.connections import Transaction
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

BUSY_BATCHES: Final = 20
"""So many messages and turns of an actor that had more to do are not tried on one way."""

_LOCKED_ACTOR: Final = """SELECT count(*) AS actors FROM (
            SELECT FROM longshore.actor WHERE id = {actor}::uuid FOR UPDATE
        ) AS a"""
_LOCKED_TURN: Final = f"""SELECT count(l.id) FROM (
            {_LOCKED_ACTOR.format(actor="$1")}
        ) AS a LEFT JOIN LATERAL (
            SELECT id FROM longshore.job
            WHERE id = $2::uuid AND token = $3::bigint AND a.actors >= 0 FOR UPDATE
        ) AS l ON true"""
"""SQL that locks the actor of a turn, and then the job."""

_FOUND: Final = f"""found AS MATERIALIZED (
    SELECT t.*
    FROM (
        SELECT CASE WHEN $30::boolean THEN ({_LOCKED_ACTOR.format(actor="$23")}) END AS only
        OFFSET 0
    ) AS locks
    CROSS JOIN LATERAL (
        SELECT number FROM longshore.actor
        WHERE locks.only IS NULL AND id = $23::uuid AND status = {ACTIVE} OFFSET 0
    ) AS a
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
SELECT new.number, new.state, new.lane, new.token, found.read_up_to + 1 AS message, found.timers,
    found.state AS actor_state, {NOW} AS now, ({SECRET}) AS secret, 1 / (SELECT count(*) FROM new)
FROM found CROSS JOIN received LEFT JOIN new ON true
"""
"""Puts a message into the empty mailbox of an actor that is locked, and starts its next turn.

With $30 it only locks the actor. If there is a job with the id of the turn all the same, which is
none of ours, it fails: the message must not be in without a turn.
"""

TAKE_ONE: Final = f"""
WITH gone AS (
    DELETE FROM longshore.job AS j
    USING (
        SELECT a.actor
        FROM (
            SELECT CASE WHEN $12::boolean THEN ({_LOCKED_TURN}) END AS only OFFSET 0
        ) AS locks
        CROSS JOIN LATERAL (
            SELECT number AS actor FROM longshore.actor
            WHERE locks.only IS NULL AND id = $1::uuid AND status = {ACTIVE} OFFSET 0
        ) AS a
        WHERE CASE WHEN $13::boolean THEN (
            SELECT true FROM longshore.message
            WHERE actor = a.actor AND number > $6::bigint LIMIT 1
        ) IS NULL AND (
            SELECT true FROM longshore.message
            WHERE actor = a.actor AND due_at IS NOT NULL LIMIT 1
        ) IS NULL ELSE true END
        OFFSET 0
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

Its actor and its job are locked, so the log of the job is whole. With $12 it only locks them. With
$13 it does nothing if a message is left for a next turn.
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
        self._busy: dict[UUID, int] = {}

    def is_quiet(self, actor: UUID) -> bool:
        """Whether a message or a turn of this actor is worth a try on one way to the server."""
        left = self._busy.pop(actor, 0)
        if left > 1:
            self._busy[actor] = left - 1
        return not left

    def found_busy(self, actor: UUID) -> None:
        """There was more to do for this actor."""
        self._busy[actor] = BUSY_BATCHES
        if len(self._busy) > MOST_KNOWN:
            del self._busy[next(iter(self._busy))]

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
    known = actors.named((message.type, message.key))
    return None if known is None or _is_limited(known) else known


def lock_actor(actor: UUID) -> str:
    """SQL that locks an actor."""
    return f"SELECT FROM longshore.actor WHERE id = '{actor}' FOR UPDATE"


class SendOne:
    """A message to an actor of which something is known, for `SEND_ONE`."""

    def __init__(self, message: Message, known: Known, slots: TurnSlots) -> None:
        row = known.row
        which = row["id"], message.type, unpack_terms(row["terms"]), known.version
        self._message, self._known = message, known
        self._job = turn_job(*which, known.turn + 1, None, known.last_worker)
        self._items = SoundItems([self._job]).items
        self._starts = slots.starts_for(self._items)

    @property
    def lane(self) -> int | None:
        """The lane of the turn; None if the turn cannot be stored."""
        return lane_of_item(self._items[0]).hash if self._items else None

    def locks(self) -> list[object]:
        """The parameters with which the statement only locks."""
        return [*[None] * 22, self._known.row["id"], *[None] * 6, True]

    def values(self) -> list[object]:
        """The parameters of the statement, once the actor is locked."""
        message, row = self._message, self._known.row
        to, is_ask = pack_reply_to(message.reply_to), is_from_outside(message.reply_to)
        return [
            *map(only, columns(self._items, sparse=True)),
            *map(only, self._starts.columns(self._items)),
            row["number"],
            row["id"],
            self._known.turn,
            *(message.id, message.name, message.args, to, is_ask),
            False,
        ]

    def read(self, rows: Sequence[asyncpg.Record]) -> BatchResult | None:
        """What the rows of the statement say; None if it did nothing."""
        if not rows:
            return None
        [found] = rows
        message, turns = self._message, list[Attempt]()
        if found["state"] == RUNNING:
            began = self._starts.attempt(self._job, found["number"], found["token"])
            turns = [_filled(began, self._known, found, _event(message, found))]
        ready = Counter({found["lane"]: 1}) if found["state"] == READY else Counter[int]()
        return BatchResult(ready=ready, sent=[Sent(message.id)], turns=turns)


def _event(message: Message, found: asyncpg.Record) -> Event:
    """A message as its turn gets it."""
    which = EventKind.MESSAGE, message.name, message.args, found["now"], found["message"]
    return Event(*which, message.id, reply_to=message.reply_to)


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
    return None if _is_limited(known) else known


def _is_limited(known: Known) -> bool:
    """Whether its turns have limits: then only a claim starts them, and their ends may wake."""
    return bool(unpack_terms(known.row["terms"]).options.limits)


def lock_turn(end: TurnTaken) -> str:
    """SQL that locks the actor of a turn, and then the job."""
    return (
        f"{lock_actor(end.actor)}; "
        f"SELECT FROM longshore.job WHERE id = '{end.job}' AND token = {end.token} FOR UPDATE"
    )


class TakeOne:
    """The end of a turn of an actor of which something is known, for `TAKE_ONE`."""

    def __init__(self, end: TurnTaken, known: Known) -> None:
        self._end, self._known = end, known
        self._replies = {
            one.reply.id: storable_reply(one.reply)
            for one in reversed(end.outbox)
            if isinstance(one, OutboxReply)
        }

    @property
    def may_be_last(self) -> bool:
        """Whether no turn is due after this one, as far as it says."""
        return not self._end.turn.timers

    def locks(self) -> list[object]:
        """The parameters with which the statement only locks."""
        end = self._end
        return [end.actor, end.job, end.token, *[None] * 8, True, False]

    def values(self, *, is_last: bool) -> list[object]:
        """The parameters of the statement, once actor and job are locked."""
        end, turn = self._end, self._end.turn
        read, version = min(turn.read, LARGEST_INT), min(turn.version, LARGEST_INT)
        return [
            *(end.actor, end.job, end.token, end.worker, end.number, read, version),
            pack_timers(set_at(turn.timers, 0)),
            turn.state,
            list(self._replies),
            [pack_reply(reply) for reply in self._replies.values()],
            False,
            is_last,
        ]

    def read(self, row: asyncpg.Record) -> tuple[BatchResult, Mailbox]:
        """What the row of the statement says, and what is left in the mailbox."""
        end, box = self._end, Mailbox(self._known.row)
        # What is known may be older than a resume. The statement saw that it is active.
        box.status = ACTIVE
        box.see(row)
        box.knows_job = True
        result = BatchResult(
            [Finished(end.job, end.token, Verdict.RECORDED, JobState.SUCCEEDED)],
            ended=outcomes(end, row["was"], JobState.SUCCEEDED),
            replies=[self._replies[id] for id in row["answered"]],
        )
        return result, box

    def left(self, box: Mailbox) -> Known:
        """What is known of the actor once this is committed."""
        return Known(self._known.row, box.turn, box.version, box.last_worker)


async def wake_next(
    tx: Transaction, row: asyncpg.Record, box: Mailbox, intake: SubmitBatch, cursors: ClaimCursors
) -> Counter[int]:
    """Makes the turn after the one that the row of `TAKE_ONE` tells of; answers what is ready."""
    boxes = Mailboxes(tx)
    boxes.by_id[box.id], boxes.now = box, row["now"]
    ready = await wake(boxes, [box], intake, cursors, by_ends=True)
    return ready + intake.ready
