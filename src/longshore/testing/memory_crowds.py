"""Crowds of `MemoryStore`: what a new job does to the other live jobs of its key."""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from uuid import UUID

from msgspec import structs

from longshore.core import crowds, effects
from longshore.core.crowds import Dropped, Member, Replaced, Timed, crowd_of
from longshore.core.lifecycle import TERMINAL
from longshore.model.job import Ended, JobState
from longshore.ports import Hint
from longshore.store.rows import micros, moment
from longshore.testing.memory_fair import MemoryFair
from longshore.testing.memory_rows import JobRow


class MemoryCrowds(MemoryFair):
    """What submits do to crowds; `core.crowds` decides."""

    @abstractmethod
    def _apply(
        self, row: JobRow, change: effects.Change, by: str = "", ran_s: float | None = None
    ) -> None: ...

    def _begin_crowds(self) -> None:
        self._ended_by_submits: list[Ended] = []
        self._stopping: list[UUID] = []

    def _settle_crowd(self, new: JobRow, ready: Counter[int]) -> None:
        self._rank_new(new)
        crowd = crowd_of(new.job.kind, new.job.options)
        if crowd is None:
            return
        rows = {row.job.number: row for row in self._crowd(crowd)}
        members = [_member(row) for row in rows.values()]
        options = {new.job.number: new.job.options}
        rules = list(self._limit_rules.values())
        for fate in crowds.settle(members, options, rules, micros(self._now)):
            row = rows[fate.number]
            match fate:
                case Dropped(_, why):
                    ready[row.lane.hash] -= row.state is JobState.READY
                    self._change(row, effects.of_drop(why))
                case Replaced(_, by):
                    self._change(row, effects.of_replacement(by))
                case Timed(_, due_at, calm_by):
                    row.calm_by = calm_by
                    row.job = structs.replace(row.job, run_at=moment(due_at))

    def _crowd_hints(self) -> list[Hint]:
        told = [Hint.CANCEL] * bool(self._stopping)
        return [*told, *[Hint.ENDED] * bool(self._ended_by_submits)]

    def _crowd(self, crowd: str) -> list[JobRow]:
        return self._where(
            lambda row: (
                crowd_of(row.job.kind, row.job.options) == crowd
                and row.state not in TERMINAL
                and not row.is_cancelling
            )
        )

    def _change(self, row: JobRow, effect: effects.Effect) -> None:
        change = effect[row.state]
        self._apply(row, change)
        if change.ends:
            self._ended_by_submits.append(effects.outcome(row.job.id, change))
        else:
            self._stopping.append(row.job.id)


def _member(row: JobRow) -> Member:
    job = row.job
    due_at = None if job.run_at is None else micros(job.run_at)
    return Member(job.number, job.state, job.attempt > 0, due_at, row.calm_by)
