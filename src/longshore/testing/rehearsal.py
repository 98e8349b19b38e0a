"""Tries rules of limits on a trace of jobs: who would wait for what, before rules go live.

Nothing here decides what a limit lets begin. The scheduler of dispatchers plans, the store in
memory claims by the core's limited starts, and each job runs for as long as its trace says, on a
clock that jumps. So a rehearsal decides as a dispatcher does, and gives the same answer each time.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from heapq import heappop, heappush
from typing import Final, NamedTuple
from uuid import UUID

from msgspec import Struct

from longshore.core.admission import Patience
from longshore.core.lane_rules import is_of_lanes
from longshore.core.scheduler import Scheduler
from longshore.dispatcher.duties.fair_use import FairUses
from longshore.errors import InvalidInput
from longshore.model.attempt import Attempt
from longshore.model.batch import Batch
from longshore.model.ends import End, Succeeded
from longshore.model.job import Job, JobState, Options, Submission, Submitted
from longshore.model.limits import JobLimit, LimitRule
from longshore.model.worker import Ahead, Attended, KindInfo, Pool, WorkerInfo
from longshore.testing.memory import MemoryStore
from longshore.testing.virtual import VirtualClock, run_virtually

MOST_ARRIVALS: Final = 10_000
"""How many jobs a rehearsal takes, unless it is told otherwise."""
MOST_STARTED: Final = 1_000
POLL_S: Final = 1.0
"""So often dispatchers tell how long the jobs of each fair key took."""
_DISPATCHER: Final = UUID(int=1)


class Arrival(Struct, frozen=True):
    """A job of a trace: when it comes, how long it runs, and the keys that it counts for."""

    at_s: float
    run_s: float
    limits: tuple[JobLimit, ...] = ()
    kind: str = "work"
    queue: str = "default"
    priority: int = 0
    fair: str = ""
    """The key by which it shares the workers."""


class Fleet(Struct, frozen=True):
    """So many workers with so many slots each. All of them run every kind."""

    workers: int = 1
    slots: int = 100


class Rehearsed(Struct, frozen=True):
    """What became of a trace, in the order in which its jobs came, and of those that ended.

    A job's number is its place in the trace, from 1 on. `longest` has for each key the most jobs
    that waited for it at once. `end_s` is when the last job ended. `behind` has how many jobs
    waited for a key to the end, and `never` how many never began. `of_lanes` has by the number of a
    job how long it waited for the rules for its kind and its queue, by key.
    """

    arrivals: list[Arrival]
    jobs: list[Job]
    longest: dict[str, int]
    behind: dict[str, int]
    never: int
    end_s: float
    of_lanes: dict[int, dict[str, float]]


class _Seat(Struct):
    """A worker's session as the scheduler sees it."""

    info: WorkerInfo
    number: int
    given: int = 0
    busy: int = 0
    ahead: Ahead = Ahead()

    @property
    def open_slots(self) -> Mapping[str, int]:
        return {pool: slots - self.busy for pool, slots in self.info.pools.items()}

    @property
    def open_ahead(self) -> Mapping[str, int]:
        return {}

    @property
    def free_resources(self) -> Mapping[str, float]:
        return {}


class _Ending(NamedTuple):
    """An attempt that runs, in the order of ends."""

    at_s: float
    number: int
    attempt: Attempt


def rehearse(
    rules: Sequence[LimitRule],
    arrivals: Sequence[Arrival],
    fleet: Fleet | None = None,
    most: int = MOST_ARRIVALS,
) -> Rehearsed:
    """Lets these jobs come, under these rules; raises `InvalidInput` if they are too many."""
    if len(arrivals) > most:
        raise InvalidInput(
            f"the trace has {len(arrivals):,} jobs, and at most {most:,} are tried "
            "(--max-arrivals); take a part of it, or raise that"
        )
    return run_virtually(_Rehearsal(rules, arrivals, fleet or Fleet()).run())


class _Rehearsal:
    """One trace on its way through the store."""

    def __init__(
        self, rules: Sequence[LimitRule], arrivals: Sequence[Arrival], fleet: Fleet
    ) -> None:
        self._rules = rules
        self._patterns = [rule.pattern for rule in rules]
        self._arrivals = sorted(arrivals, key=lambda one: one.at_s)
        self._fleet = fleet
        self._next = 0
        self._endings: list[_Ending] = []
        self._open_at: float | None = None
        self._scheduler = Scheduler(MOST_STARTED, Patience(0.0, 0.0))
        self._seats: dict[UUID, _Seat] = {}
        self._over: list[Job] = []
        self._longest: Counter[str] = Counter()
        self._of_lanes: defaultdict[int, dict[str, float]] = defaultdict(dict)
        self._still: dict[int, tuple[str, float]] = {}
        """The jobs whose lane is closed: by which key, and since when."""
        self._told_at = 0.0

    async def run(self) -> Rehearsed:
        self._clock = VirtualClock()
        self._store = MemoryStore(self._clock.utc)
        self._fair_uses = FairUses(self._store)
        await self._prepare()
        end_s = 0.0
        while (at_s := self._next_at()) is not None:
            await asyncio.sleep(max(0.0, at_s - self._clock.now()))
            finishes, submits = self._due()
            await self._open_limits()
            await self._tell_uses()
            await self._commit(finishes, submits)
            if finishes:
                end_s = self._clock.now()
        behind = Counter(self._waiting_for())
        never = len(self._store._jobs)
        longest = dict(self._longest)
        told = (longest, dict(behind), never, end_s, dict(self._of_lanes))
        return Rehearsed(self._arrivals, self._over, *told)

    async def _prepare(self) -> None:
        await self._store.renew(_DISPATCHER, "rehearsal")
        for rule in self._rules:
            await self._store.set_limit(rule)
        kinds = {one.kind: KindInfo(Pool.COROUTINE) for one in self._arrivals}
        pools = {Pool.COROUTINE.value: self._fleet.slots}
        for number in range(1, self._fleet.workers + 1):
            info = WorkerInfo(
                id=UUID(int=number), name=f"worker-{number}", kinds=kinds, pools=pools
            )
            answer = await self._store.attend(_DISPATCHER, info)
            assert isinstance(answer, Attended), answer
            self._seats[info.id] = seat = _Seat(info, answer.session)
            self._scheduler.joined(seat)

    def _next_at(self) -> float | None:
        """When something happens next: a job comes, or ends, or a rate has room."""
        coming = self._arrivals[self._next : self._next + 1]
        times = [*(one.at_s for one in coming), *(one.at_s for one in self._endings[:1])]
        return min((*times, *([] if self._open_at is None else [self._open_at])), default=None)

    def _due(self) -> tuple[list[End], list[Submission]]:
        """What ends and what comes now."""
        # A sleep ends within a microsecond of its time.
        now = self._clock.now() + 1e-6
        finishes: list[End] = []
        while self._endings and self._endings[0].at_s <= now:
            one = heappop(self._endings).attempt
            self._seats[one.worker].busy -= 1
            finishes.append(Succeeded(one.id, one.token, by=str(one.worker)))
            if one.options.fair:
                run_s = self._arrivals[one.number - 1].run_s
                self._fair_uses.took(one, finishes[-1], run_s)
        submits: list[Submission] = []
        while self._next < len(self._arrivals) and self._arrivals[self._next].at_s <= now:
            self._next += 1
            submits.append(_submission(self._arrivals[self._next - 1], self._next))
        return finishes, submits

    async def _open_limits(self) -> None:
        """What a dispatcher does when a rate has room again."""
        if self._open_at is None or self._open_at > self._clock.now() + 1e-6:
            return
        opened = await self._store.open_limits()
        self._opens_in(opened.next_s, anew=True)
        self._scheduler.lanes.mark_ready(self._scheduler.lanes.known(opened.ready))

    async def _tell_uses(self) -> None:
        """What a dispatcher does with each poll, if jobs share."""
        if self._clock.now() - self._told_at >= POLL_S:
            self._told_at = self._clock.now()
            await self._fair_uses.tell()

    def _opens_in(self, next_s: float | None, *, anew: bool = False) -> None:
        at = None if next_s is None else self._clock.now() + max(next_s, 1e-6)
        known = None if anew else self._open_at
        self._open_at = min((one for one in (at, known) if one is not None), default=None)

    async def _commit(self, finishes: Sequence[End], submits: Sequence[Submission]) -> None:
        """Batches, as a dispatcher makes them, until there is nothing more to claim."""
        again: float | None = 0.0
        while again is not None:
            now = self._clock.now()
            plan = self._scheduler.plan(submits, has_ends=bool(finishes), now=now)
            if not (finishes or submits or plan.claims):
                break
            batch = Batch(finishes, submits, plan.claims, plan.slots)
            result = await self._store.pump(_DISPATCHER, batch)
            if result.limits_open_s is not None:
                self._opens_in(result.limits_open_s)
            for answer in result.submitted:
                assert isinstance(answer, Submitted), answer
            for one in (*result.started, *result.claimed):
                self._begin(one)
            again = self._scheduler.answered(batch, result)
            await self._take_away(finishes)
            finishes, submits = (), ()
        self._look_at_lanes()
        for key, waiting in Counter(self._waiting_for()).items():
            self._longest[key] = max(self._longest[key], waiting)

    def _begin(self, attempt: Attempt) -> None:
        seat = self._seats[attempt.worker]
        seat.busy += 1
        seat.given += 1
        run_s = self._arrivals[attempt.number - 1].run_s
        heappush(self._endings, _Ending(self._clock.now() + run_s, attempt.number, attempt))

    async def _take_away(self, finishes: Sequence[End]) -> None:
        """Jobs that ended leave the store: it need not look at them again."""
        for end in finishes:
            job = await self._store.job(end.job)
            assert job is not None
            self._over.append(job)
            self._store._drop_job(self._store._jobs[end.job])

    def _look_at_lanes(self) -> None:
        """Adds up how long jobs wait because a rule has closed their lane, and who does now."""
        now, before = self._clock.now(), self._still
        closed = self._store.closed_lanes() if any(map(is_of_lanes, self._patterns)) else {}
        rows = [row for row in self._store._jobs.values() if row.lane.hash in closed]
        waiting = [row for row in rows if row.state is JobState.READY and row.behind is None]
        self._still = {row.job.number: (closed[row.lane.hash], now) for row in waiting}
        for number, (key, since) in before.items():
            sums = self._of_lanes[number]
            sums[key] = sums.get(key, 0.0) + now - since

    def _waiting_for(self) -> list[str]:
        """The keys for which jobs wait, once for each job."""
        rows = self._store._jobs.values()
        behind = [row.behind.key for row in rows if row.behind is not None]
        return behind + [key for key, _ in self._still.values()]


def _submission(arrival: Arrival, number: int) -> Submission:
    return Submission(
        UUID(int=number),
        arrival.kind,
        b"\x80",
        queue=arrival.queue,
        priority=arrival.priority,
        options=Options(limits=arrival.limits, fair=arrival.fair),
    )
