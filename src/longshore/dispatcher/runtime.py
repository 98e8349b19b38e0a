"""What the service needs of a running dispatcher: its queue, its workers, its alarms."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from uuid import UUID

from msgspec import structs

from longshore.config import DispatcherSettings
from longshore.core.lanes import lane_of
from longshore.dispatcher.budgets import check_room
from longshore.dispatcher.commits import Commits
from longshore.dispatcher.duties.takeover import Takeover
from longshore.dispatcher.lane_limits import LaneLimits
from longshore.dispatcher.own_lease import Alarms
from longshore.dispatcher.service import Answer, Caller
from longshore.dispatcher.sessions.roster import Roster
from longshore.dispatcher.waiters import Waiter, Waiters
from longshore.model.job import Job, Submission
from longshore.model.worker import DispatcherView, Facts, KindInfo, WorkerView


class DispatcherRuntime:
    """See `service.Runtime`. `supervisor_trouble` is what keeps workers beside it from starting."""

    def __init__(
        self,
        settings: DispatcherSettings,
        roster: Roster,
        commits: Commits,
        waiters: Waiters,
        takeover: Takeover,
        lane_limits: LaneLimits,
        alarms: Alarms,
    ) -> None:
        self.supervisor_trouble = ""
        self._settings = settings
        self._roster = roster
        self._commits = commits
        self._waiters = waiters
        self._takeover = takeover
        self._lane_limits = lane_limits
        self._alarms = alarms

    def check_room(self, jobs: int, size: int) -> None:
        check_room(self._settings, self._commits, jobs, size)

    def check_lane(self, job: Submission, caller: Caller) -> None:
        self._lane_limits.check(job, caller)

    def kinds(self) -> Mapping[str, KindInfo]:
        return self._roster.kinds()

    async def submit(self, jobs: Sequence[Submission]) -> list[Answer]:
        answers = await self._commits.submit(jobs)
        self._alarms.due.set_for(jobs)
        return answers

    async def wait(self, waiter: Waiter, wait_s: float) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(waiter.done.wait(), wait_s)

    def cancels_made(self, cancelled: Sequence[UUID], cancelling: Sequence[UUID]) -> None:
        self._alarms.cancels.set_in(0)
        if any(map(self._waiters.is_awaited, cancelled)):
            self._alarms.outcomes.set_in(0)

    def drains_made(self) -> None:
        self._alarms.cancels.set_in(0)

    def jobs_appeared(self) -> None:
        self._roster.scheduler.lanes.mark_all()
        self._commits.wake()

    def seen(self, worker: WorkerView) -> WorkerView:
        return self._takeover.seen(worker)

    def silent_s(self, other: DispatcherView) -> float:
        return self._takeover.silent_s(other)

    def explained(self, job: Job, facts: Facts) -> Facts:
        lane = lane_of(job.queue, job.kind, job.target)
        return structs.replace(
            facts,
            workers=tuple(map(self.seen, facts.workers)),
            lane_limit=self._lane_limits.limit_of(lane),
            supervisor_trouble=self.supervisor_trouble,
        )
