"""The lanes that a dispatcher knows, and how many ready jobs it expects in each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from typing import Final

from longshore.core.turns import is_turn_kind
from longshore.model.worker import Claim, Lane

ANY_NUMBER: Final = float("inf")


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

    def claimed(
        self,
        claims: Sequence[Claim],
        taken: Mapping[int, int],
        closed: Collection[int] = frozenset(),
    ) -> None:
        """A claim took so many jobs. Lanes that gave less than it wanted are empty.

        So are those that are `closed`: who makes room for their jobs says so. A lane whose estimate
        rose since the claim went out stays.
        """
        for lane in self._ready.keys() & taken.keys():
            self._ready[lane] -= taken[lane]
        empty = {lane for lane in taken if self._ready.get(lane, 0) <= 0}
        for claim in claims:
            if sum(taken.get(lane, 0) for lane in claim.lanes) < len(claim.slots):
                empty.update(filter(self._is_as_sent, claim.lanes))
        empty.update(filter(self._is_as_sent, closed))
        for lane in empty & self._ready.keys():
            del self._ready[lane]

    def _is_as_sent(self, lane: int) -> bool:
        """Whether the estimate of a lane has not risen since the last claim went out."""
        return self._marked.get(lane, 0) <= self._sent_at_mark

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
