"""Limits of the PostgreSQL store.

Theory. A claim that meets a job with limits stops before it, and `LimitedClaim` goes on from there:

1. It reads the first jobs, with and without limits, in order, and locks the rows of their keys. It
   passes over keys that another transaction holds: their jobs are looked at again soon.
2. In a *later* statement it reads which slots of these keys are held. If both were one statement,
   it would read what was there before it got the lock: two claims would both find the last slot.
3. The core decides (`core.limited_starts`). What may start starts, and its slots are written. The
   primary key (key, slot) would refuse a second holder even if all else were wrong.
4. What may not start is put behind its key (`blocked_on`), out of the index that claims read. So
   jobs behind a key that is used up cost a claim nothing from then on.

Lanes under rules for kinds and queues are looked at before their jobs: a lane whose keys have no
room, or are locked by another transaction, is not read at all. Such a rule cannot change while this
goes on: the transaction has the gate (`start_rules`). The keys are locked and counted like others;
what runs of them is what runs in their lanes (`lane_rules`), so no slots are written for them.

A slot is held as long as its job is in the attempt that got it: ends need not give it back.

Nobody misses a wake-up. Who records ends then locks their keys, waiting for a claim that has them,
and looks in a later statement for jobs to let go (`open_keys`), in the same transaction or, if that
was a single statement, in the next. A claim that counted before the end
was visible has committed by then, so what it put behind the key is seen. All other ways to room (a
loss, a rate, a new rule, a dispatcher that died) `open_limits` finds, with every poll.

Order of locks: jobs that end, then keys in their order; claims wait for neither.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from operator import itemgetter
from typing import Final, NamedTuple
from uuid import UUID

import asyncpg

from longshore.core.lane_rules import is_of_lanes
from longshore.core.limited_starts import Behind, Closed, KeyState, Start, Starts, soonest
from longshore.core.placement import first_bytes
from longshore.model.attempt import Attempt
from longshore.model.job import Options, Submission
from longshore.model.limits import JobLimit, LimitRule, Rate
from longshore.model.worker import SessionKey
from longshore.store.postgres import limits_sql as sql
from longshore.store.postgres.claimed_rows import claimed_attempt, left_of, slot_columns
from longshore.store.postgres.connections import Transaction
from longshore.store.postgres.cursors import ClaimCursors, whole_lane
from longshore.store.postgres.lane_rules import (
    LaneKeys,
    named_lanes,
    others,
    ready_lanes,
)
from longshore.store.postgres.near_files import Near, near_slots
from longshore.store.postgres.states import READY, RUNNING
from longshore.store.rows import unpack_options

_MOST_LOOKS: Final = 8
"""How often a claim reads on, when limits hold back what it has read."""
_FURTHER: Final = 32
"""From so many jobs on it then reads twice as many each time."""

_size = itemgetter("size")


class LimitedScan(NamedTuple):
    """What a claim of jobs with limits took: see `ClaimScan`."""

    claimed: list[Attempt]
    counts: Counter[int]
    size: int
    is_contested: bool
    open_s: float | None
    keys: frozenset[str]
    """The keys whose rows are there by now."""
    unknown: frozenset[str]
    """The keys whose rows may not be there."""
    held: Mapping[int, frozenset[str]]
    """The keys that the attempts count for, by token."""
    closed: frozenset[int]
    """The lanes in which nothing more may begin now, by a rule for their kind or queue."""


class LimitedClaim:
    """One claim that met jobs with limits; `known` are keys whose rows are there.

    `is_ruled` says that there are rules for kinds or queues; `near` are workers that have files.
    """

    def __init__(
        self,
        tx: Transaction,
        dispatcher: UUID,
        margin_s: float,
        known: Collection[str],
        *,
        is_ruled: bool,
        near: Near,
    ) -> None:
        self._near = near
        self._tx = tx
        self._dispatcher = dispatcher
        self._margin_s = margin_s
        self._known = known
        self._is_ruled = is_ruled
        self._lane_keys: LaneKeys = {}
        self._closed: set[int] = set()
        self._passed_over: set[int] = set()
        """Lanes whose keys another transaction has, and those that have no job."""
        self._decided: tuple[Starts, int] | None = None
        self._asked: set[str] = set()
        self._mine: set[str] = set()
        self._keys: set[str] = set()
        self._unknown: set[str] = set()
        self._held: dict[int, frozenset[str]] = {}
        self._claimed: list[Attempt] = []
        self._counts: Counter[int] = Counter()
        self._is_contested = False
        self._open_in: list[float] = []

    async def take(
        self, lanes: Sequence[int], slots: Sequence[SessionKey], room: int
    ) -> LimitedScan:
        """Takes the best jobs that may start for these slots."""
        if self._is_ruled:
            await self._look_at_lanes(lanes)
        for look in range(_MOST_LOOKS):
            left = [lane for lane in lanes if lane not in self._closed | self._passed_over]
            if not left:
                break
            ranges = zip(*map(whole_lane, left), strict=True)
            most = max(len(slots), _FURTHER << look if look else 0)
            rows = await self._tx.fetch(sql.FRONT, *ranges, most)
            took, is_done = await self._start(first_bytes(rows, _size, room), slots)
            room -= sum(len(one.args) for one in took)
            slots = left_of(slots, took)
            if is_done or not slots or room <= 0:
                break
        else:
            self._is_contested = True
        size = sum(len(one.args) for one in self._claimed)
        open_s = min(self._open_in, default=None)
        keys, unknown = frozenset(self._keys), frozenset(self._unknown)
        of_scan = self._claimed, self._counts, size, self._is_contested, open_s
        return LimitedScan(*of_scan, keys, unknown, self._held, frozenset(self._closed))

    async def _look_at_lanes(self, lanes: Sequence[int]) -> None:
        """Finds the lanes that rules limit, and closes those in which nothing may begin now."""
        rules = rules_of(await self._tx.fetch(sql.RULES))
        self._lane_keys = await named_lanes(self._tx, lanes, rules)
        # A lane that nothing names may get its first job now, and then there is a rule for it.
        self._passed_over.update(set(lanes).difference(self._lane_keys))
        decide, now = await self._decide({key for of in self._lane_keys.values() for key in of})
        for lane, keys in self._lane_keys.items():
            if not self._mine.issuperset(keys):
                self._is_contested = True
                self._passed_over.add(lane)
            elif (shut := decide.closed(keys)) is not None:
                self._close(lane, shut, now)

    def _close(self, lane: int, shut: Closed, now: int) -> None:
        self._closed.add(lane)
        if shut.until is not None:
            self._open_in.append((shut.until - now) / 1e6)

    async def _start(
        self, rows: Sequence[asyncpg.Record], slots: Sequence[SessionKey]
    ) -> tuple[list[Attempt], bool]:
        """Starts those of these jobs that may; answers whether to read on is of no use."""
        options: dict[UUID, Options] = {row["id"]: unpack_options(row["options"]) for row in rows}
        of_lane = {row["id"]: self._lane_keys.get(row["lane"], ()) for row in rows}
        keys = {limit.key for one in options.values() for limit in one.limits}
        decide, now = await self._decide(keys.union(*of_lane.values()))
        starts: dict[UUID, Start] = {}
        behind: dict[UUID, Behind] = {}
        for id, of_job in options.items():
            if len(starts) == len(slots):
                break
            match decide.of(of_job.limits, of_lane[id]):
                case Start() as start:
                    starts[id] = start
                case Behind() if decide.closed(of_lane[id]):
                    pass  # its lane is closed below
                case Behind() as found:
                    behind[id] = found
                case _:
                    self._is_contested = True
        took = await self._take(starts, slots, of_lane) if starts else []
        if decide.passed:
            await self._tx.fetch(sql.PASS, [*decide.passed], [*decide.passed.values()])
        if behind:
            await self._tx.fetch(sql.PUT_BEHIND, [*behind], [one.key for one in behind.values()])
            open_at = soonest(one.until for one in behind.values())
            self._open_in += [] if open_at is None else [(open_at - now) / 1e6]
        self._is_contested |= len(took) < len(starts)
        return took, not (behind or self._close_full(decide, now))

    def _close_full(self, decide: Starts, now: int) -> bool:
        """Closes the lanes whose keys have no more room; answers whether there are any."""
        left = self._lane_keys.keys() - self._closed - self._passed_over
        found = {lane: decide.closed(self._lane_keys[lane]) for lane in left}
        for lane, shut in found.items():
            if shut is not None:
                self._close(lane, shut, now)
        return any(found.values())

    async def _decide(self, keys: Collection[str]) -> tuple[Starts, int]:
        """Decides about jobs of these keys, and of those of earlier looks, as far as it has them.

        It counts what it starts itself. So it reads again only if there are more keys.
        """
        if self._decided is None or not self._asked.issuperset(keys):
            self._asked.update(keys)
            self._mine = await self._lock(self._asked)
            self._decided = await _decider(self._tx, sorted(self._mine), sql.COUNT)
        return self._decided

    async def _lock(self, keys: Collection[str]) -> set[str]:
        """Locks those of these keys that no other transaction has; answers them."""
        if new := sorted(key for key in keys if key not in self._known and key not in self._keys):
            await self._tx.fetch(sql.ADD_KEYS, new)
        rows = await self._tx.fetch(sql.TRY_KEYS, sorted(keys)) if keys else []
        mine = {row["key"] for row in rows}
        self._keys.update(mine)
        # Another transaction has the others, or their rows were removed.
        self._unknown.update(set(keys) - mine)
        return mine

    async def _take(
        self,
        starts: dict[UUID, Start],
        slots: Sequence[SessionKey],
        of_lane: Mapping[UUID, Sequence[str]],
    ) -> list[Attempt]:
        workers, sessions, places = slot_columns(near_slots(self._near, [*starts], slots))
        values = workers, sessions, places, self._dispatcher, [*starts], self._margin_s
        rows = await self._tx.fetch(sql.START, *values)
        for lane, count in Counter(row["lane"] for row in rows).items():
            self._tx.count(lane, READY, RUNNING, count)
            self._counts[lane] += count
        took = [claimed_attempt(row, workers, sessions) for row in rows]
        held = [
            (key, slot, one.id, one.token) for one in took for key, slot in starts[one.id].slots
        ]
        if held:
            await self._tx.fetch(sql.HOLD, *zip(*held, strict=True))
        for one in took:
            named = (limit.key for limit in one.options.limits)
            self._held[one.token] = frozenset((*named, *of_lane[one.id]))
        self._claimed += took
        return took


async def _decider(
    tx: Transaction, keys: Sequence[str], count: str = sql.KEY_STATES
) -> tuple[Starts, int]:
    """Decides about jobs of these keys. Who starts some has them locked, and `COUNT`s."""
    rows = await tx.fetch(count, keys) if keys else []
    rules = rules_of(await tx.fetch(sql.RULES)) if keys else []
    more = await others(tx, keys, rules)
    slots = {row["key"]: row["slots"] for row in rows if row["slots"]}
    states = {
        row["key"]: KeyState(set(slots.get(row["key"], ())), row["even_at"], more[row["key"]])
        for row in rows
        if row["even_at"] is not None
    }
    now: int = rows[-1]["now"] if rows else 0
    return Starts(rules, states, now), now


async def open_keys(
    tx: Transaction, keys: Collection[str], cursors: ClaimCursors, *, waits: bool = True
) -> tuple[Counter[int], float | None]:
    """Lets as many jobs behind these keys go before claims as may start, of every lane.

    Answers how many, by lane, and in how many seconds a rate has room. Unless it `waits`, it passes
    over keys that another transaction holds. Lanes of these keys that have room count too.
    """
    how = sql.LOCK_KEYS if waits else sql.TRY_KEYS
    mine = [row["key"] for row in await tx.fetch(how, sorted(keys))]
    in_lanes = await open_lanes(tx, mine) if waits and any(map(is_of_lanes, mine)) else Counter()
    ready, next_s = await _open_behind(tx, mine, cursors)
    return ready + in_lanes, next_s


async def _open_behind(
    tx: Transaction, mine: Sequence[str], cursors: ClaimCursors
) -> tuple[Counter[int], float | None]:
    found = await tx.fetch(sql.LANES_BEHIND, mine) if mine else []
    if not found:
        return Counter(), None
    decide, now = await _decider(tx, list({row["key"] for row in found}))
    wakes: list[tuple[str, int, int]] = []
    times: list[int | None] = []
    for row in found:
        limit = limit_of(unpack_options(row["options"]), row["key"])
        if room := decide.room(limit):
            wakes.append((row["key"], row["lane"], room))
        times.append(decide.until(limit))
    woken = await tx.fetch(sql.WAKE, *zip(*wakes, strict=True)) if wakes else []
    for row in woken:
        cursors.put_back(row["lane"], row["urgency"], (row["rank"], row["number"]))
    open_at = soonest(times)
    next_s = None if open_at is None else (open_at - now) / 1e6
    return Counter(row["lane"] for row in woken), next_s


async def open_lanes(tx: Transaction, keys: Collection[str]) -> Counter[int]:
    """How many jobs may begin in the lanes under rules that count for one of these keys."""
    rules = rules_of(await tx.fetch(sql.RULES))
    return (await rooms(tx, await ready_lanes(tx, rules, keys)))[0]


async def rooms(tx: Transaction, lanes: LaneKeys) -> tuple[Counter[int], float | None]:
    """How many jobs may begin in these lanes, and in how many seconds in one that a rate closes.

    It locks nothing: who claims there counts again.
    """
    if not lanes:
        return Counter(), None
    keys = sorted({key for some in lanes.values() for key in some})
    await tx.fetch(sql.ADD_KEYS, keys)
    decide, now = await _decider(tx, keys)
    found = {lane: min(decide.room(JobLimit(key)) for key in of) for lane, of in lanes.items()}
    shut = (decide.closed(of) for of in lanes.values())
    open_at = soonest(one.until for one in shut if one is not None)
    next_s = None if open_at is None else (open_at - now) / 1e6
    return Counter({lane: room for lane, room in found.items() if room}), next_s


async def keys_to_wait_behind(tx: Transaction, jobs: Sequence[Submission]) -> dict[UUID, str]:
    """Behind which keys new jobs go, because others wait for them already; no key for the rest."""
    keys = list({limit.key for job in jobs for limit in job.options.limits})
    if not await tx.fetch(sql.WAITED_FOR, keys):
        return {}
    await tx.fetch(sql.LOCK_KEYS, keys)
    waited_for = {row["key"] for row in await tx.fetch(sql.WAITED_FOR, keys)}
    found = {}
    for job in jobs:
        key = next((one.key for one in job.options.limits if one.key in waited_for), None)
        if key is not None:
            found[job.id] = key
    return found


def limit_of(options: Options, key: str) -> JobLimit:
    """What a job brings for a key."""
    return next((one for one in options.limits if one.key == key), JobLimit(key))


def rules_of(rows: Sequence[asyncpg.Record]) -> list[LimitRule]:
    """The rules that these rows are."""
    return [
        LimitRule(pattern, most, Rate(*rate) if rate[0] is not None else None, set_at, weight)
        for pattern, most, *rate, set_at, weight in rows
    ]
