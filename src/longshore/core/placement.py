"""Which worker gets the next job: of those that serve its lane, the one with most free slots.

Workers with the same kinds, queues and target share a `Profile`. So the dispatcher computes once
per lane, not at every claim, which workers serve it. For each profile and pool one `Claim` goes to
the store. The store claims for all workers of the profile at once, best job first, and fills their
slots in the order given here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence, Set
from heapq import heapify, heapreplace
from typing import NamedTuple, TypeVar
from uuid import UUID

from longshore.core.lanes import serves
from longshore.model.worker import (
    Claim,
    FreeWorker,
    Lane,
    OpenSlots,
    SessionKey,
    WorkerInfo,
)

T = TypeVar("T")


class Profile:
    """The lanes that workers of one profile serve, by pool."""

    def __init__(self, info: WorkerInfo, lanes: Iterable[Lane]) -> None:
        self._info = info
        self.lanes: dict[str, set[int]] = {}
        for lane in lanes:
            self.add_lane(lane)

    @staticmethod
    def key(info: WorkerInfo) -> object:
        """Equal for workers that serve the same lanes from the same pools."""
        kinds = frozenset((kind, known.pool) for kind, known in info.kinds.items())
        return kinds, frozenset(info.queues), info.target

    def add_lane(self, lane: Lane) -> None:
        """A lane is new."""
        if serves(self._info, lane):
            pool = self._info.kinds[lane.kind].pool
            self.lanes.setdefault(pool, set()).add(lane.hash)

    def drop_lane(self, lane: Lane) -> None:
        """A lane is gone."""
        for lanes in self.lanes.values():
            lanes.discard(lane.hash)

    def claim(
        self,
        lanes: Set[int],
        free: Sequence[FreeWorker],
        most: int,
        ahead: frozenset[int] | None = None,
        *,
        keeps: bool = False,
    ) -> Claim | None:
        """What to claim for these workers from these lanes; the rest is as `Claim` has it."""
        slots = slots_in_order(free, most) if lanes else []
        return Claim(tuple(sorted(lanes)), tuple(slots), ahead, keeps) if slots else None


def slots_in_order(free: Sequence[FreeWorker], most: int) -> list[SessionKey]:
    """The free slots in the order to fill them: most free first, then fewest given."""
    heap = [(-one.free, one.given, index) for index, one in enumerate(free)]
    heapify(heap)
    slots: list[SessionKey] = []
    while len(slots) < most and heap and heap[0][0] < 0:
        left, given, index = heap[0]
        slots.append(free[index].slot)
        heapreplace(heap, (left + 1, given + 1, index))
    return slots


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
    """A job that becomes ready: its place in the order of claims, and its arguments' bytes."""

    order: tuple[int, ...]
    lane: int
    size: int


def slots_for(
    jobs: Sequence[Woken], offered: Sequence[OpenSlots], room: int
) -> dict[int, SessionKey]:
    """Slots for jobs that become ready, by the places of these jobs, best job first.

    It stops with the job that uses up `room` bytes.
    """
    places = sorted(range(len(jobs)), key=lambda place: jobs[place].order) if offered else []
    found: dict[int, SessionKey] = {}
    for some in offered:
        served = [at for at in places if at not in found and jobs[at].lane in some.lanes]
        for at, slot in zip(served, slots_in_order(some.workers, len(served)), strict=False):
            if room <= 0:
                return found
            found[at] = slot
            room -= jobs[at].size
    return found


def first_bytes(items: Sequence[T], size: Callable[[T], int], room: int) -> Sequence[T]:
    """The first items, including the one that uses up `room` bytes."""
    for index, item in enumerate(items):
        if room <= 0:
            return items[:index]
        room -= size(item)
    return items
