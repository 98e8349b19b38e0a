"""The pump of the PostgreSQL store: finishes, submits and claims within one transaction.

Theory. One statement ends all attempts of a batch, and one stores its jobs, with those that the
ended attempts sent. Then each claim takes one statement or two: `sql.CLAIM` claims, and `cursors`
says where it begins to read. If it finds less than was wanted, the lanes that it read only in part
are read once more, from their start.

What concerns actors (`turns`) comes between the ends and all else. A batch without it does nothing
more for them.

A batch of nothing but submits needs no transaction: `alone` runs it as a single statement. So it
does a batch of nothing but ends, as far as these have no more to do (see `plain_ends`). What waits
for the slots of limits that these free is let go in a transaction right after it. A single
message to an actor, or a single turn, has a short transaction of its own (see `single_turns`).

A transaction may fail or be repeated. So the pump remembers what it learnt (which lanes are stored,
how far claims came) only after the commit, in `committed`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from operator import itemgetter
from typing import Final
from uuid import UUID

from msgspec import structs

from longshore.core.placement import SlotOffers
from longshore.core.publishing import published_bytes
from longshore.model.attempt import Attempt
from longshore.model.ends import End, Succeeded, TurnTaken
from longshore.model.job import Finished, Refused, Submitted
from longshore.model.worker import Claim, OpenSlots, SessionKey
from longshore.ports import Batch, BatchResult
from longshore.store.postgres.changes import hold_if_paused
from longshore.store.postgres.claimed_rows import claimed_attempt, left_of, slot_columns
from longshore.store.postgres.columns import SoundItems, columns, lane_of_item, runs
from longshore.store.postgres.connections import ConnectionPool, Transaction
from longshore.store.postgres.cursors import ClaimCursors, Place, Reached, ScanPlan
from longshore.store.postgres.fair import FairLanes
from longshore.store.postgres.finish import (
    FinishBatch,
    does_more,
    finish_columns,
    made_ready,
    only_results,
    success_columns,
)
from longshore.store.postgres.growth import Growth, Refusals
from longshore.store.postgres.intake import accept
from longshore.store.postgres.known_limits import KnownLimits
from longshore.store.postgres.limited_claims import LimitedClaim, open_keys
from longshore.store.postgres.near_files import way_of
from longshore.store.postgres.plain_end import END_ONE, PlainEnd
from longshore.store.postgres.plain_ends import END_PLAIN, EndedAlone, PlainEnds, may_be_plain
from longshore.store.postgres.publishing import checked_versions, publish_versions
from longshore.store.postgres.pump_result import ClaimScan, PumpResult, closed_lanes, soonest_s
from longshore.store.postgres.settling import Cursor, Settling, Starts
from longshore.store.postgres.single_turns import (
    SEND_ONE,
    TAKE_ONE,
    Known,
    KnownActors,
    SendOne,
    TakeOne,
    known_of,
    lock_actor,
    lock_turn,
    only,
    sendable,
    takeable,
    wake_next,
)
from longshore.store.postgres.sql import (
    FINISH_ALONE,
    SUBMIT_ALONE,
    SUBMIT_ONE,
    SUCCEED_ALONE,
)
from longshore.store.postgres.states import READY, RUNNING, STATES
from longshore.store.postgres.submit import (
    StartColumns,
    SubmitBatch,
    TurnSlots,
    is_special,
)
from longshore.store.postgres.turns import TurnBatch, concerns_actors
from longshore.store.rows import INT64

GENERAL_BATCHES: Final = 20
FEWEST_PLAIN: Final = 0.75
"""If fewer of a batch's ends are plain, so many batches of groups are not tried as plain ones."""


class Pump:
    """Runs batches, and remembers between them."""

    def __init__(self, expiry_margin_s: float, clock: Callable[[], float]) -> None:
        self.cursors = ClaimCursors()
        self.fair = FairLanes(self.cursors)
        self._lanes: set[int] = set()
        self._limits = KnownLimits()
        self._actors = KnownActors()
        self._expiry_margin_s = expiry_margin_s
        self._clock = clock
        self._ends_groups = False
        """Whether the last batch of ends had some of groups."""
        self._general_batches = 0
        """So many batches of ends of groups go the general way: the last was hardly plain."""
        self._owed = 0
        """So many plain ends have let nothing start: jobs that wait for others, too, will."""
        self._branches = 0
        """So many single ends are not tried by themselves: more than one depended on the last."""

    async def run(
        self, tx: Transaction, dispatcher: UUID, batch: Batch, refusals: Refusals | None = None
    ) -> PumpResult:
        """Finishes first, then submits, then claims.

        If the transaction is repeated, it gets the `refusals` of the earlier turns.
        """
        turns = TurnBatch(tx, batch, self.cursors) if concerns_actors(batch) else None
        if turns is not None:
            await turns.hold()
        records = FinishBatch(tx, self.cursors)
        growth = Growth(tx, batch.max_group_jobs, {} if refusals is None else refusals)
        ends = await growth.checked(await checked_versions(tx, batch.finishes))
        finished = await records.record(ends) if ends else []
        await hold_if_paused(tx, records.woken)
        room = batch.max_bytes
        offers = SlotOffers(batch.for_dependents, room)
        intake = self._intake(tx, dispatcher, batch, offers)
        if turns is not None:
            await turns.commit(ends, finished, records, intake)
        starts = self._starts(dispatcher, offers.left, room, ends)
        offers.left = ()  # what turns did not take is for dependents
        settling = Settling(tx, starts)
        new_lanes = await self._settle(settling, ends, finished, records, growth)
        lost = []
        if turns is not None:
            lost = await turns.submit_groups(ends, finished, settling)
            self._put_back(settling)
        room -= sum(len(one.args) for one in settling.started)
        intake.new_lanes |= new_lanes
        history = turns.history if turns is not None else []
        submitted, lost_jobs = await accept(records, intake, batch, history)
        if turns is not None and (lost or lost_jobs):
            await turns.bring_back([*lost, *lost_jobs], intake)
        opened = await self._open_limits(tx, ends)
        scans, left = await self._claim_all(tx, dispatcher, batch, room)
        await publish_versions(tx, ends, finished)
        by_turns = turns.ready_by_ends if turns else Counter[int]()
        by_ends = records.ready + settling.ready + by_turns + opened
        ready = by_ends + intake.ready + (turns.ready if turns else Counter())
        taken = sum((scan.counts for scan in scans), Counter[int]())
        pumped = BatchResult(
            finished,
            submitted,
            intake.started,
            [attempt for scan in scans for attempt in scan.claimed],
            taken,
            ready,
            by_ends + intake.ready_sent,
            records.ended + settling.ended + intake.crowds.ended,
            frozenset(left).union(*(scan.contested for scan in scans)),
            frozenset[int]().union(*(scan.barred for scan in scans)),
            frozenset(settling.groups),
            settling.started,
            turns.sent if turns else [],
            turns.replies if turns else [],
            tx.has_watched_ends,
            intake.turns,
            soonest_s(scans),
            intake.crowds.stopping,
            closed_lanes(scans),
        )
        if ends:
            self._ends_groups = bool(records.parents)
        known = known_of(turns.boxes) if turns is not None else []
        lanes = intake.new_lanes
        held = intake.crowds.held
        return PumpResult(pumped, bool(ready - taken), lanes, scans, tx.tallied, known, held=held)

    def _starts(
        self, dispatcher: UUID, offered: Sequence[OpenSlots], room: int, ends: Sequence[End]
    ) -> Starts:
        """What the dependents of these ends may start on."""
        return Starts(dispatcher, offered, self._expiry_margin_s, room, published_bytes(ends))

    async def _claim_all(
        self, tx: Transaction, dispatcher: UUID, batch: Batch, room: int
    ) -> tuple[list[ClaimScan], set[int]]:
        """Serves the claims; answers also the lanes for which there were too many bytes."""
        scans: list[ClaimScan] = []
        left: set[int] = set()
        for claim in batch.claims:
            if room <= 0:
                left.update(claim.lanes)
            elif claim.slots and claim.lanes:
                found = await self._claim(tx, dispatcher, claim, room)
                room -= sum(scan.size for scan in found)
                scans += found
        return scans, left

    async def _open_limits(self, tx: Transaction, ends: Sequence[End]) -> Counter[int]:
        """Lets jobs go before claims that waited for slots which these ends free; by lane."""
        released = self._limits.released(ends)
        return (await open_keys(tx, released, self.cursors))[0] if released else Counter()

    def _intake(
        self, tx: Transaction, dispatcher: UUID, batch: Batch, offers: SlotOffers
    ) -> SubmitBatch:
        """Takes in what is submitted, and starts new turns on slots that are offered."""
        for_turns = TurnSlots(dispatcher, self._expiry_margin_s, offers)
        starts = self._start_columns(dispatcher, batch)
        return SubmitBatch(tx, self._lanes, starts, for_turns, self.fair)

    async def _settle(
        self,
        settling: Settling,
        ends: Sequence[End],
        finished: Sequence[Finished],
        records: FinishBatch,
        growth: Growth,
    ) -> set[int]:
        """Stores what the ends add, and tells the nodes that they reach; answers new lanes."""
        await growth.add(ends, finished)
        closed = [Cursor(one) for one in records.parents if one.job not in growth.unclosed]
        if closed or growth.unclosed or growth.woken:
            await settling.deliver(closed, growth.unclosed, growth.woken)
            self._put_back(settling)
        return await growth.complete(settling, self._lanes)

    async def alone(
        self, lines: ConnectionPool, dispatcher: UUID, batch: Batch
    ) -> PumpResult | None:
        """Runs a batch of only ends or only submits as one statement; None if it takes more."""
        if batch.claims or (batch.finishes and batch.submits):
            return None
        if batch.finishes and (released := self._limits.released(batch.finishes)):
            return await self._end_and_open(lines, dispatcher, batch, released)
        if (known := sendable(batch, self._actors)) is not None:
            return await self._send_one(lines, dispatcher, batch, known)
        if (known := takeable(batch, self._actors)) is not None:
            return await self._take_one(lines, dispatcher, batch, known)
        if batch.sends:
            return None
        if batch.finishes and self._ends_groups:
            return await self._end_plain(lines, dispatcher, batch)
        if batch.finishes:
            return await self._end_alone(lines, dispatcher, batch)
        items = SoundItems(batch.submits).items
        if len(items) < len(batch.submits) or len(runs(items)) > 1:
            return None
        if any(map(is_special, batch.submits)):
            return None
        if not self._lanes.issuperset(lane_of_item(item).hash for item in items):
            return None
        start_columns = self._start_columns(dispatcher, batch) or StartColumns(dispatcher, 0.0, {})
        values = [*columns(items, sparse=True), *start_columns.columns(items)]
        rows = await (
            lines.alone(SUBMIT_ONE, *map(only, values))
            if len(items) == 1
            else lines.alone(SUBMIT_ALONE, *values)
        )
        if rows is None:
            return None
        states = Counter(map(itemgetter("lane", "state"), rows))
        ready = Counter({lane: n for (lane, state), n in states.items() if state == READY})
        started, tallied = start_columns.began(items, rows), len(states)
        if len(rows) == len(items):
            submitted: list[Submitted | Refused] = [
                Submitted(job.id, row["number"]) for (job, _), row in zip(items, rows, strict=True)
            ]
        else:
            # Some were stored before, and by now all are: it is safe to submit them again.
            again = Batch(submits=batch.submits)
            rest = await lines.run(lambda tx: self.run(tx, dispatcher, again))
            submitted, tallied = rest.pumped.submitted, tallied + rest.tallied
            ready.update(rest.pumped.ready)
        pumped = BatchResult([], submitted, started, ready=ready)
        return PumpResult(pumped, bool(ready), set(), [], tallied)

    async def _send_one(
        self, lines: ConnectionPool, dispatcher: UUID, batch: Batch, known: Known
    ) -> PumpResult | None:
        """Sends one message to an actor of which something is known; None if it takes more."""
        [message], actor = batch.sends, known.row["id"]
        offers = SlotOffers(batch.for_dependents, batch.max_bytes)
        one = SendOne(message, known, TurnSlots(dispatcher, self._expiry_margin_s, offers))
        if one.lane not in self._lanes:
            return None
        rows = None
        if self._actors.is_quiet(actor):
            rows = await lines.locked(SEND_ONE, one.locks(), one.values())
            if rows == []:
                self._actors.found_busy(actor)
                return None
        if rows is not None and (found := one.read(rows)) is not None:
            return PumpResult(found, bool(found.ready), set(), [], 1, [known], True)

        async def work(tx: Transaction) -> PumpResult:
            found = None
            if not tx.isolate_bad_items:
                found = one.read(await tx.fetch(SEND_ONE, *one.values()))
            if found is None:
                return await self.run(tx, dispatcher, batch)
            return PumpResult(found, bool(found.ready), set(), [], 1, [known], True)

        return await lines.run(work, lock_actor(actor))

    async def _take_one(
        self, lines: ConnectionPool, dispatcher: UUID, batch: Batch, known: Known
    ) -> PumpResult:
        """Ends one turn of an actor of which something is known."""
        [end] = batch.finishes
        assert isinstance(end, TurnTaken)
        one = TakeOne(end, known)
        if one.may_be_last and self._actors.is_quiet(end.actor):
            rows = await lines.locked(TAKE_ONE, one.locks(), one.values(is_last=True))
            if rows:
                result, box = one.read(rows[0])
                return PumpResult(result, False, set(), [], 1, [one.left(box)])
            if rows is not None:
                self._actors.found_busy(end.actor)

        async def work(tx: Transaction) -> PumpResult:
            rows = []
            if not tx.isolate_bad_items:
                rows = await tx.fetch(TAKE_ONE, *one.values(is_last=False))
            if not rows:
                return await self.run(tx, dispatcher, batch)
            result, box = one.read(rows[0])
            intake = self._intake(
                tx, dispatcher, batch, SlotOffers(batch.for_dependents, batch.max_bytes)
            )
            ready = await wake_next(tx, rows[0], box, intake, self.cursors)
            result = structs.replace(result, ready=ready, ready_by_ends=ready, turns=intake.turns)
            tallied, lanes = 1 + tx.tallied, intake.new_lanes
            return PumpResult(result, bool(ready), lanes, [], tallied, [one.left(box)])

        return await lines.run(work, lock_turn(end))

    async def _end_alone(
        self, lines: ConnectionPool, dispatcher: UUID, batch: Batch
    ) -> PumpResult | None:
        ends = batch.finishes
        if any(end.token not in INT64 or does_more(end) for end in ends):
            return None
        if (plain := only_results(ends)) is not None:
            return await self._succeed_alone(lines, dispatcher, batch, plain)
        rows = await lines.alone(FINISH_ALONE, *finish_columns(ends, isolate_bad_items=False))
        if rows is None:
            return None
        done = EndedAlone()
        for place, was, code in map(itemgetter("place", "was", "state"), rows):
            done.end(place - 1, ends[place - 1], was, STATES[code])
        done.ready = made_ready(rows, self.cursors)
        return await self._with_rest(lines, dispatcher, batch, done)

    async def _end_and_open(
        self, lines: ConnectionPool, dispatcher: UUID, batch: Batch, released: set[str]
    ) -> PumpResult | None:
        """Ends attempts with limits; then lets go what waited for them; None if it takes more.

        In a transaction of its own, so that nothing else is done while the keys are locked. If it
        is never made or is lost, `open_limits` finds the room: so its commit does not wait.
        """
        if batch.sends or self._ends_groups:
            return None
        done = await self._end_alone(lines, dispatcher, batch)
        if done is None:
            return None
        opening = "SET LOCAL synchronous_commit = off"
        opened, _ = await lines.run(lambda tx: open_keys(tx, released, self.cursors), opening)
        if not opened:
            return done
        ready = opened + Counter(done.pumped.ready)
        pumped = structs.replace(done.pumped, ready=ready, ready_by_ends=ready)
        return structs.replace(done, pumped=pumped, left_some=True)

    async def _succeed_alone(
        self, lines: ConnectionPool, dispatcher: UUID, batch: Batch, ends: Sequence[Succeeded]
    ) -> PumpResult | None:
        rows = await lines.alone(SUCCEED_ALONE, *success_columns(ends))
        if rows is None:
            return None
        done = EndedAlone()
        for place in chain.from_iterable(map(itemgetter("places"), rows)):
            done.succeed(place - 1, ends[place - 1])
        return await self._with_rest(lines, dispatcher, batch, done)

    async def _end_plain(
        self, lines: ConnectionPool, dispatcher: UUID, batch: Batch
    ) -> PumpResult | None:
        """Ends jobs of groups and starts what depends on them, if there is no more to it."""
        if self._general_batches:
            self._general_batches -= 1
            return None
        ends = may_be_plain(batch.finishes, batch.for_dependents)
        if ends is None:
            return None
        margin_s, most = self._expiry_margin_s, batch.max_bytes
        starts = Starts(dispatcher, batch.for_dependents, margin_s, most)
        done = await self._end_one(lines, ends, starts)
        if done is None:
            plain = PlainEnds(ends, starts, self._owed)
            rows = await lines.alone(END_PLAIN, *plain.columns())
            if rows is None:
                return None
            done = plain.read(rows, self.cursors)
        if len(done.answers) - done.noted < len(ends) * FEWEST_PLAIN:
            self._general_batches = GENERAL_BATCHES
        self._ends_groups = done.ended_groups
        self._owed = done.left_owed(self._owed)
        return await self._with_rest(lines, dispatcher, batch, done)

    async def _end_one(
        self, lines: ConnectionPool, ends: Sequence[Succeeded], starts: Starts
    ) -> EndedAlone | None:
        """Ends a job that is alone, and on which at most one depends; None if that is not so."""
        if len(ends) > 1:
            return None
        if self._branches:
            self._branches -= 1
            return None
        one = PlainEnd(ends[0], starts)
        if rows := await lines.alone(END_ONE, *one.columns()):
            return one.read(rows, self.cursors)
        self._branches = GENERAL_BATCHES
        return None

    async def _with_rest(
        self, lines: ConnectionPool, dispatcher: UUID, batch: Batch, done: EndedAlone
    ) -> PumpResult:
        """Takes the ends without an answer the general way.

        Often some are late or repeated: what happened to those takes a closer look.
        """
        ends, answers, ready = batch.finishes, done.answers, done.ready
        left = [place for place in range(len(ends)) if place not in answers]
        tallied = 2 * (len(answers) + len(done.dependents))
        rest = BatchResult()
        if left:
            again = structs.replace(batch, finishes=[ends[place] for place in left])
            if done.dependents:
                # They have the slots that were offered.
                again = structs.replace(again, for_dependents=())
            more = await lines.run(lambda tx: self.run(tx, dispatcher, again))
            rest, tallied = more.pumped, tallied + more.tallied
            answers.update(zip(left, rest.finished, strict=True))
            ready = ready + Counter(rest.ready)
        pumped = BatchResult(
            [answers[place] for place in range(len(ends))],
            ready=ready,
            ready_by_ends=ready,
            ended=[*done.ended, *rest.ended],
            groups=rest.groups | done.groups,
            dependents=[*done.dependents, *rest.dependents],
            watched=rest.watched,
        )
        return PumpResult(pumped, bool(ready), set(), [], tallied)

    def _put_back(self, settling: Settling) -> None:
        """Claims find at once what became ready."""
        for lane, urgency, place in settling.places:
            self.cursors.put_back(lane, urgency, place)

    def _start_columns(self, dispatcher: UUID, batch: Batch) -> StartColumns | None:
        if not batch.slots:
            return None
        pairs = list(zip(batch.submits, batch.slots, strict=True))
        slots = {job.id.int: slot for job, slot in pairs}
        if len(slots) < len(pairs):
            # Of those with one id, the first that can be stored decides.
            sound = {id(job) for job, _ in SoundItems(batch.submits).items}
            slots = {job.id.int: slot for job, slot in reversed(pairs) if id(job) in sound}
        return StartColumns(dispatcher, self._expiry_margin_s, slots)

    def committed(self, drawn: PumpResult) -> None:
        """Remembers what a committed batch showed."""
        self._lanes |= drawn.new_lanes
        self._limits.note(drawn)
        self._actors.note(drawn.known)
        now = self._clock()
        for scan in drawn.scans:
            self.cursors.claimed(
                scan.look, scan.took, short=scan.short, cost_s=scan.cost_s, now=now
            )

    def keep_lanes(self, stored: set[int]) -> None:
        """Forgets all lanes but these, which are stored. To store a lane twice does no harm."""
        self._lanes &= stored
        self.cursors.keep(stored)

    def forget_lanes(self, gone: set[int]) -> None:
        """These lanes are not stored any more."""
        self._lanes -= gone

    async def _claim(
        self, tx: Transaction, dispatcher: UUID, claim: Claim, room: int
    ) -> list[ClaimScan]:
        """Serves one claim. A lane that seems empty gets a full look before it counts as empty."""
        lanes = dict.fromkeys(claim.lanes)
        if self.fair.with_new:
            await self.fair.ready(tx, lanes)
        first = await self._read(tx, dispatcher, lanes, claim, claim.slots, room)
        if first.barred and claim.ahead is None:
            return await self._claim_limited(tx, dispatcher, claim, first, room)
        unseen = self.cursors.unseen(first.look, first.took, self._clock()) if first.short else []
        if not unseen:
            return [first]
        left = left_of(claim.slots, first.claimed)
        rest = await self._read(tx, dispatcher, unseen, claim, left, room - first.size)
        if rest.barred and claim.ahead is None:
            return [first, *await self._claim_limited(tx, dispatcher, claim, rest, room, left)]
        return [first, rest]

    async def _claim_limited(
        self,
        tx: Transaction,
        dispatcher: UUID,
        claim: Claim,
        met: ClaimScan,
        room: int,
        slots: Sequence[SessionKey] | None = None,
    ) -> list[ClaimScan]:
        """Goes on from a scan that met a job with limits."""
        left = left_of(claim.slots if slots is None else slots, met.claimed)
        began = self._clock()
        of_claim = dispatcher, self._expiry_margin_s, self._limits.keys
        limited = LimitedClaim(tx, *of_claim, is_ruled=met.is_ruled, near=met.near)
        lanes = tuple(dict.fromkeys(claim.lanes))
        took = await limited.take(lanes, left, room - met.size)
        first = met._replace(barred=frozenset())
        # It moves no cursor: it passes over jobs whose keys another transaction has.
        plan = ScanPlan([], frozenset(), {})
        contested = frozenset(lanes if took.is_contested else ())
        cost_s = self._clock() - began
        rest = ClaimScan(
            plan,
            [],
            took.claimed,
            took.counts,
            took.size,
            False,
            cost_s,
            contested,
            frozenset(),
            took,
        )
        return [first, rest]

    async def _read(
        self,
        tx: Transaction,
        dispatcher: UUID,
        lanes: Iterable[int],
        claim: Claim,
        slots: Sequence[SessionKey],
        room: int,
    ) -> ClaimScan:
        began = self._clock()
        look = self.cursors.look(lanes, began)
        workers, sessions, places = slot_columns(slots)
        bounds = self._expiry_margin_s, room, None if claim.ahead is None else sorted(claim.ahead)
        way = await way_of(tx, claim, look.ranges, slots)
        values = (*zip(*look.ranges, strict=True), *bounds, *way.values)
        rows = await tx.fetch(way.statement, workers, sessions, places, dispatcher, *values)
        cost_s = self._clock() - began
        seen, is_barred, is_ruled = rows[0]["seen"], rows[0]["barred"], rows[0]["ruled"]
        rows = [] if rows[0]["turn"] is None else sorted(rows, key=itemgetter("turn"))
        counts = Counter(row["lane"] for row in rows)
        for lane, count in counts.items():
            tx.count(lane, READY, RUNNING, count)
        claimed: list[Attempt] = []
        reached: dict[tuple[int, int], Place] = {}
        for row in rows:
            reached[row["lane"], row["urgency"]] = (row["rank"], row["number"])
            claimed.append(claimed_attempt(row, workers, sessions))
        took = [Reached(*level, place) for level, place in reached.items()]
        size = sum(len(attempt.args) for attempt in claimed)
        # A claim that is full of bytes, or was barred, says nothing of what lies behind it.
        is_short = len(rows) < len(slots) and size < room and not is_barred
        contested = frozenset(lanes if seen > len(rows) else ())
        barred = frozenset(lanes if is_barred else ())
        told = contested, barred, None, is_ruled, way.near
        return ClaimScan(look, took, claimed, counts, size, is_short, cost_s, *told)
