"""Submits to the PostgreSQL store: one INSERT for the batch, and then only what it left out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import groupby
from typing import Final, NamedTuple, cast
from uuid import UUID

import asyncpg
from msgspec import Struct
from msgspec.structs import astuple

from longshore.core.crowds import crowd_of
from longshore.core.fairness import NEW
from longshore.core.limited_starts import keys_text
from longshore.core.placement import SlotOffers, Woken
from longshore.core.turns import last_worker
from longshore.errors import StoreUnavailable
from longshore.model.attempt import Attempt
from longshore.model.job import Refused, Submission, Submitted
from longshore.model.worker import SessionKey
from longshore.store.postgres.columns import (
    Answer,
    Item,
    SoundItems,
    answered,
    columns,
    lane_of_item,
    runs,
    unique_keys,
    unless_empty,
)
from longshore.store.postgres.connections import TURNS, Transaction, is_data_error, is_held
from longshore.store.postgres.crowds import Crowds, count_dropped, lock_crowds, may_crowd
from longshore.store.postgres.fair import (
    NO_TURNS,
    FairLanes,
    NewTurns,
    fair_key_of,
    fair_lanes_of,
    is_due,
    keep_accounts,
    new_turns,
    rank_ready,
)
from longshore.store.postgres.fair_sql import SUBMIT_RANKED
from longshore.store.postgres.key_holders import holder_of, staging_of
from longshore.store.postgres.known_sql import ADD_LANES, HOLDERS, KNOWN
from longshore.store.postgres.limited_claims import keys_to_wait_behind
from longshore.store.postgres.limits_sql import (
    SUBMIT_LIMITED,
    SUBMIT_LIMITED_EACH,
    SUBMIT_LIMITED_TURNS,
)
from longshore.store.postgres.sql import (
    START_TURNS,
    SUBMIT,
    SUBMIT_STARTED,
    SUBMIT_TURNS,
)
from longshore.store.postgres.states import READY, RUNNING
from longshore.store.rows import not_accepted

MOST_SHAPES: Final = 32
"""With more keys than these, jobs with limits are stored without shapes."""
MOST_PARTS: Final = 8
"""In how many statements a batch is stored at most, if only some of its jobs have limits."""


class StartColumns(Struct, frozen=True):
    """The slots for submitted jobs, the dispatcher that gives them, and an attempt's margin.

    An attempt expires `expiry_margin_s` after its timeout.
    """

    dispatcher: UUID
    expiry_margin_s: float
    slots: dict[int, SessionKey | None]
    """By the ids of their jobs, as integers: to hash a UUID takes longer."""

    def columns(self, items: list[Item]) -> list[object]:
        """What `SUBMIT_STARTED` takes beyond what `SUBMIT` does."""
        # By identity, as most slots of a session are one object. Equal ones do no harm.
        known: dict[int, tuple[int, SessionKey]] = {}
        places: list[int | None] = []
        for job, _ in items:
            slot = self.slots.get(job.id.int)
            if slot is None:
                places.append(None)
            else:
                places.append(known.setdefault(id(slot), (len(known) + 1, slot))[0])
        slots = [slot for _, slot in known.values()]
        workers, sessions = [slot.worker for slot in slots], [slot.session for slot in slots]
        return [places, workers, sessions, self.dispatcher, self.expiry_margin_s]

    def began(self, items: list[Item], rows: list[asyncpg.Record]) -> list[Attempt]:
        """The attempts that began as these rows were inserted."""
        jobs = {job.id.int: job for job, _ in items} if len(rows) < len(items) else None
        began = []
        for place, (id, number, state, _, token) in enumerate(rows):
            if state == RUNNING:
                job = items[place][0] if jobs is None else jobs[id.int]
                began.append(self.attempt(job, number, token))
        return began

    def attempt(self, job: Submission, number: int, token: int) -> Attempt:
        """The attempt at a job that began on its slot."""
        slot, options = cast(SessionKey, self.slots[job.id.int]), job.options
        return Attempt(
            job.id,
            number,
            token,
            job.kind,
            job.args,
            options,
            slot.worker,
            slot.session,
            1,
            0,
            0,
            False,
            job.priority,
            options.expires_s,
        )


class TurnSlots(NamedTuple):
    """The slots on which new turns may start, and who gives them (see `StartColumns`)."""

    dispatcher: UUID
    expiry_margin_s: float
    offers: SlotOffers

    def starts_for(self, items: list[Item]) -> StartColumns:
        """The slots for these turns, even if there are none."""
        none = StartColumns(self.dispatcher, self.expiry_margin_s, {})
        return self.columns_for(items) or none

    def columns_for(self, items: list[Item]) -> StartColumns | None:
        """The slots for these turns; None if there are none."""
        woken = [
            Woken(
                (-job.priority, place),
                lane_of_item((job, body)).hash,
                len(job.args),
                last_worker(job.options, job.args),
            )
            for place, (job, body) in enumerate(items)
            if job.run_at is None and job.delay_s is None
        ]
        slots = self.offers.take(woken)
        if not slots:
            return None
        by_id: dict[int, SessionKey | None] = {}
        for at, slot in slots.items():
            _, place = woken[at].order
            by_id[items[place][0].id.int] = slot
        return StartColumns(self.dispatcher, self.expiry_margin_s, by_id)


class SubmitBatch:
    """The submissions of one transaction; `lanes` are those known to be stored already."""

    def __init__(
        self,
        tx: Transaction,
        lanes: set[int],
        start_columns: StartColumns | None = None,
        for_turns: TurnSlots | None = None,
        fair: FairLanes | None = None,
    ) -> None:
        self.ready: Counter[int] = Counter()
        self.ready_sent: Counter[int] = Counter()
        self.new_lanes: set[int] = set()
        self.started: list[Attempt] = []
        self.turns: list[Attempt] = []
        """The turns that started."""
        self._for_turns = for_turns
        self._fair = fair
        self._tx = tx
        self._lanes = lanes
        self._start_columns = start_columns
        self.crowds = Crowds(tx)
        self._crowded: dict[int, Submission] = {}
        self._refused: dict[UUID, Refused] = {}
        self._sent: set[int] = set()

    def note_sent(self, jobs: Sequence[Submission]) -> None:
        """What jobs sent has no slots, and comes before what was submitted, also under one id."""
        self._sent.update(job.id.int for job in jobs)
        if self._start_columns is not None:
            self._start_columns.slots.update((job.id.int, None) for job in jobs)

    async def accept(self, jobs: Sequence[Submission]) -> list[Answer]:
        """Stores the jobs that are new and can be stored; answers item by item."""
        sound = SoundItems(jobs)
        taken: list[Answer] = []
        crowded = [job for job in jobs if may_crowd(job)]
        await lock_crowds(self._tx, crowded)
        self._crowded = {job.id.int: job for job in reversed(crowded)}
        for run in runs(sound.items):
            taken += await self._take(run)
        await self.crowds.settle()
        count_dropped(self.crowds.dropped, self.ready, self._sent, self.ready_sent)
        return sound.answers(taken)

    async def _take(self, items: list[Item]) -> list[Answer]:
        rows = await self._insert(items)
        if len(rows) == len(items):
            numbers = [row["number"] for row in rows]
            return [
                Submitted(job.id, number) for (job, _), number in zip(items, numbers, strict=True)
            ]
        answers: dict[UUID, Answer] = {}
        left = items
        for _ in range(TURNS):
            answers |= await self._look_up(left)
            left = [item for item in left if item[0].id not in answers]
            if not left:
                return [answers[job.id] for job, _ in items]
            # The job that held the key has just ended: now the key is free.
            await self._insert(left)
        raise StoreUnavailable("a unique key changed hands too often; try again")

    async def _look_up(self, items: list[Item]) -> dict[UUID, Answer]:
        """Answers for the jobs that are stored already, were refused, or whose key is taken."""
        rows = await self._tx.fetch(KNOWN, [job.id for job, _ in items])
        known = {row["id"]: (row["number"], row["body_hash"]) for row in rows}
        keys = unique_keys(items, known)
        rows = await self._tx.fetch(HOLDERS, *keys) if keys else []
        staging = await staging_of(self._tx, rows)
        holders = {(row["kind"], row["unique_key"]): holder_of(row, staging) for row in rows}
        if known or holders:
            self._tx.rest_on_found()
        unknown = [job.id for job, _ in items if job.id not in known]
        refused = {id: self._refused[id] for id in unknown if id in self._refused}
        return answered(items, known, holders) | refused

    async def _insert(self, items: list[Item]) -> list[asyncpg.Record]:
        """Stores the jobs whose id and key are free; answers the new rows."""
        if not self._tx.isolate_bad_items:
            return await self._insert_all(items)
        try:
            async with self._tx.savepoint():
                return await self._insert_all(items)
        except Exception as error:
            if not (is_data_error(error) or is_held(error)):
                raise
            if len(items) == 1:
                id = items[0][0].id
                self._refused[id] = _held(id) if is_held(error) else not_accepted(id, str(error))
                return []
        middle = len(items) // 2
        return [*await self._insert(items[:middle]), *await self._insert(items[middle:])]

    async def insert_turns(
        self, jobs: Sequence[Submission], actors: Sequence[int], *, by_ends: bool
    ) -> None:
        """Stores turns of these actors, which are locked: so none of the turns is there.

        Those for which there are slots start; if one of them has limits, none does.
        """
        items = SoundItems(jobs).items
        limited = any(job.options.limits for job in jobs)
        starts = None
        if self._for_turns is not None and not limited:
            starts = self._for_turns.columns_for(items)
        if limited:
            rows = await self._insert_limited_part(SUBMIT_LIMITED_TURNS, items, actors)
        elif starts is None:
            rows = await self._tx.fetch(SUBMIT_TURNS, *columns(items, sparse=True), actors)
        else:
            slots = starts.columns(items)
            rows = await self._tx.fetch(START_TURNS, *columns(items, sparse=True), *slots, actors)
            self.turns += starts.began(items, rows)
        if by_ends:
            self._sent.update(job.id.int for job in jobs)
        await self._note(items, rows)

    async def _insert_all(self, items: list[Item]) -> list[asyncpg.Record]:
        if any(map(self._is_special, items)):
            return await self._insert_special(items)
        return await self._insert_plain(items)

    async def _insert_plain(self, items: list[Item]) -> list[asyncpg.Record]:
        if self._start_columns is None:
            rows = await self._tx.fetch(SUBMIT, *columns(items, sparse=True))
        else:
            slots = self._start_columns.columns(items)
            rows = await self._tx.fetch(SUBMIT_STARTED, *columns(items, sparse=True), *slots)
            self.started += self._start_columns.began(items, rows)
        await self._note(items, rows)
        return rows

    async def _insert_special(self, items: list[Item]) -> list[asyncpg.Record]:
        """Stores jobs of which some have limits or fair keys; those with known turns first."""
        new = await self._turns_of(items)
        ranked = [item for item in items if item[0].id in new.ranks]
        others = [item for item in items if item[0].id not in new.ranks]
        rows = await self._insert_ranked(ranked, new) if ranked else []
        rows += await self._insert_limited(others) if others else []
        places = {job.id.int: place for place, (job, _) in enumerate(items)}
        return sorted(rows, key=lambda row: places[row["id"].int])

    async def _turns_of(self, items: list[Item]) -> NewTurns:
        """The turns of those of these jobs that are ready once they are stored."""
        if self._fair is None:
            return NO_TURNS
        keys = {
            job.id: fair_key_of(job)
            for job, _ in items
            if job.options.fair and is_due(job) and not self._has_slot(job)
        }
        return await new_turns(self._tx, keys, self._fair.cursors)

    async def _insert_ranked(self, items: list[Item], new: NewTurns) -> list[asyncpg.Record]:
        ranks = [new.ranks[job.id] for job, _ in items]
        rows = await self._insert_limited_part(SUBMIT_RANKED, items, after=[ranks])
        await keep_accounts(self._tx, new.charges(row["id"] for row in rows))
        assert self._fair is not None
        for row in rows:
            key = new.keys[row["id"]]
            place = (new.ranks[row["id"]], row["number"])
            self._fair.cursors.put_back(key.lane, ~key.priority, place)
        return rows

    async def _insert_limited(self, items: list[Item]) -> list[asyncpg.Record]:
        """Stores jobs of which some have limits, in their order: numbers follow it.

        Those with limits do not start, and may go behind keys. If they alternate too often, none of
        the others starts either.
        """
        parts = [list(part) for _, part in groupby(items, self._is_special)]
        rows: list[asyncpg.Record] = []
        for part in parts if len(parts) <= MOST_PARTS else [items]:
            if len(parts) <= MOST_PARTS and not self._is_special(part[0]):
                new = await self._insert_plain(part)
                await self._rank_left(part, new)
                rows += new
            else:
                rows += await self._insert_limited_part(SUBMIT_LIMITED, part)
        return rows

    async def _rank_left(self, items: list[Item], rows: list[asyncpg.Record]) -> None:
        """Gives turns to fair jobs that had a slot, but could not start on it."""
        if self._fair is None or not any(job.options.fair for job, _ in items):
            return
        left = {row["id"]: row["number"] for row in rows if row["state"] == READY}
        keys = {job.id: fair_key_of(job) for job, _ in items if job.options.fair}
        keys = {id: key for id, key in keys.items() if id in left}
        await rank_ready(self._tx, keys, left, self._fair.cursors)

    async def _insert_limited_part(
        self,
        query: str,
        items: list[Item],
        *more: Sequence[object],
        after: Sequence[Sequence[object]] = (),
    ) -> list[asyncpg.Record]:
        jobs = [job for job, _ in items]
        behind = await keys_to_wait_behind(self._tx, jobs)
        keys = [keys_text(job.options.limits) for job in jobs]
        waits = [behind.get(job.id) for job in jobs]
        if not after:
            waits = [NEW if job.options.fair else key for job, key in zip(jobs, waits, strict=True)]
        crowds = [crowd_of(job.kind, job.options) for job in jobs]
        fair = [job.options.fair or None for job in jobs]
        special = map(unless_empty, (keys, waits, crowds, fair))
        each = query is SUBMIT_LIMITED and len(set(keys)) > MOST_SHAPES
        query = SUBMIT_LIMITED_EACH if each else query
        rows = await self._tx.fetch(query, *columns(items, each=each), *more, *special, *after)
        if self._fair is not None and not after:
            self._fair.with_new |= fair_lanes_of(jobs)
        for row in rows if self._crowded else ():
            if (job := self._crowded.get(row["id"].int)) is not None:
                self.crowds.note(job, row["number"])
        if not more:
            await self._note(items, rows)
        return rows

    def _is_special(self, item: Item) -> bool:
        """Whether a job is stored with keys: it has limits, is debounced, or waits for its turn."""
        options = item[0].options
        if options.limits or options.debounce:
            return True
        return bool(options.fair) and not self._has_slot(item[0])

    def _has_slot(self, job: Submission) -> bool:
        starts = self._start_columns
        is_free = not (job.options.limits or job.options.debounce)
        return is_free and starts is not None and starts.slots.get(job.id.int) is not None

    async def _note(self, items: list[Item], rows: list[asyncpg.Record]) -> None:
        """Counts new jobs, and stores their lanes."""
        counts = Counter((row["lane"], row["state"]) for row in rows)
        unknown = {lane for lane, _ in counts} - self._lanes - self.new_lanes
        if unknown:
            lanes = {lane.hash: lane for lane in map(lane_of_item, items) if lane.hash in unknown}
            await self._tx.fetch(ADD_LANES, *zip(*map(astuple, lanes.values()), strict=True))
        for (lane, state), count in counts.items():
            self._tx.count(lane, None, state, count)
            if state == READY:
                self.ready[lane] += count
        if self._sent:
            ready = (row for row in rows if row["state"] == READY)
            self.ready_sent.update(row["lane"] for row in ready if row["id"].int in self._sent)
        self.new_lanes |= unknown


def is_special(job: Submission) -> bool:
    """Whether a job is not stored like most: it has limits, is debounced, or has a fair key."""
    return bool(job.options.limits or job.options.debounce or job.options.fair)


def _held(id: UUID) -> Refused:
    message = (
        f"job {id} was not accepted: a transaction that has not ended holds its id or its unique "
        "key; end that one, or submit again later"
    )
    return Refused(id, StoreUnavailable.code, message)
