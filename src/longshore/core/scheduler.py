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
- Lanes whose jobs take *resources* (see `resources`) are claimed shape by shape, for workers on
  which such jobs fit now. A plan serves one shape of a profile, and of its pool no other lanes: so
  no slot and no resource is promised twice. The shapes take turns. One that fits nowhere for
  `RESERVE_S` reserves a worker, which gets no other jobs with resources until such a job fits.
- A job that needs *files* goes to a worker that has them at hand, if that one has a free slot (see
  `files_at_hand`). For that a claim from lanes of such kinds offers the slots of all workers.
- When the answer to a transaction gets lost, the dispatcher does not know which jobs the store has
  given to the sessions in it. These are *uncertain*: they get no jobs until it has read that back.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from types import MappingProxyType
from typing import Final, NamedTuple, Protocol
from uuid import UUID

from msgspec import structs

from longshore.core.admission import Admission, FreeSlots, Patience
from longshore.core.files_at_hand import FilesSent, nearest
from longshore.core.lane_estimates import LaneEstimates
from longshore.core.lanes import lane_of
from longshore.core.placement import Profile, placed, without
from longshore.core.reservations import Reservations
from longshore.core.resources import amounts_of, free_share, how_many
from longshore.model.batch import Batch, BatchResult
from longshore.model.ends import WITH_OUTBOX
from longshore.model.job import Submission, Verdict
from longshore.model.reports import OutboxJob, OutboxNode
from longshore.model.worker import (
    Ahead,
    Claim,
    FileKey,
    FilesAtHand,
    FreeWorker,
    KindInfo,
    Lane,
    OpenSlots,
    SessionKey,
    WorkerInfo,
)

CONTESTED_S: Final = 0.005
"""By then another dispatcher has released the rows that both tried to claim."""
NO_INPUTS: Final[Mapping[int, Sequence[FileKey]]] = MappingProxyType({})


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

    @property
    def free_resources(self) -> Mapping[str, float]:
        """What is left of what its jobs share."""


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
    shape: str = ""

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
        self._reservations = Reservations()
        self._turn = 0
        self.files = FilesSent()
        self.file_kinds: Mapping[str, KindInfo] = {}
        """The kinds that have to do with files."""

    # sessions

    def joined(self, one: SessionSlots) -> None:
        """A session began. Its worker may serve lanes that no other worker serves."""
        key = Profile.key(one.info)
        if key not in self._profiles:
            self._profiles[key] = Profile(one.info, self.lanes), {}
            self._find_file_kinds()
        self._profiles[key][1][_key_of(one)] = one
        self.lanes.mark_all()

    def left(self, one: SessionSlots) -> None:
        """A session ended."""
        self._uncertain.discard(_key_of(one))
        self._reservations.left(_key_of(one))
        key = Profile.key(one.info)
        members = self._profiles[key][1]
        del members[_key_of(one)]
        if not members:
            del self._profiles[key]
            self._find_file_kinds()

    def _find_file_kinds(self) -> None:
        profiles = [profile for profile, _ in self._profiles.values()]
        self.file_kinds = {kind: i for one in profiles for kind, i in one.file_kinds.items()}

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

    def plan(
        self,
        submits: Sequence[Submission],
        *,
        has_ends: bool = False,
        now: float = 0.0,
        inputs: Mapping[int, Sequence[FileKey]] = NO_INPUTS,
    ) -> Plan:
        """Finds slots for submits that can start at once, and claims for the other free slots.

        If the transaction has ends, or messages to actors, what is left of the slots is for jobs
        that these make ready. `inputs` are the files that submits need, by their places.
        """
        self._reservations.now = now
        lanes = [lane_of(job.queue, job.kind, job.target) for job in submits]
        self.add_lanes(dict.fromkeys(lanes))
        slots: list[SessionKey | None] = [None] * len(submits)
        starters = self._start(submits, lanes, slots, inputs)
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
        self.lanes.claimed(batch.claims, result.taken, result.closed)
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
        self,
        jobs: Sequence[Submission],
        lanes: Sequence[Lane],
        slots: list[SessionKey | None],
        inputs: Mapping[int, Sequence[FileKey]],
    ) -> set[_Taker]:
        """Fills `slots` for jobs that no ready job precedes; answers whose slots these are."""
        starters: set[_Taker] = set()
        waiting = _by_lane(jobs, lanes)
        for offer in self._offers() if waiting else ():
            if not waiting:
                break
            served = offer.lanes & waiting.keys()
            if not served or self.lanes.is_any_ready(offer.lanes):
                continue
            most = sum(one.free for one in offer.free)
            first = sorted(turn for lane in served for turn in waiting[lane][:most])
            places = [place for _, place in first]
            near = self._nearest(jobs, places, inputs, offer.free)
            for job, one in zip(places, placed(near, offer.free), strict=False):
                slots[job] = one
                starters.add(offer.taker)
            for lane in served:
                left = [turn for turn in waiting[lane][:most] if slots[turn[1]] is None]
                waiting[lane][:most] = left
                if not waiting[lane]:
                    del waiting[lane]
        return starters

    def _nearest(
        self,
        jobs: Sequence[Submission],
        places: Sequence[int],
        inputs: Mapping[int, Sequence[FileKey]],
        free: Sequence[FreeWorker],
    ) -> list[UUID | None]:
        """For each of these submits the worker that has its files, if one has."""
        if not inputs or len(free) < 2:
            return [None] * len(places)
        by_room = sorted(free, key=lambda one: (-one.free, one.given))
        workers, having = [one.slot.worker for one in by_room], self.files.workers
        return [nearest(jobs[at].id, 0, inputs.get(at, ()), having, workers) for at in places]

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
            at_hand = self._at_hand(offer, lanes.keys())
            # For a turn, all workers are asked: the one that had its actor last may be any of them.
            # So may the one that has the files of a job.
            asks_all = wanted > 0 and (keeps or at_hand is not None)
            some = most if asks_all else int(min(most, wanted))
            claim = self._claim(offer, lanes.keys(), some, keeps, at_hand) if some > 0 else None
            if claim is not None:
                most -= len(claim.slots)
                found.append(claim)
                if offer.shape:
                    self._reservations.claimed(offer.shape, claim.slots)
                if len(claim.slots) >= wanted and not offer.is_ahead:
                    left.append(OpenSlots(offer.lanes, without(offer.free, claim.slots)))
        return found, left

    def _is_barred(self, offer: _Offer) -> bool:
        return offer.is_ahead and not self._barred.isdisjoint(offer.profile.lanes[offer.pool])

    def _at_hand(self, offer: _Offer, lanes: Set[int]) -> FilesAtHand | None:
        """Who has which files, if some of these jobs may need files and there is a choice."""
        profile, having = offer.profile, self.files.workers
        if not having or offer.is_ahead or len(offer.free) < 2:
            return None
        return (
            None if profile.file_lanes.isdisjoint(lanes) else FilesAtHand(having, self.file_kinds)
        )

    def _claim(
        self,
        offer: _Offer,
        lanes: Set[int],
        most: int,
        keeps: bool,
        at_hand: FilesAtHand | None,
    ) -> Claim | None:
        if offer.shape:
            return offer.profile.claim(lanes, offer.free, most, at_hand=at_hand)
        of_pool = offer.profile.lanes[offer.pool]
        if not offer.is_ahead:
            self._barred -= of_pool
            return offer.profile.claim(lanes, offer.free, most, keeps=keeps, at_hand=at_hand)
        every = self.lanes.ready(of_pool)
        return offer.profile.claim(every.keys(), offer.free, most, frozenset(lanes))

    def _offers(self) -> Iterator[_Offer]:
        """What sessions can take: first on their free slots, then ahead of them."""
        takers = self._in_turn()
        has_shape: set[Profile] = set()
        for profile, members, pool in takers:
            if profile.shaped and profile not in has_shape:
                shaped = self._shaped_offer(profile, members, pool)
                if shaped is not None:
                    has_shape.add(profile)
                    yield shaped
                    continue
            free = self._free(members, pool, lambda one, pool: one.open_slots.get(pool, 0))
            if free and pool in profile.lanes:
                yield _Offer(profile, pool, profile.lanes[pool], free)
        for profile, members, pool in takers:
            if pool not in profile.lanes:
                continue
            alike: dict[tuple[str, ...], _Members] = {}
            for key, one in members.items():
                if one.ahead.pools.get(pool):
                    alike.setdefault(one.ahead.kinds, {})[key] = one
            for kinds, some in alike.items():
                lanes = {lane for lane in profile.lanes[pool] if self.lanes.kind_of(lane) in kinds}
                yield _Offer(profile, pool, lanes, self._free(some, pool, _ahead_room), True)

    def _shaped_offer(self, profile: Profile, members: _Members, pool: str) -> _Offer | None:
        """What workers can take of one shape, if this plan is for one and not for other lanes."""
        shapes = profile.shaped.get(pool)
        if not shapes:
            return None
        wanted = [shape for shape, lanes in shapes.items() if self.lanes.is_any_ready(lanes)]
        plain = profile.lanes.get(pool, set())
        turns = [*wanted, ""] if self.lanes.is_any_ready(plain) or not wanted else wanted
        first = self._turn % len(turns)
        for shape in turns[first:] + turns[:first]:
            if not shape:
                return None
            free = self._fitting(members, pool, shape)
            if free:
                return _Offer(profile, pool, shapes[shape], free, shape=shape)
        return None

    def _fitting(self, members: _Members, pool: str, shape: str) -> list[FreeWorker]:
        """The workers on which jobs of this shape fit now, and how many; notes if there is none."""
        needed = amounts_of(shape)
        allowed = {key: one for key, one in members.items() if self._reservations.may(key, shape)}

        def fits(one: SessionSlots, pool: str) -> int:
            return min(one.open_slots.get(pool, 0), how_many(one.free_resources, needed))

        free = [_with_room(one, members[one.slot]) for one in self._free(allowed, pool, fits)]
        if not free:
            open = [(k, one) for k, one in members.items() if one.open_slots]
            best = max(open, key=lambda two: _nearness(two[1], needed), default=None)
            self._reservations.blocked(shape, None if best is None else best[0])
        return free

    def _in_turn(self) -> list[tuple[Profile, _Members, str]]:
        takers = [
            (profile, members, pool)
            for profile, members in self._profiles.values()
            for pool in (profile.pools() if profile.shaped else profile.lanes)
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


def _key_of(one: SessionSlots) -> SessionKey:
    return SessionKey(one.info.id, one.number)


def _with_room(free: FreeWorker, one: SessionSlots) -> FreeWorker:
    """Free slots for jobs that take resources: these are packed."""
    return structs.replace(free, room=free_share(one.free_resources, one.info.resources))


def _nearness(one: SessionSlots, needed: Mapping[str, float]) -> float:
    """How large a part of what is needed is free on a worker, of what it has least of."""
    return min(one.free_resources.get(name, 0.0) / amount for name, amount in needed.items())


def _ahead_room(one: SessionSlots, pool: str) -> int:
    return one.open_ahead.get(pool, 0)


def _room(one: SessionSlots, pool: str) -> int:
    """How many attempts a session takes now, on its free slots and ahead of them."""
    return max(0, one.open_slots.get(pool, 0)) + max(0, _ahead_room(one, pool))


def _by_lane(jobs: Sequence[Submission], lanes: Sequence[Lane]) -> dict[int, list[tuple[int, int]]]:
    """The indexes of jobs that can start now, by lane, the most urgent first.

    Only a claim starts jobs with limits.
    """
    waiting: dict[int, list[tuple[int, int]]] = {}
    for place, (job, lane) in enumerate(zip(jobs, lanes, strict=True)):
        if job.run_at is None and job.delay_s is None and not job.options.limits:
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
