"""What goes into the next transaction: which submits, which claims, for whose slots.

Theory. The dispatcher tells the scheduler what happened: a session began or ended, a lane gained
jobs, the store answered a transaction. The scheduler answers with a `Plan` for the next one. It has
no clock, store or socket, and may lose all that it knows: the store knows the truth.

- A *lane* (queue, kind, target) holds jobs that the same workers can run. For each lane the
  scheduler estimates how many jobs are ready. An estimate that is too high is corrected by the next
  claim, which finds less. One that is too low is raised soon, by a hint or a poll.
- Workers that serve the same lanes share a profile (see `placement`). For each profile and pool, a
  plan claims as many jobs as there are free slots, at most as many as the lanes seem to hold.
- A submit starts in the statement that stores it, if a slot is free that no ready job waits for.
  `admission` says how long submits wait for such a slot.
- A job of a group starts in the transaction that records the last end it waited for, if a slot is
  left over that no ready job waits for: the plan names such slots.
- Free slots are filled first. Only then does a plan *look ahead*: it gives sessions attempts that
  their workers hold until a slot comes free (see `lookahead`). So no worker is idle while another
  one holds attempts ahead. Such a claim names all lanes of the pool, and stops before the first job
  that may not be held ahead. These lanes are then *barred*: no plan looks ahead in this pool until
  one has claimed from them for a free slot. Otherwise the slots would never come free for that job.
- When the answer to a transaction gets lost, the dispatcher does not know which jobs the store has
  given to the sessions in it. These are *uncertain*: they get no jobs until it has read that back.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from typing import Final, NamedTuple, Protocol

from longshore.core.admission import Admission, FreeSlots, Patience
from longshore.core.lanes import lane_of
from longshore.core.placement import Profile, slots_in_order, without
from longshore.core.turns import is_turn_kind
from longshore.model.batch import Batch, BatchResult
from longshore.model.ends import WITH_OUTBOX
from longshore.model.job import Submission, Verdict
from longshore.model.reports import OutboxJob, OutboxNode
from longshore.model.worker import (
    Ahead,
    Claim,
    FreeWorker,
    Lane,
    OpenSlots,
    SessionKey,
    WorkerInfo,
)

ANY_NUMBER: Final = float("inf")

CONTESTED_S: Final = 0.005
"""By then another dispatcher has released the rows that both tried to claim."""


class SessionSlots(Protocol):
    """What the scheduler knows of one session of a worker."""

    info: WorkerInfo
    number: int
    given: int

    @property
    def ahead(self) -> Ahead:
        """What it holds ahead of its slots."""

    @property
    def open_ahead(self) -> Mapping[str, int]:
        """How many more attempts it holds ahead of its slots, by pool."""

    @property
    def open_slots(self) -> Mapping[str, int]:
        """How many more attempts the worker takes, by pool."""


class Plan(NamedTuple):
    """What to claim, and for each submit the slot on which it can start at once, if any.

    `for_dependents` are slots that neither needs, for jobs that the ends of others make ready.
    """

    claims: list[Claim]
    slots: Sequence[SessionKey | None]
    for_dependents: Sequence[OpenSlots] = ()


class _Offer(NamedTuple):
    """Sessions of one profile that can take attempts of one pool, from these lanes."""

    profile: Profile
    pool: str
    lanes: set[int]
    free: list[FreeWorker]
    is_ahead: bool = False

    @property
    def taker(self) -> tuple[Profile, str]:
        """Whose slots these are."""
        return self.profile, self.pool


_Members = dict[SessionKey, SessionSlots]
_Taker = tuple[Profile, str]


class Scheduler:
    """Plans the transactions of one dispatcher."""

    def __init__(self, max_batch: int, patience: Patience) -> None:
        self.lanes = LaneEstimates()
        self._max_batch = max_batch
        self._admission = Admission(max_batch, patience)
        self._profiles: dict[object, tuple[Profile, _Members]] = {}
        self._uncertain: set[SessionKey] = set()
        self._barred: set[int] = set()
        self._turn = 0

    # sessions

    def joined(self, one: SessionSlots) -> None:
        """A session began. Its worker may serve lanes that no other worker serves."""
        key = Profile.key(one.info)
        if key not in self._profiles:
            self._profiles[key] = Profile(one.info, self.lanes), {}
        self._profiles[key][1][_key_of(one)] = one
        self.lanes.mark_all()

    def left(self, one: SessionSlots) -> None:
        """A session ended."""
        self._uncertain.discard(_key_of(one))
        key = Profile.key(one.info)
        members = self._profiles[key][1]
        del members[_key_of(one)]
        if not members:
            del self._profiles[key]

    def infos(self) -> list[WorkerInfo]:
        """What workers say of themselves: one worker of each profile."""
        return [next(iter(members.values())).info for _, members in self._profiles.values()]

    def mark_uncertain(self, slots: Iterable[SessionKey]) -> None:
        """The answer to a transaction for these sessions got lost: they must be read back."""
        members = {slot for _, some in self._profiles.values() for slot in some}
        self._uncertain.update(members.intersection(slots))

    def uncertain(self) -> list[SessionKey]:
        """The sessions that must be read back."""
        return list(self._uncertain)

    def confirm(self, slots: Iterable[SessionKey]) -> None:
        """These sessions were read back."""
        self._uncertain.difference_update(slots)

    # lanes

    def add_lanes(self, lanes: Iterable[Lane]) -> None:
        """These lanes exist."""
        for lane in self.lanes.add(lanes):
            for profile, _ in self._profiles.values():
                profile.add_lane(lane)

    def sync_lanes(self, lanes: Collection[Lane]) -> None:
        """The store has these lanes. Others are forgotten, unless they came since the last time."""
        for lane in self.lanes.drop_others(lanes):
            self._barred.discard(lane.hash)
            for profile, _ in self._profiles.values():
                profile.drop_lane(lane)
        self.add_lanes(lanes)
        self.lanes.synced()

    def submitted(self, jobs: Iterable[Submission]) -> None:
        """The store has these jobs. Those without a delay are ready."""
        lanes = Counter(lane_of(job.queue, job.kind, job.target) for job in jobs)
        self.add_lanes(lanes)
        self.lanes.add_ready({lane.hash: count for lane, count in lanes.items()})

    # plans

    def free_slots(self) -> FreeSlots:
        """How many slots are free; if ready jobs wait for some, only these count."""
        free = wanted_free = 0
        wanted = False
        for profile, members in self._profiles.values():
            for pool, lanes in profile.lanes.items():
                some = sum(_room(one, pool) for one in members.values())
                free += some
                if self.lanes.is_any_ready(lanes):
                    wanted = True
                    wanted_free += some
        return FreeSlots(wanted_free if wanted else free, wanted)

    def admit(self, now: float, oldest_at: float) -> int:
        """How many submits to take now; 0 to wait for a slot. The oldest came at `oldest_at`."""
        return self._admission.room(self.free_slots(), now, oldest_at)

    def plan(self, submits: Sequence[Submission], *, has_ends: bool = False) -> Plan:
        """Finds slots for submits that can start at once, and claims for the other free slots.

        If the transaction has ends, or messages to actors, what is left of the slots is for jobs
        that these make ready.
        """
        lanes = [lane_of(job.queue, job.kind, job.target) for job in submits]
        self.add_lanes(dict.fromkeys(lanes))
        slots: list[SessionKey | None] = [None] * len(submits)
        starters = self._start(submits, lanes, slots)
        if None in slots:
            left = (lane.hash for lane, one in zip(lanes, slots, strict=True) if one is None)
            self.lanes.add_ready(Counter(left))
        if submits:
            self._admission.took(any_started=bool(starters))
        self.lanes.claim_sent()
        self._turn += 1
        if not (has_ends or self.lanes.are_any_ready):
            return Plan([], slots)
        claims, unused = self._claims(starters)
        return Plan(claims, slots, unused if has_ends else ())

    def answered(self, batch: Batch, result: BatchResult) -> float | None:
        """The store answered a transaction.

        Answers in how many seconds to plan again even if nothing else happens; None if there is no
        need.
        """
        self.add_lanes(_sent_lanes(batch, result))
        self.lanes.claimed(batch.claims, result.taken)
        self.lanes.mark_ready({*result.contested, *result.barred})
        self._barred.update(result.barred)
        ready = result.ready_by_ends
        self.lanes.add_ready({lane: ready[lane] for lane in self.lanes.known(ready)})
        if batch.sends:
            self.lanes.mark_ready(self.lanes.known(result.ready))
        waiting = _not_started(batch, result)
        if waiting:
            self.submitted(waiting)
        if result.contested and not result.taken:
            return CONTESTED_S
        # A batch has no room for every lane. Those that gave nothing now count as empty.
        return 0.0 if batch.claims or result.ready or waiting else None

    def _start(
        self, jobs: Sequence[Submission], lanes: Sequence[Lane], slots: list[SessionKey | None]
    ) -> set[_Taker]:
        """Fills `slots` for jobs that no ready job precedes; answers whose slots these are."""
        starters: set[_Taker] = set()
        waiting = _by_lane(jobs, lanes)
        for offer in self._offers() if waiting else ():
            if not waiting:
                break
            served = offer.lanes & waiting.keys()
            if not served or self.lanes.is_any_ready(offer.profile.lanes[offer.pool]):
                continue
            most = sum(one.free for one in offer.free)
            first = sorted(turn for lane in served for turn in waiting[lane][:most])
            for (_, job), one in zip(first, slots_in_order(offer.free, len(first)), strict=False):
                slots[job] = one
                starters.add(offer.taker)
            for lane in served:
                left = [turn for turn in waiting[lane][:most] if slots[turn[1]] is None]
                waiting[lane][:most] = left
                if not waiting[lane]:
                    del waiting[lane]
        return starters

    def _claims(self, starters: Collection[_Taker]) -> tuple[list[Claim], list[OpenSlots]]:
        """What to claim now, for sessions that can take more and are not uncertain; what is left.

        The profiles take turns to be first, so that none is left out for good. Those whose slots
        went to submits must wait for the next plan.
        """
        found: list[Claim] = []
        left: list[OpenSlots] = []
        most = self._max_batch
        for offer in self._offers():
            if offer.taker in starters:
                continue
            lanes = self.lanes.ready(offer.lanes)
            if not lanes and not offer.is_ahead:
                left.append(OpenSlots(offer.lanes, offer.free))
            if most <= 0 or not lanes or self._is_barred(offer):
                continue
            # What earlier claims of this plan take from these lanes is not there any more.
            before = sum(len(one.slots) for one in found if not lanes.keys().isdisjoint(one.lanes))
            wanted = sum(lanes.values()) - before
            keeps = not offer.is_ahead and self.lanes.has_turns(lanes.keys())
            # For a turn, all workers are asked: the one that had its actor last may be any of them.
            some = int(min(most, wanted)) if not keeps or wanted <= 0 else most
            claim = self._claim(offer, lanes.keys(), some, keeps) if some > 0 else None
            if claim is not None:
                most -= len(claim.slots)
                found.append(claim)
                if len(claim.slots) >= wanted and not offer.is_ahead:
                    left.append(OpenSlots(offer.lanes, without(offer.free, claim.slots)))
        return found, left

    def _is_barred(self, offer: _Offer) -> bool:
        return offer.is_ahead and not self._barred.isdisjoint(offer.profile.lanes[offer.pool])

    def _claim(self, offer: _Offer, lanes: Set[int], most: int, keeps: bool) -> Claim | None:
        of_pool = offer.profile.lanes[offer.pool]
        if not offer.is_ahead:
            self._barred -= of_pool
            return offer.profile.claim(lanes, offer.free, most, keeps=keeps)
        every = self.lanes.ready(of_pool)
        return offer.profile.claim(every.keys(), offer.free, most, frozenset(lanes))

    def _offers(self) -> Iterator[_Offer]:
        """What sessions can take: first on their free slots, then ahead of them."""
        takers = self._in_turn()
        for profile, members, pool in takers:
            free = self._free(members, pool, lambda one, pool: one.open_slots.get(pool, 0))
            if free:
                yield _Offer(profile, pool, profile.lanes[pool], free)
        for profile, members, pool in takers:
            alike: dict[tuple[str, ...], _Members] = {}
            for key, one in members.items():
                if one.ahead.pools.get(pool):
                    alike.setdefault(one.ahead.kinds, {})[key] = one
            for kinds, some in alike.items():
                lanes = {lane for lane in profile.lanes[pool] if self.lanes.kind_of(lane) in kinds}
                yield _Offer(profile, pool, lanes, self._free(some, pool, _ahead_room), True)

    def _in_turn(self) -> list[tuple[Profile, _Members, str]]:
        takers = [
            (profile, members, pool)
            for profile, members in self._profiles.values()
            for pool in profile.lanes
        ]
        first = self._turn % len(takers) if takers else 0
        return takers[first:] + takers[:first]

    def _free(
        self, members: _Members, pool: str, room: Callable[[SessionSlots, str], int]
    ) -> list[FreeWorker]:
        return [
            FreeWorker(key, free, one.given)
            for key, one in members.items()
            if (free := room(one, pool)) > 0 and key not in self._uncertain
        ]


class LaneEstimates:
    """The lanes that exist, and an estimate of how many ready jobs each holds."""

    def __init__(self) -> None:
        self._lanes: dict[int, Lane] = {}
        self._queues: Counter[str] = Counter()
        self._added: set[int] = set()
        """The lanes that came since the store last listed its lanes."""
        self._turns: set[int] = set()
        """Those of the turns of actors."""
        self._ready: dict[int, float] = {}
        self._marked: dict[int, int] = {}
        """For each lane in `_ready`, the number of the last change that raised its estimate."""
        self._marks = 0
        self._sent_at_mark = 0

    def __iter__(self) -> Iterator[Lane]:
        return iter(self._lanes.values())

    def __len__(self) -> int:
        return len(self._lanes)

    def __contains__(self, lane: Lane) -> bool:
        return lane.hash in self._lanes

    def kind_of(self, lane: int) -> str:
        """The kind of the jobs in a lane."""
        return self._lanes[lane].kind

    def has_turns(self, lanes: Set[int]) -> bool:
        """Whether one of these lanes is of the turns of actors."""
        return bool(self._turns) and not self._turns.isdisjoint(lanes)

    def has_queue(self, queue: str) -> bool:
        """Whether there is a lane of this queue."""
        return self._queues[queue] > 0

    def known(self, lanes: Iterable[int]) -> list[int]:
        """Those of these lanes that exist."""
        return [lane for lane in lanes if lane in self._lanes]

    def add(self, lanes: Iterable[Lane]) -> list[Lane]:
        """These lanes exist; answers those that are new here."""
        new = [lane for lane in lanes if lane.hash not in self._lanes]
        for lane in new:
            self._lanes[lane.hash] = lane
            self._added.add(lane.hash)
            if is_turn_kind(lane.kind):
                self._turns.add(lane.hash)
            self._queues[lane.queue] += 1
        return new

    def drop_others(self, lanes: Iterable[Lane]) -> list[Lane]:
        """Forgets all lanes but these, and those added since `synced`; answers the forgotten."""
        kept = {lane.hash for lane in lanes}
        gone = [self._lanes.pop(hash) for hash in self._lanes.keys() - kept - self._added]
        for lane in gone:
            self._turns.discard(lane.hash)
            self._ready.pop(lane.hash, None)
            self._marked.pop(lane.hash, None)
            self._queues[lane.queue] -= 1
        return gone

    def synced(self) -> None:
        """The lanes here are those of the store."""
        self._added = set()

    # how many ready jobs they hold

    def mark_all(self) -> None:
        """Any lane may hold ready jobs."""
        self.mark_ready(self._lanes)

    def mark_ready(self, lanes: Iterable[int]) -> None:
        """These lanes may hold any number of ready jobs."""
        for lane in lanes:
            self._raise(lane, ANY_NUMBER)

    def add_ready(self, lanes: Mapping[int, int]) -> None:
        """These lanes gained so many ready jobs."""
        for lane, count in lanes.items():
            self._raise(lane, count)

    def _raise(self, lane: int, count: float) -> None:
        self._marks += 1
        self._ready[lane] = self._ready.get(lane, 0) + count
        self._marked[lane] = self._marks

    def claim_sent(self) -> None:
        """A claim goes out, based on the estimates as they are now."""
        self._sent_at_mark = self._marks

    def claimed(self, claims: Sequence[Claim], taken: Mapping[int, int]) -> None:
        """A claim took so many jobs. Lanes that gave less than it wanted are empty.

        A lane whose estimate rose since the claim went out stays.
        """
        for lane in self._ready.keys() & taken.keys():
            self._ready[lane] -= taken[lane]
        empty = {lane for lane in taken if self._ready.get(lane, 0) <= 0}
        for claim in claims:
            if sum(taken.get(lane, 0) for lane in claim.lanes) < len(claim.slots):
                empty.update(
                    lane for lane in claim.lanes if self._marked.get(lane, 0) <= self._sent_at_mark
                )
        for lane in empty & self._ready.keys():
            del self._ready[lane]

    def ready(self, lanes: set[int]) -> dict[int, float]:
        """Which of these lanes may hold ready jobs, and how many."""
        return {lane: self._ready[lane] for lane in lanes & self._ready.keys()}

    @property
    def are_any_ready(self) -> bool:
        """Whether any lane may hold ready jobs."""
        return bool(self._ready)

    def is_any_ready(self, lanes: set[int]) -> bool:
        """Whether any of these lanes may hold ready jobs."""
        # In this order it takes time for the smaller set only.
        return not self._ready.keys().isdisjoint(lanes)


def _key_of(one: SessionSlots) -> SessionKey:
    return SessionKey(one.info.id, one.number)


def _ahead_room(one: SessionSlots, pool: str) -> int:
    return one.open_ahead.get(pool, 0)


def _room(one: SessionSlots, pool: str) -> int:
    """How many attempts a session takes now, on its free slots and ahead of them."""
    return max(0, one.open_slots.get(pool, 0)) + max(0, _ahead_room(one, pool))


def _by_lane(jobs: Sequence[Submission], lanes: Sequence[Lane]) -> dict[int, list[tuple[int, int]]]:
    """The indexes of jobs that can start now, by lane, the most urgent first."""
    waiting: dict[int, list[tuple[int, int]]] = {}
    for place, (job, lane) in enumerate(zip(jobs, lanes, strict=True)):
        if job.run_at is None and job.delay_s is None:
            waiting.setdefault(lane.hash, []).append((-job.priority, place))
    for turns in waiting.values():
        turns.sort()
    return waiting


def _sent_lanes(batch: Batch, result: BatchResult) -> set[Lane]:
    """The lanes of jobs in outboxes. Some may be new to this dispatcher."""
    return {
        lane_of(item.job.queue, item.job.kind, item.job.target)
        for end, finished in zip(batch.finishes, result.finished, strict=True)
        if isinstance(end, WITH_OUTBOX) and end.outbox
        if finished.verdict is not Verdict.STALE
        for item in end.outbox
        if isinstance(item, OutboxJob | OutboxNode)
    }


def _not_started(batch: Batch, result: BatchResult) -> list[Submission]:
    """Submits that did not start on their slots.

    They are ready: since now, or since an earlier batch whose answer got lost.
    """
    if len(result.started) == sum(slot is not None for slot in batch.slots):
        return []
    started = {one.id.int for one in result.started}
    return [
        job
        for job, slot in zip(batch.submits, batch.slots, strict=True)
        if slot is not None and job.id.int not in started
    ]
