"""What the service needs of a running dispatcher: its queue, its workers, its alarms."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Final
from uuid import UUID

from msgspec import structs

from longshore.core.lanes import lane_of
from longshore.core.turns import turn_job
from longshore.core.why import Facts
from longshore.dispatcher.alarms import Alarms
from longshore.dispatcher.changes import Changes
from longshore.dispatcher.commits import Commits
from longshore.dispatcher.duties.groups import GroupUpkeep
from longshore.dispatcher.duties.takeover import Takeover
from longshore.dispatcher.lane_limits import LaneLimits
from longshore.dispatcher.service import Answer
from longshore.dispatcher.sessions.roster import Roster
from longshore.dispatcher.waiters import Waiter, Waiters
from longshore.model.actor import Message, NewActor, Reply, Sent
from longshore.model.bulk import BulkAdvance
from longshore.model.group import (
    MOST_AT_ONCE,
    NOT_RUN,
    Group,
    GroupPart,
    GroupState,
    GroupSubmitted,
)
from longshore.model.job import Ended, Job, JobState, Refused, Submission

MOST_LOOKED_THROUGH: Final = 64
"""Among so many attempts a job is found faster than in the store."""
SOON_S: Final = 0.1
"""A reply that takes longer is looked for in the store."""


class DispatcherRuntime:
    """See `service.Runtime`. `supervisor_trouble` says why workers beside it do not start."""

    def __init__(
        self,
        roster: Roster,
        commits: Commits,
        waiters: Waiters[Ended],
        takeover: Takeover,
        lane_limits: LaneLimits,
        alarms: Alarms,
        groups: GroupUpkeep,
        changes: Changes,
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
        self.group_taken = groups.take_hold
        self.changed_after = changes.after
        self.stalled_groups: Callable[[int], Awaitable[list[Group]]] = _none_stalled
        """Set by the engine, whose duty finds them."""

    async def submit(self, jobs: Sequence[Submission]) -> list[Answer]:
        answers = await self._commits.submit(jobs)
        self._alarms.due.set_for(jobs)
        return answers

    async def send(self, messages: Sequence[Message]) -> list[Sent | Refused]:
        answers = await self._commits.send(messages)
        for message in messages:
            if message.delay_s is not None:
                self._alarms.due.set_in(message.delay_s)
        return answers

    def actors_started(self, actors: Sequence[NewActor]) -> None:
        turns = [turn_job(one.id, one.type, one.terms, one.version, 1) for one in actors]
        lanes = {lane_of(job.queue, job.kind, job.target) for job in turns}
        self._scheduler.add_lanes(lanes)
        known = self._scheduler.lanes.known(lane.hash for lane in lanes)
        self._scheduler.lanes.mark_ready(known)
        self._commits.wake()

    def actor_changed(self) -> None:
        # Its next turn may be of a version, and so of a lane, that is new here.
        self._alarms.lanes.set_in(0)
        self._alarms.due.set_in(0)

    def actor_stopped(self) -> None:
        self._alarms.cancels.set_in(0)
        self._alarms.actors.set_in(0)
        self._alarms.outcomes.set_in(0)

    def sends_appeared(self) -> None:
        self._alarms.sends.set_in(0)

    async def wait_reply_soon(self, waiter: Waiter[Reply], wait_s: float) -> None:
        await self.wait_reply(waiter, min(SOON_S, wait_s))

    async def wait_reply(self, waiter: Waiter[Reply], wait_s: float) -> None:
        # `wait_for` would make a task of it, and what waits would go on two turns later.
        with suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                await waiter.done.wait()

    def group_stored(self, part: GroupPart, answer: GroupSubmitted) -> None:
        jobs = [node.job for node in part.nodes]
        self._scheduler.add_lanes({lane_of(job.queue, job.kind, job.target) for job in jobs})
        if answer.state is GroupState.SUCCEEDED and part.head.watchers:
            self._alarms.watchers.set_in(0)
        if answer.state is not GroupState.STAGING:
            # Jobs of parts that other dispatchers took are ready now, too.
            self.jobs_appeared()
            self._alarms.due.set_in(0)
            is_whole = len(jobs) == answer.staged <= MOST_AT_ONCE
            if not is_whole or any(job.kind in NOT_RUN for job in jobs):
                self.groups_changed([answer.id])

    def group_grew(self, jobs: Sequence[Submission], group: UUID) -> None:
        self._scheduler.add_lanes({lane_of(job.queue, job.kind, job.target) for job in jobs})
        self.jobs_appeared()
        self._alarms.due.set_in(0)
        self.groups_changed([group])

    def gate_opened(self) -> None:
        self.groups_changed()
        self._alarms.outcomes.set_in(0)

    def schedules_changed(self) -> None:
        self._alarms.schedules.set_in(0)

    def bulks_changed(self) -> None:
        self._alarms.bulks.set_in(0)

    def bulk_advanced(self, advance: BulkAdvance) -> None:
        if advance.is_ready:
            # Moved jobs may be in a lane that is new here.
            self._alarms.lanes.set_in(0)
        if advance.cancelled or advance.cancelling:
            self.cancels_made(advance.cancelled, advance.cancelling)

    def runs_here(self, job: UUID) -> bool:
        if len(self._roster) > MOST_LOOKED_THROUGH:
            return False
        placed = [session.placed for session in self._roster]
        if sum(map(len, placed)) > MOST_LOOKED_THROUGH:
            return False
        return any(sent.claimed.id.int == job.int for some in placed for sent in some.values())

    async def wait(self, waiter: Waiter[Ended], wait_s: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                await waiter.done.wait()

    def cancels_made(self, cancelled: Sequence[UUID], cancelling: Sequence[UUID]) -> None:
        self._alarms.cancels.set_in(0)
        if cancelled:
            self._commits.cancelled(len(cancelled))
            # Other jobs of a group may depend on them, and somebody may watch them.
            self.groups_changed()
            self._alarms.watchers.set_in(0)
        if any(map(self._waiters.is_awaited, cancelled)):
            self._alarms.outcomes.set_in(0)

    def drains_made(self) -> None:
        self._alarms.cancels.set_in(0)

    def limits_changed(self) -> None:
        self._alarms.limits.set_in(0)

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


async def _none_stalled(most: int) -> list[Group]:
    return []
