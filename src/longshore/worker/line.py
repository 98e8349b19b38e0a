"""The line of one pool: attempts that wait in their worker until a slot comes free.

It is ordered like a lane: by priority, then by the jobs' numbers.
"""

from __future__ import annotations

from heapq import heappop, heappush

from longshore.model.attempt import Assignment, AttemptKey


class Line:
    """Attempts that wait, and since when."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, int]] = []
        self._waiting: dict[int, tuple[float, Assignment]] = {}
        """By token, the oldest first."""
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, assignment: Assignment, now: float) -> None:
        """An attempt came."""
        token = assignment.token
        self._waiting[token] = now, assignment
        self.bytes += len(assignment.args)
        heappush(self._heap, (-assignment.priority, assignment.number, token))

    def pop(self) -> tuple[float, Assignment]:
        """Takes the attempt that is next, and since when it waited."""
        while True:
            token = heappop(self._heap)[2]
            at = self._waiting[token][0] if token in self._waiting else 0.0
            if (found := self.remove(token)) is not None:
                return at, found

    def remove(self, token: int) -> Assignment | None:
        """Takes an attempt, if it waits here."""
        found = self._waiting.pop(token, None)
        if found is None:
            return None
        self.bytes -= len(found[1].args)
        return found[1]

    def late_at(self, after_s: float) -> float:
        """When the oldest attempt will have waited for so long. There must be one."""
        return next(iter(self._waiting.values()))[0] + after_s

    def late(self, now: float, after_s: float) -> list[AttemptKey]:
        """The attempts that have waited for so long."""
        return [one.key for at, one in self._waiting.values() if at + after_s <= now]

    def clear(self) -> list[AttemptKey]:
        """Takes all of them."""
        waiting, self._waiting, self._heap, self.bytes = self._waiting, {}, [], 0
        return [one.key for _, one in waiting.values()]
