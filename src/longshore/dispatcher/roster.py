"""The roster: which workers this dispatcher attends, and which lanes may hold work for them.

All of it is memory that can be lost: the store knows who is attended and what is placed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple
from uuid import UUID

from longshore.core.intake import Seats
from longshore.core.lanes import lane_of
from longshore.core.placement import Place, Profile, seat
from longshore.model.job import Submission
from longshore.model.worker import KindInfo, Lane, Pool, Seat, Want, WorkerInfo
from longshore.wire.dispatcher_side import Attendance

ANY_NUMBER: Final = float("inf")

_Taker = tuple[Profile, Pool]


class Plan(NamedTuple):
    """What to claim, and for each submit the seat at which it can begin at once."""

    wants: list[Want]
    seats: Sequence[Seat | None]


class Roster:
    """Attended workers by peer and by session, alike ones together."""

    def __init__(self) -> None:
        self._by_peer: dict[bytes, Attendance] = {}
        self._by_worker: dict[UUID, Attendance] = {}
        self._profiles: dict[object, tuple[Profile, dict[UUID, Attendance]]] = {}
        self._lanes: dict[int, Lane] = {}
        self._queues: Counter[str] = Counter()
        self._learned: set[int] = set()
        """The lanes that were heard of since it was last settled which there are."""
        self._hot: dict[int, float] = {}
        """The lanes that may hold jobs, and how many, as far as that is known."""
        self._heated: dict[int, int] = {}
        self._changes = 0
        self._asked = 0
        self._turn = 0
        self._doubted: set[Seat] = set()

    def __iter__(self) -> Iterator[Attendance]:
        return iter(list(self._by_worker.values()))

    def __len__(self) -> int:
        return len(self._by_worker)

    def __contains__(self, attendance: Attendance) -> bool:
        return self._by_worker.get(attendance.info.id) is attendance

    def add(self, attendance: Attendance) -> None:
        """A worker is attended; an earlier session of it is over."""
        self.remove(self._by_worker.get(attendance.info.id))
        self._by_peer[attendance.peer] = attendance
        self._by_worker[attendance.info.id] = attendance
        key = Profile.key(attendance.info)
        if key not in self._profiles:
            self._profiles[key] = Profile(attendance.info, self._lanes.values()), {}
        self._profiles[key][1][attendance.info.id] = attendance
        self.stir()

    def remove(self, attendance: Attendance | None) -> None:
        """A worker is not attended any more."""
        if attendance is None or self._by_worker.get(attendance.info.id) is not attendance:
            return
        del self._by_worker[attendance.info.id]
        if self._by_peer.get(attendance.peer) is attendance:
            del self._by_peer[attendance.peer]
        self._doubted.discard(Seat(attendance.info.id, attendance.session))
        key = Profile.key(attendance.info)
        members = self._profiles[key][1]
        del members[attendance.info.id]
        if not members:
            del self._profiles[key]

    def clear(self) -> None:
        """No worker is attended any more."""
        for attendance in self:
            self.remove(attendance)

    def of_peer(self, peer: bytes) -> Attendance | None:
        """The attendance that talks through this peer."""
        return self._by_peer.get(peer)

    def of_seat(self, seat: Seat) -> Attendance | None:
        """The attendance of exactly this session."""
        attendance = self._by_worker.get(seat.worker)
        return attendance if attendance and attendance.session == seat.session else None

    def session_of(self, worker: UUID) -> int:
        """The session in which a worker is attended; 0 if it is not."""
        attendance = self._by_worker.get(worker)
        return attendance.session if attendance else 0

    def kinds(self) -> dict[str, KindInfo]:
        """What the attended workers serve."""
        known: dict[str, KindInfo] = {}
        for _, members in self._profiles.values():
            known.update(next(iter(members.values())).info.kinds)
        return known

    def infos(self) -> list[WorkerInfo]:
        """What workers say of themselves: of those that are alike, one."""
        return [next(iter(members.values())).info for _, members in self._profiles.values()]

    # lanes

    def learn(self, lanes: Iterable[Lane]) -> None:
        """These lanes exist."""
        for lane in lanes:
            if lane.hash not in self._lanes:
                self._lanes[lane.hash] = lane
                self._learned.add(lane.hash)
                self._queues[lane.queue] += 1
                for profile, _ in self._profiles.values():
                    profile.learn(lane)

    def settle(self, lanes: Iterable[Lane]) -> None:
        """These lanes exist; of the others only those that were heard of since the last time."""
        found = {lane.hash: lane for lane in lanes}
        for hash in self._lanes.keys() - found.keys() - self._learned:
            self._forget(self._lanes.pop(hash))
        self.learn(found.values())
        self._learned = set()

    def _forget(self, lane: Lane) -> None:
        self._hot.pop(lane.hash, None)
        self._heated.pop(lane.hash, None)
        self._queues[lane.queue] -= 1
        for profile, _ in self._profiles.values():
            profile.forget(lane)

    def has_queue(self, queue: str) -> bool:
        """Whether there is a lane of this queue, as far as is known here."""
        return self._queues[queue] > 0

    def knows(self, lane: Lane) -> bool:
        """Whether this lane exists already, as far as is known here."""
        return lane.hash in self._lanes

    def known(self, lanes: Iterable[int]) -> list[int]:
        """Those of these lanes that exist, as far as is known here."""
        return [lane for lane in lanes if lane in self._lanes]

    @property
    def lane_count(self) -> int:
        """How many lanes are known."""
        return len(self._lanes)

    def heat(self, lanes: Iterable[int]) -> None:
        """These lanes may hold any number of jobs."""
        for lane in lanes:
            self._warm(lane, ANY_NUMBER)

    def expect(self, lanes: Mapping[int, int]) -> None:
        """These lanes hold so many jobs more."""
        for lane, count in lanes.items():
            self._warm(lane, count)

    def _warm(self, lane: int, count: float) -> None:
        self._changes += 1
        self._hot[lane] = self._hot.get(lane, 0) + count
        self._heated[lane] = self._changes

    def cool(self, wants: Sequence[Want], taken: Mapping[int, int]) -> None:
        """What was taken is there no more, and lanes that gave less than was wanted are empty.

        Except for those that were said to hold more since the wants were made.
        """
        for lane in self._hot.keys() & taken.keys():
            self._hot[lane] -= taken[lane]
        empty = {lane for lane in taken if self._hot.get(lane, 0) <= 0}
        for want in wants:
            if sum(taken.get(lane, 0) for lane in want.lanes) < len(want.seats):
                empty.update(
                    lane for lane in want.lanes if self._heated.get(lane, 0) <= self._asked
                )
        for lane in empty & self._hot.keys():
            del self._hot[lane]

    def stir(self) -> None:
        """Any lane may hold jobs."""
        self.heat(self._lanes)

    # doubts

    def doubt(self, seats: Iterable[Seat]) -> None:
        """What is placed on these sessions is not known until it is read back."""
        self._doubted.update(seat for seat in seats if self.of_seat(seat))

    def doubted(self) -> list[Seat]:
        """The sessions that must be read back."""
        return list(self._doubted)

    def trust(self, seats: Iterable[Seat]) -> None:
        """These sessions were read back."""
        self._doubted.difference_update(seats)

    # wants

    def seats(self) -> Seats:
        """How many seats are free; if jobs are ready for some, how many of those."""
        free = wanted_free = 0
        wanted = False
        for profile, members in self._profiles.values():
            for pool, lanes in profile.lanes.items():
                some = sum(max(0, one.open_slots.get(pool, 0)) for one in members.values())
                free += some
                if self._is_any_hot(lanes):
                    wanted = True
                    wanted_free += some
        return Seats(wanted_free if wanted else free, wanted)

    def plan(self, submits: Sequence[Submission], most: int) -> Plan:
        """Seats for submits that can begin at once, and what to claim for the others' seats."""
        lanes = [lane_of(job.queue, job.kind, job.target) for job in submits]
        self.learn(dict.fromkeys(lanes))
        seats: list[Seat | None] = [None] * len(submits)
        seated = self._seat(submits, lanes, seats)
        if None in seats:
            left = (lane.hash for lane, one in zip(lanes, seats, strict=True) if one is None)
            self.expect(Counter(left))
        return Plan(self.wants(most, seated), seats)

    def _seat(
        self, jobs: Sequence[Submission], lanes: Sequence[Lane], seats: list[Seat | None]
    ) -> set[_Taker]:
        """Finds seats for jobs before whom nobody waits; answers whose seats those are."""
        seated: set[_Taker] = set()
        waiting = _by_lane(jobs, lanes)
        for profile, members, pool in self._in_turn() if waiting else ():
            served = profile.lanes[pool] & waiting.keys()
            if not served or self._is_any_hot(profile.lanes[pool]):
                continue
            places = self._places(members, pool)
            most = sum(place.free for place in places)
            first = sorted(turn for lane in served for turn in waiting[lane][:most])
            for (_, job), one in zip(first, seat(places, len(first)), strict=False):
                seats[job] = one
                seated.add((profile, pool))
            for lane in served:
                left = [turn for turn in waiting[lane][:most] if seats[turn[1]] is None]
                waiting[lane][:most] = left
                if not waiting[lane]:
                    del waiting[lane]
        return seated

    def _is_any_hot(self, lanes: set[int]) -> bool:
        # This way round it takes as long as the smaller of the two, not as what is hot.
        return not self._hot.keys().isdisjoint(lanes)

    def wants(self, most: int, seated: Collection[_Taker] = ()) -> list[Want]:
        """What to claim now: at most `most` jobs, for workers with free slots and in no doubt.

        Whoever came last this time is first in turn, so that nobody is left out for good. Those
        whose slots were given to submits must wait for the next time.
        """
        self._asked = self._changes
        self._turn += 1
        found: list[Want] = []
        for profile, members, pool in self._in_turn():
            lanes = profile.lanes[pool] & self._hot.keys()
            if most <= 0 or not lanes or (profile, pool) in seated:
                continue
            some = int(min(most, sum(self._hot[lane] for lane in lanes)))
            want = profile.want(lanes, self._places(members, pool), some)
            if want is not None:
                most -= len(want.seats)
                found.append(want)
        return found

    def _in_turn(self) -> list[tuple[Profile, dict[UUID, Attendance], Pool]]:
        takers = [
            (profile, members, pool)
            for profile, members in self._profiles.values()
            for pool in profile.lanes
        ]
        first = self._turn % len(takers) if takers else 0
        return takers[first:] + takers[:first]

    def _places(self, members: dict[UUID, Attendance], pool: Pool) -> list[Place]:
        places = []
        for attendance in members.values():
            seat = Seat(attendance.info.id, attendance.session)
            free = attendance.open_slots.get(pool, 0)
            if free > 0 and seat not in self._doubted:
                places.append(Place(seat, free, attendance.given))
        return places


def _by_lane(jobs: Sequence[Submission], lanes: Sequence[Lane]) -> dict[int, list[tuple[int, int]]]:
    """The places of those that can begin now, by lane, the most urgent first."""
    waiting: dict[int, list[tuple[int, int]]] = {}
    for place, (job, lane) in enumerate(zip(jobs, lanes, strict=True)):
        if job.run_at is None and job.delay_s is None:
            waiting.setdefault(lane.hash, []).append((-job.priority, place))
    for turns in waiting.values():
        turns.sort()
    return waiting
