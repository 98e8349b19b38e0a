"""The line of one pool: attempts that wait in their worker until a slot comes free.

It is ordered like a lane: by priority, then by the jobs' numbers. Attempts that wait already in an
executor, close to where they run, are `given`: they go back into the line if it must be put in
order again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import heappop, heappush
from itertools import chain
from math import inf
from typing import NamedTuple

from longshore.model.attempt import Assignment, AttemptKey


class Waiting(NamedTuple):
    """An attempt that waits, and since when."""

    at: float
    assignment: Assignment


class Line:
    """The attempts of one pool that have not begun."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, int]] = []
        self._waiting: dict[int, Waiting] = {}
        """By token, the oldest first."""
        self.bytes = 0
        self.given: dict[int, Waiting] = {}
        """Those that wait in an executor, by token."""
        self._lowest_given = 0
        """No attempt in `given` is less urgent."""

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, assignment: Assignment, at: float) -> None:
        """An attempt came."""
        token = assignment.token
        self._waiting[token] = Waiting(at, assignment)
        self.bytes += len(assignment.args)
        heappush(self._heap, (-assignment.priority, assignment.number, token))

    @property
    def next(self) -> Assignment:
        """The attempt that is next. There must be one."""
        while (token := self._heap[0][2]) not in self._waiting:
            heappop(self._heap)
        return self._waiting[token].assignment

    def pop(self) -> Waiting:
        """Takes the attempt that is next."""
        while True:
            token = heappop(self._heap)[2]
            if (found := self.remove(token)) is not None:
                return found

    def remove(self, token: int) -> Waiting | None:
        """Takes an attempt, if it waits here."""
        found = self._waiting.pop(token, None)
        if found is not None:
            self.bytes -= len(found.assignment.args)
        return found

    def give(self, waiting: Waiting) -> None:
        """An attempt that was taken from here waits in an executor from now on."""
        priority = waiting.assignment.priority
        self._lowest_given = min(self._lowest_given, priority) if self.given else priority
        self.given[waiting.assignment.token] = waiting

    def is_urgent(self, assignment: Assignment) -> bool:
        """Whether something less urgent may wait in an executor."""
        return bool(self.given) and assignment.priority > self._lowest_given

    def taken_back(self, tokens: Iterable[int]) -> None:
        """These attempts do not wait in an executor any more, but here."""
        for token in tokens:
            at, assignment = self.given.pop(token)
            self.add(assignment, at)

    def late_at(self, after_s: float) -> float:
        """When the oldest attempt will have waited for so long; infinity if there is none."""
        return min((one.at for one in self._all()), default=inf) + after_s

    def has_late_given(self, now: float, after_s: float) -> bool:
        """Whether something in an executor has waited for so long."""
        return any(one.at + after_s <= now for one in self.given.values())

    def late(self, now: float, after_s: float) -> list[AttemptKey]:
        """The attempts that have waited here for so long."""
        return [one.assignment.key for one in self._waiting.values() if one.at + after_s <= now]

    def clear(self) -> list[AttemptKey]:
        """Takes all that wait here."""
        waiting, self._waiting, self._heap, self.bytes = self._waiting, {}, [], 0
        return [one.assignment.key for one in waiting.values()]

    def _all(self) -> Iterator[Waiting]:
        return chain(self._waiting.values(), self.given.values())
