"""What the service needs of a running dispatcher: its queue, its workers, its alarms."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from uuid import UUID

from msgspec import structs

from longshore.core.lanes import lane_of
from longshore.core.why import Facts
from longshore.dispatcher.alarms import Alarms
from longshore.dispatcher.commits import Commits
from longshore.dispatcher.duties.groups import GroupUpkeep
from longshore.dispatcher.duties.takeover import Takeover
from longshore.dispatcher.lane_limits import LaneLimits
from longshore.dispatcher.service import Answer
from longshore.dispatcher.sessions.roster import Roster
from longshore.dispatcher.waiters import Waiter, Waiters
from longshore.model.group import MOST_AT_ONCE, NOT_RUN, GroupPart, GroupState, GroupSubmitted
from longshore.model.job import Job, JobState, Submission


class DispatcherRuntime:
    """See `service.Runtime`. `supervisor_trouble` says why workers beside it do not start."""

    def __init__(
        self,
        roster: Roster,
        commits: Commits,
        waiters: Waiters,
        takeover: Takeover,
        lane_limits: LaneLimits,
        alarms: Alarms,
        groups: GroupUpkeep,
    ) -> None:
        self.supervisor_trouble = ""
        self.check_room = commits.check_room
        self.storing = commits.storing
        self.check_lane = lane_limits.check
        self.kinds = roster.kinds
        self.seen = takeover.seen
        self.silent_s = takeover.silent_s
        self._roster = roster
        self._scheduler = roster.scheduler
        self._commits = commits
        self._waiters = waiters
        self._lane_limits = lane_limits
        self._alarms = alarms
        self.groups_changed = groups.ring

    async def submit(self, jobs: Sequence[Submission]) -> list[Answer]:
        answers = await self._commits.submit(jobs)
        self._alarms.due.set_for(jobs)
        return answers

    def group_stored(self, part: GroupPart, answer: GroupSubmitted) -> None:
        jobs = [node.job for node in part.nodes]
        self._scheduler.add_lanes({lane_of(job.queue, job.kind, job.target) for job in jobs})
        if answer.state is not GroupState.STAGING:
            # Jobs of parts that other dispatchers took are ready now, too.
            self.jobs_appeared()
            self._alarms.due.set_in(0)
            is_whole = len(jobs) == answer.staged <= MOST_AT_ONCE
            if not is_whole or any(job.kind in NOT_RUN for job in jobs):
                self.groups_changed([answer.id])

    def gate_opened(self) -> None:
        self.groups_changed()
        self._alarms.outcomes.set_in(0)

    async def wait(self, waiter: Waiter, wait_s: float) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(waiter.done.wait(), wait_s)

    def cancels_made(self, cancelled: Sequence[UUID], cancelling: Sequence[UUID]) -> None:
        self._alarms.cancels.set_in(0)
        if cancelled:
            # Other jobs of a group may depend on them.
            self.groups_changed()
        if any(map(self._waiters.is_awaited, cancelled)):
            self._alarms.outcomes.set_in(0)

    def drains_made(self) -> None:
        self._alarms.cancels.set_in(0)

    def jobs_appeared(self) -> None:
        self._scheduler.lanes.mark_all()
        self._commits.wake()

    def shown(self, jobs: Sequence[Job]) -> tuple[Job, ...]:
        running = {job.worker for job in jobs if job.state is JobState.RUNNING}
        held: dict[int, int] = {}
        for worker in running:
            if worker is not None and (session := self._roster.of_worker(worker)) is not None:
                held |= session.held_ahead()
        return tuple(
            structs.replace(job, held_behind=held[job.token], started_at=None)
            if job.worker in running and job.token in held
            else job
            for job in jobs
        )

    def explained(self, job: Job, facts: Facts) -> Facts:
        attending = self._roster.of_worker(job.worker) if job.worker is not None else None
        lane = lane_of(job.queue, job.kind, job.target)
        return structs.replace(
            facts,
            workers=tuple(map(self.seen, facts.workers)),
            lane_limit=self._lane_limits.limit_of(lane),
            is_attended_here=attending is not None,
            supervisor_trouble=self.supervisor_trouble,
        )
