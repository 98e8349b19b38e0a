"""The pump of the PostgreSQL store: finishes, submits and claims within one transaction.

Each is one statement for the whole batch. What a pump learns (lanes that are stored, how far claims
came) is kept only once it is committed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import NamedTuple
from uuid import UUID

import asyncpg
from msgspec import Struct

from longshore.model.job import Claimed, Refused, Submission, Submitted
from longshore.model.worker import Seat, Want
from longshore.ports import Batch, Pumped
from longshore.store.postgres_columns import columns, lane_of_item, runs, sound_items
from longshore.store.postgres_finish import Records
from longshore.store.postgres_lines import Lines, Transaction
from longshore.store.postgres_marks import Look, Marks, Place, Took
from longshore.store.postgres_sql import CLAIM, SUBMIT_ALONE, SUBMIT_ONE
from longshore.store.postgres_states import READY, RUNNING
from longshore.store.postgres_submit import Intake, Seating
from longshore.store.rows import unpack_options


class Reading(NamedTuple):
    """What one claim read and took."""

    look: Look
    took: list[Took]
    counts: Counter[int]
    short: bool
    cost_s: float
    contested: frozenset[int]


class Drawn(Struct, frozen=True):
    """What a pump did, and what there is to remember of it once it is committed.

    `left_some` says that it made more jobs ready than it took.
    """

    pumped: Pumped
    left_some: bool
    new_lanes: set[int]
    readings: list[Reading]
    tallied: int


class Pump:
    """Runs batches, one at a time, and remembers between them."""

    def __init__(self, expiry_margin_s: float, clock: Callable[[], float]) -> None:
        self.marks = Marks()
        self._lanes: set[int] = set()
        self._expiry_margin_s = expiry_margin_s
        self._clock = clock

    async def run(self, tx: Transaction, dispatcher: UUID, batch: Batch) -> Drawn:
        """Finishes first, then submits, then claims."""
        records = Records(tx, self.marks)
        finished = await records.record(batch.finishes) if batch.finishes else []
        intake = Intake(tx, self._lanes, self._seating(dispatcher, batch))
        submitted = await _accept(records, intake, batch)
        claimed: list[Claimed] = []
        readings: list[Reading] = []
        left: set[int] = set()
        room = batch.max_bytes
        for want in batch.wants:
            if room <= 0:
                left.update(want.lanes)
            elif want.seats and want.lanes:
                before = len(claimed)
                readings += await self._claim(tx, dispatcher, want, room, claimed)
                room -= _bytes(claimed[before:])
        ready = records.ready + intake.ready
        taken = sum((reading.counts for reading in readings), Counter[int]())
        pumped = Pumped(
            finished,
            submitted,
            intake.started,
            claimed,
            taken,
            ready,
            records.ready + intake.ready_sent,
            records.ended,
            frozenset(left).union(*(reading.contested for reading in readings)),
        )
        return Drawn(pumped, bool(ready - taken), intake.new_lanes, readings, tx.tallied)

    async def alone(self, lines: Lines, dispatcher: UUID, batch: Batch) -> Drawn | None:
        """Runs a batch of nothing but submits as a single statement; None if it takes more."""
        if batch.finishes or batch.wants:
            return None
        items = sound_items(batch.submits)
        if len(items) < len(batch.submits) or len(runs(items)) > 1:
            return None
        if not self._lanes.issuperset(lane_of_item(item).hash for item in items):
            return None
        seating = self._seating(dispatcher, batch) or Seating(dispatcher, 0.0, {})
        values = [*columns(items), *seating.columns(items)]
        rows = await (
            lines.alone(SUBMIT_ONE, *map(_only, values))
            if len(items) == 1
            else lines.alone(SUBMIT_ALONE, *values)
        )
        if rows is None:
            return None
        states = Counter((row["lane"], row["state"]) for row in rows)
        ready = Counter({lane: n for (lane, state), n in states.items() if state == READY})
        started, tallied = seating.began(items, rows), len(states)
        if len(rows) == len(items):
            submitted: list[Submitted | Refused] = [
                Submitted(job.id, row["number"]) for (job, _), row in zip(items, rows, strict=True)
            ]
        else:
            # Some were there before. By now all others are too: it is safe to submit them again.
            rest = await lines.run(partial(self._again, dispatcher, batch.submits))
            submitted, tallied = rest.pumped.submitted, tallied + rest.tallied
            ready.update(rest.pumped.ready)
        pumped = Pumped([], submitted, started, ready=ready)
        return Drawn(pumped, bool(ready), set(), [], tallied)

    async def _again(
        self, dispatcher: UUID, submits: Sequence[Submission], tx: Transaction
    ) -> Drawn:
        return await self.run(tx, dispatcher, Batch(submits=submits))

    def _seating(self, dispatcher: UUID, batch: Batch) -> Seating | None:
        if not batch.seats:
            return None
        pairs = list(zip(batch.submits, batch.seats, strict=True))
        seats = {job.id.int: seat for job, seat in pairs}
        if len(seats) < len(pairs):
            # Of those with one id, the first that can be stored decides.
            sound = {id(job) for job, _ in sound_items(batch.submits)}
            seats = {job.id.int: seat for job, seat in reversed(pairs) if id(job) in sound}
        return Seating(dispatcher, self._expiry_margin_s, seats)

    def committed(self, drawn: Drawn) -> None:
        """Remembers what is now certain."""
        self._lanes |= drawn.new_lanes
        now = self._clock()
        for look, took, _, short, cost_s, _ in drawn.readings:
            self.marks.claimed(look, took, short=short, cost_s=cost_s, now=now)

    def keep_lanes(self, stored: set[int]) -> None:
        """No lanes but these are stored, as far as is known; what is said twice harms nobody."""
        self._lanes &= stored
        self.marks.keep(stored)

    def forget_lanes(self, gone: set[int]) -> None:
        """These lanes are not stored any more."""
        self._lanes -= gone

    async def _claim(
        self, tx: Transaction, dispatcher: UUID, want: Want, room: int, claimed: list[Claimed]
    ) -> list[Reading]:
        """Serves one want. Lanes that seem to be empty are looked through before they count so."""
        lanes, before = dict.fromkeys(want.lanes), len(claimed)
        first = await self._read(tx, dispatcher, lanes, want.seats, room, claimed)
        unseen = self.marks.unseen(first.look, self._clock()) if first.short else []
        if not unseen:
            return [first]
        left = _left(want.seats, claimed[before:])
        room -= _bytes(claimed[before:])
        return [first, await self._read(tx, dispatcher, unseen, left, room, claimed)]

    async def _read(
        self,
        tx: Transaction,
        dispatcher: UUID,
        lanes: Iterable[int],
        seats: Sequence[Seat],
        room: int,
        claimed: list[Claimed],
    ) -> Reading:
        began, before = self._clock(), len(claimed)
        look = self.marks.look(lanes, began)
        workers, sessions, places = _seat_columns(seats)
        margin_s = self._expiry_margin_s
        rows = await tx.fetch(
            CLAIM, workers, sessions, places, dispatcher, *look.stretches, margin_s, room
        )
        cost_s = self._clock() - began
        contested = rows[0]["seen"] > sum(row["turn"] is not None for row in rows)
        if rows[0]["turn"] is None:
            rows = []
        rows.sort(key=_turn)
        counts = Counter(row["lane"] for row in rows)
        for lane, count in counts.items():
            tx.count(lane, READY, RUNNING, count)
        reached: dict[tuple[int, int], Place] = {}
        for row in rows:
            _, _, place, lane, urgency, rank, id, number, token, kind, args, options, *tries = row
            reached[lane, urgency] = (rank, number)
            options = unpack_options(options)
            seat = workers[place - 1], sessions[place - 1]
            claimed.append(Claimed(id, number, token, kind, args, options, *seat, *tries))
        took = [Took(*level, place) for level, place in reached.items()]
        held = frozenset(lanes) if contested else frozenset[int]()
        # A claim that is full of bytes says nothing of what lies behind it.
        is_short = len(rows) < len(seats) and _bytes(claimed[before:]) < room
        return Reading(look, took, counts, is_short, cost_s, held)


async def _accept(records: Records, intake: Intake, batch: Batch) -> list[Submitted | Refused]:
    """Takes in what finished jobs sent, then what was submitted; answers the latter."""
    sent = [job for _, _, job in records.sent]
    if not sent and not batch.submits:
        return []
    intake.note_sent(sent)
    answers = await intake.accept([*sent, *batch.submits])
    if sent:
        await records.note(answers[: len(sent)])
    return answers[len(sent) :]


def _only(value: object) -> object:
    """What an array of at most one element has; anything else as it is."""
    if isinstance(value, list):
        return value[0] if value else None
    return value


def _turn(row: asyncpg.Record) -> int:
    turn: int = row["turn"]
    return turn


def _seat_columns(seats: Sequence[Seat]) -> tuple[list[UUID], list[int], list[int]]:
    """Each session once, and for each seat, in order, which of them it is of."""
    known: dict[Seat, int] = {}
    places = [known.setdefault(seat, len(known) + 1) for seat in seats]
    return [seat.worker for seat in known], [seat.session for seat in known], places


def _left(seats: Sequence[Seat], taken: Sequence[Claimed]) -> list[Seat]:
    """The seats that these attempts, placed in the seats' order, have left free."""
    sitting = iter(taken)
    attempt = next(sitting, None)
    left = []
    for seat in seats:
        if attempt is not None and (attempt.worker, attempt.session) == (seat.worker, seat.session):
            attempt = next(sitting, None)
        else:
            left.append(seat)
    return left


def _bytes(claimed: Sequence[Claimed]) -> int:
    return sum(len(one.args) for one in claimed)
