"""Fairness of `MemoryStore`: turns of jobs, each computed by itself; `core.fairness` does it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from uuid import UUID

from msgspec import structs

from longshore.core.fairness import (
    ALL,
    LOOKED_AT,
    MOST_BEFORE,
    Ground,
    front_of,
    ran,
    settled,
    turns,
    weight_of,
)
from longshore.model.fair import Account, FairKey, FairUse
from longshore.model.job import JobState
from longshore.model.limits import LimitsOpened
from longshore.testing.memory_limits import MemoryLimits
from longshore.testing.memory_rows import JobRow


class MemoryFair(MemoryLimits):
    """The verbs about fairness, and what submits and claims ask."""

    async def note_use(self, uses: Sequence[FairUse]) -> None:
        for use in uses:
            level = use.of._replace(key=ALL)
            self._accounts[level] = ran(self._account(level), use.runs, use.total_s)
        for use in uses:
            usual_s = self._account(use.of._replace(key=ALL)).mean_s
            account = self._account(use.of)
            self._accounts[use.of] = settled(account, usual_s, use.runs, use.total_s)

    async def fair_place(self, job: UUID) -> tuple[int, bool]:
        row = self._jobs[job]
        before = sum(one.order < row.order for one in self._ranked(_key(row)))
        return min(before, MOST_BEFORE), job not in self._with_turns

    async def open_limits(self, after: str = "", most: int = 1000) -> LimitsOpened:
        new = self._give_turns(None)
        opened = await super().open_limits(after, most)
        return structs.replace(opened, ready=dict(new + Counter(opened.ready)))

    def _give_turns(self, lanes: Collection[int] | None) -> Counter[int]:
        """Gives turns to jobs of these lanes, or of all, that became ready without one."""
        new = self._where(
            lambda row: (
                row.state is JobState.READY
                and bool(row.job.options.fair)
                and row.job.id not in self._with_turns
                and (lanes is None or row.lane.hash in lanes)
            )
        )
        for row in sorted(new, key=lambda row: row.order):
            self._rank(row, self._last_number + 1)
        return Counter(row.lane.hash for row in new)

    def _rank_new(self, row: JobRow) -> None:
        """A job was submitted: it gets its turn if it is ready."""
        if row.job.options.fair and row.state is JobState.READY:
            self._rank(row, row.job.number)
        elif row.job.options.fair and row.state is JobState.RUNNING:
            self._with_turns.add(row.job.id)

    def _rank(self, row: JobRow, number: int) -> None:
        key = _key(row)
        last = max((one.inherited for one in self._ranked(key)), default=None)
        rules = self._limit_rules.values()
        usual_s = self._account(key._replace(key=ALL)).mean_s
        ground = Ground(self._front(key, row), number, last, weight_of(key.key, rules), usual_s)
        [row.rank], self._accounts[key] = turns(self._account(key), ground, 1)
        self._with_turns.add(row.job.id)

    def _front(self, key: FairKey, new: JobRow) -> int | None:
        rows = self._where(
            lambda row: (
                row.state is JobState.READY
                and (row.lane.hash, row.job.priority) == (key.lane, key.priority)
                and (not row.job.options.fair or row.job.id in self._with_turns)
                and row is not new
            )
        )
        first = sorted(rows, key=lambda row: row.order)[:LOOKED_AT]
        fair = [row.inherited for row in first if row.job.options.fair and not row.job.attempt]
        furthest = max((row.inherited for row in first), default=None)
        return front_of(min(fair, default=None), furthest, len(first))

    def _ranked(self, key: FairKey) -> list[JobRow]:
        """The ready jobs of a key that have turns."""
        return self._where(
            lambda row: (
                row.state is JobState.READY and row.job.id in self._with_turns and _key(row) == key
            )
        )

    def _account(self, key: FairKey) -> Account:
        return self._accounts.get(key, Account())


def _key(row: JobRow) -> FairKey:
    return FairKey(row.lane.hash, row.job.priority, row.job.options.fair)
