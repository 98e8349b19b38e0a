"""What a host keeps of its attempts for an agent that may come after this one.

An agent can die after it heard of an end and before the store recorded it. So the host keeps what
attempts said and how they ended until the agent says that the store has it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Final

from msgspec import structs

from longshore.model.attempt import Assignment, AttemptKey, HeldAttempt
from longshore.model.job import LogEntry
from longshore.model.reports import Report

MOST_ENTRIES: Final = 1_000
MOST_BYTES: Final = 4 * 1024 * 1024
"""How much of what an attempt said is kept: the newest."""


class KeptAttempts:
    """The attempts of a host that are not recorded, by token. Time is a parameter."""

    def __init__(self) -> None:
        self._attempts: dict[int, _Kept] = {}

    def __len__(self) -> int:
        return len(self._attempts)

    def began(self, assignment: Assignment, now: float) -> None:
        """An attempt began."""
        self._attempts[assignment.token] = _Kept(assignment, now)

    def began_late(self, token: int, now: float) -> None:
        """An attempt, which was there for a while, really begins now."""
        if (kept := self._attempts.get(token)) is not None:
            kept.begun_at = now

    def said(self, entries: Iterable[LogEntry]) -> None:
        """Attempts said something."""
        for entry in entries:
            if (kept := self._attempts.get(entry.token)) is not None:
                kept.said(entry)

    def ended(self, reports: Iterable[Report]) -> None:
        """Attempts ended by themselves."""
        for report in reports:
            if (kept := self._attempts.get(report.token)) is not None:
                kept.report = report

    def keys(self, tokens: Iterable[int]) -> list[AttemptKey]:
        """The attempts of these tokens."""
        return [self._attempts[one].assignment.key for one in tokens if one in self._attempts]

    def forget(self, tokens: Iterable[int]) -> None:
        """Nobody will ask for these any more."""
        for token in tokens:
            self._attempts.pop(token, None)

    def hand_over(self, now: float) -> list[HeldAttempt]:
        """All attempts, for a new agent."""
        for kept in self._attempts.values():
            kept.agents += 1
        return [kept.held(now) for kept in self._attempts.values()]

    def entries(self) -> Iterator[LogEntry]:
        """What they said, as far as it is kept."""
        for kept in self._attempts.values():
            yield from kept.entries

    def reports(self) -> list[Report]:
        """How those ended that did."""
        return [kept.report for kept in self._attempts.values() if kept.report is not None]


class _Kept:
    def __init__(self, assignment: Assignment, now: float) -> None:
        self.assignment = structs.replace(assignment, args=b"")
        self.begun_at = now
        self.agents = 1
        self.entries: deque[LogEntry] = deque(maxlen=MOST_ENTRIES)
        self.report: Report | None = None
        self._bytes = 0

    def said(self, entry: LogEntry) -> None:
        if len(self.entries) == MOST_ENTRIES:
            self._drop()
        self.entries.append(entry)
        self._bytes += len(entry.data)
        while self._bytes > MOST_BYTES:
            self._drop()

    def _drop(self) -> None:
        self._bytes -= len(self.entries.popleft().data)

    def held(self, now: float) -> HeldAttempt:
        return HeldAttempt(self.assignment, now - self.begun_at, self.agents)
