"""Which worker gets the next job: of those that serve its lane, the one with most free slots.

Jobs that take resources are packed: the worker with least room on which one fits is filled first.
What is free then lies together, and a large job finds it.

Workers with the same kinds, queues and target share a `Profile`. So the dispatcher computes once
per lane, not at every claim, which workers serve it. For each profile and pool one `Claim` goes to
the store. The store claims for all workers of the profile at once, best job first, and fills their
slots in the order given here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from heapq import heapify, heapreplace
from itertools import islice
from typing import NamedTuple, TypeVar
from uuid import UUID

from longshore.core.lanes import serves
from longshore.core.resources import split
from longshore.model.worker import (
    Claim,
    FilesAtHand,
    FreeWorker,
    Lane,
    OpenSlots,
    SessionKey,
    WorkerInfo,
)

T = TypeVar("T")


class Profile:
    """The lanes that workers of one profile serve, by pool.

    Lanes whose jobs take resources are apart, by pool and shape: how many of these a worker takes
    depends on more than its free slots.
    """

    def __init__(self, info: WorkerInfo, lanes: Iterable[Lane]) -> None:
        self._info = info
        self.file_kinds = {kind: about for kind, about in info.kinds.items() if about.files}
        self.file_lanes: set[int] = set()
        """The lanes of these kinds."""
        self.lanes: dict[str, set[int]] = {}
        self.shaped: dict[str, dict[str, set[int]]] = {}
        for lane in lanes:
            self.add_lane(lane)

    @staticmethod
    def key(info: WorkerInfo) -> object:
        """Equal for workers that serve the same lanes from the same pools."""
        kinds = frozenset((kind, known.pool) for kind, known in info.kinds.items())
        return kinds, frozenset(info.queues), info.target, frozenset(info.resources.items())

    def add_lane(self, lane: Lane) -> None:
        """A lane is new."""
        if not serves(self._info, lane):
            return
        if lane.kind in self.file_kinds:
            self.file_lanes.add(lane.hash)
        pool, (_, shape) = self._info.kinds[lane.kind].pool, split(lane.target)
        if shape:
            self.shaped.setdefault(pool, {}).setdefault(shape, set()).add(lane.hash)
        else:
            self.lanes.setdefault(pool, set()).add(lane.hash)

    def drop_lane(self, lane: Lane) -> None:
        """A lane is gone."""
        self.file_lanes.discard(lane.hash)
        for lanes in self.lanes.values():
            lanes.discard(lane.hash)
        for shapes in self.shaped.values():
            for lanes in shapes.values():
                lanes.discard(lane.hash)

    def pools(self) -> list[str]:
        """The pools of the lanes that it serves."""
        return [*self.lanes, *(pool for pool in self.shaped if pool not in self.lanes)]

    def claim(
        self,
        lanes: Set[int],
        free: Sequence[FreeWorker],
        most: int,
        ahead: frozenset[int] | None = None,
        *,
        keeps: bool = False,
        at_hand: FilesAtHand | None = None,
    ) -> Claim | None:
        """What to claim for these workers from these lanes; the rest is as `Claim` has it."""
        slots = slots_in_order(free, most) if lanes else []
        if not slots:
            return None
        return Claim(tuple(sorted(lanes)), tuple(slots), ahead, keeps, at_hand)


def slots_in_order(free: Sequence[FreeWorker], most: int) -> list[SessionKey]:
    """The free slots in the order to fill them: most free first, or least room, if that is told.

    Then fewest given.
    """
    return [free[index].slot for index in workers_in_order(free, most)]


def workers_in_order(free: Sequence[FreeWorker], most: int) -> list[int]:
    """The places of the workers whose slots `slots_in_order` has, slot by slot."""
    if free and free[0].room is not None:
        return _packed(free, most)
    heap = [(-one.free, one.given, index) for index, one in enumerate(free)]
    heapify(heap)
    order: list[int] = []
    for _ in range(most if heap else 0):
        left, given, index = heap[0]
        if left >= 0:
            break
        order.append(index)
        heapreplace(heap, (left + 1, given + 1, index))
    return order


def _packed(free: Sequence[FreeWorker], most: int) -> list[int]:
    """The fullest worker first, until nothing more fits there."""
    fullest = sorted((one.room or 0.0, one.given, place) for place, one in enumerate(free))
    slots = (place for _, _, place in fullest for _ in range(free[place].free))
    return list(islice(slots, max(0, most)))


def kept_slots(last: Sequence[UUID | None], slots: Sequence[SessionKey]) -> list[SessionKey]:
    """A slot for each job: of the worker that it had last, as far as there are such slots.

    The other jobs get what is left, in the order of the slots. There are as many slots, or more.
    """
    free: dict[UUID, list[int]] = {}
    for place, slot in reversed([*enumerate(slots)]):
        free.setdefault(slot.worker, []).append(place)
    kept = [
        free[worker].pop() if worker is not None and free.get(worker) else None for worker in last
    ]
    left = iter(sorted(place for places in free.values() for place in places))
    return [slots[next(left) if place is None else place] for place in kept]


class Woken(NamedTuple):
    """A job that becomes ready: its place in the order of claims, and its arguments' bytes.

    `last` is the worker that it had last, or that made its files: that one gets it if it can.
    """

    order: tuple[int, ...]
    lane: int
    size: int
    last: UUID | None = None


def maker_of_files(depends_on: Iterable[UUID], made: Mapping[UUID, int]) -> UUID | None:
    """Which job a job depends on that has just made most bytes of files; None if none made any.

    The worker of that one has the files at hand.
    """
    makers = [job for job in depends_on if job in made]
    return max(makers, key=made.__getitem__) if makers else None


def slots_for(
    jobs: Sequence[Woken], offered: Sequence[OpenSlots], room: int
) -> dict[int, SessionKey]:
    """Slots for jobs that become ready, by the places of these jobs, best job first.

    It stops with the job that uses up `room` bytes.
    """
    return SlotOffers(offered, room).take(jobs)


class SlotOffers:
    """Slots for jobs that become ready in one transaction, in which several things may use them.

    `left` is what nobody has taken yet, and `room` the bytes of arguments that may still start.
    """

    def __init__(self, offered: Sequence[OpenSlots], room: int) -> None:
        self.left = offered
        self.room = room

    def take(self, jobs: Sequence[Woken]) -> dict[int, SessionKey]:
        """Slots for these jobs, by their places, best job first; nobody else gets those slots."""
        if not self.left:
            return {}
        places = sorted(range(len(jobs)), key=lambda place: jobs[place].order)
        found: dict[int, SessionKey] = {}
        left: list[OpenSlots] = []
        for some in self.left:
            served = [at for at in places if at not in found and jobs[at].lane in some.lanes]
            taken: list[SessionKey] = []
            last = [jobs[at].last for at in served]
            for at, slot in zip(served, placed(last, some.workers), strict=False):
                if self.room <= 0:
                    break
                found[at] = slot
                taken.append(slot)
                self.room -= jobs[at].size
            left.append(OpenSlots(some.lanes, without(some.workers, taken)) if taken else some)
        self.left = left
        return found


def placed(last: Sequence[UUID | None], free: Sequence[FreeWorker]) -> list[SessionKey]:
    """Slots for the first of these jobs, each of the worker that it had last if that has one."""
    if not any(last):
        return slots_in_order(free, len(last))
    first = last[: sum(one.free for one in free)]
    room = {one.slot.worker: (one.slot, one.free) for one in free}
    kept: list[SessionKey | None] = []
    for worker in first:
        slot, left = room.get(worker, (None, 0)) if worker is not None else (None, 0)
        kept.append(slot if left else None)
        if slot is not None and left:
            room[slot.worker] = slot, left - 1
    rest = without(free, [slot for slot in kept if slot is not None])
    others = iter(slots_in_order(rest, kept.count(None)))
    return [slot or next(others) for slot in kept]


def without(free: Sequence[FreeWorker], taken: Sequence[SessionKey]) -> list[FreeWorker]:
    """What is left of free slots of which these, from `slots_in_order`, were taken."""
    # By identity: to hash a UUID takes long, and there may be a thousand slots.
    counts = Counter(map(id, taken))
    return [
        FreeWorker(one.slot, left, one.given, one.room)
        for one in free
        if (left := one.free - counts[id(one.slot)]) > 0
    ]


def first_bytes(items: Sequence[T], size: Callable[[T], int], room: int) -> Sequence[T]:
    """The first items, including the one that uses up `room` bytes."""
    for index, item in enumerate(items):
        if room <= 0:
            return items[:index]
        room -= size(item)
    return items
