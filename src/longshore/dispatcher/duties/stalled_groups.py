"""Stalled groups: finds groups that make no progress though they could, and says all about them."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

from msgspec import structs

from longshore.core.lanes import lane_of
from longshore.core.stalls import (
    MOST_TOLD,
    STALLED,
    WATCHED,
    GroupWatch,
    Policy,
    stall_words,
    unserved,
    unserved_words,
    works,
)
from longshore.core.timing import span
from longshore.dispatcher.environment import Environment
from longshore.model.finding import Finding
from longshore.model.group import Group
from longshore.model.job import Job, JobFilter, JobState
from longshore.model.worker import Lane, WorkerInfo

log = logging.getLogger("longshore.dispatcher")

MOST_WATCHED: Final = 1000
"""Of how many groups one look compares the progress. The next look goes on behind them."""
MOST_EXAMINED: Final = 10
"""How many groups one look examines: each of them costs as much as it has jobs."""
_MOST_READY: Final = 1000


class StalledGroups:
    """The watchdog over groups. It counts time by its own clock, from when it first saw a group."""

    def __init__(self, environment: Environment, ring: Callable[[Collection[UUID]], None]) -> None:
        _, self._store, settings, self._clock, _ = environment
        self._stall_s, self._policy = settings.group_stall_s, Policy(settings.stalled_groups)
        self._ring = ring
        self._watch = GroupWatch(self._stall_s)
        self._after = 0
        self._since: dict[int, datetime] = {}
        """When each of the stalled groups made its last progress, by its number."""

    async def look(self) -> None:
        """Compares the progress of some groups, and examines those without any."""
        if self._stall_s <= 0:
            return
        page = await self._store.group_progress(self._after, MOST_WATCHED)
        up_to = page[-1].number if len(page) == MOST_WATCHED else None
        self._watch.see(page, self._after, up_to, self._clock.now())
        self._after = up_to or 0
        for number in self._watch.due(self._clock.now(), MOST_EXAMINED):
            group = await self._store.group(number)
            if group is not None:
                await self._examine(group)

    async def found(self, most: int) -> list[Group]:
        """The newest groups that make no progress though they could, as far as it saw."""
        stalled = sorted(self._watch.stalled(), reverse=True)
        self._since = {number: self._since[number] for number in stalled}
        groups = [await self._store.group(number) for number in stalled[: max(0, most)]]
        return [
            structs.replace(one, stalled_at=self._since[one.number])
            for one in groups
            if one is not None and one.state in WATCHED
        ]

    async def _examine(self, group: Group) -> None:
        alive = [worker.info for worker in await self._store.workers() if worker.alive]
        lanes = await self._ready_lanes(group) if group.counts.get(JobState.READY.value) else {}
        nobody = unserved(lanes, alive)
        if nobody and self._watch.is_news(group.number, "unserved"):
            words = unserved_words(group, self._idle_s(group), nobody, len(alive))
            log.warning("%s", words, extra={"group": group.id})
        if works(group) or len(nobody) < len(lanes):
            return
        findings = await self._store.examine_group(group.id)
        if findings and not await self._moved(group):
            await self._stalled(group, findings, alive)

    def _idle_s(self, group: Group) -> float:
        return self._watch.idle_s(group.number, self._clock.now())

    async def _ready_lanes(self, group: Group) -> Mapping[Lane, int]:
        """The lanes of ready jobs of a group, except in paused queues."""
        wanted = JobFilter(states=(JobState.READY,), group=group.id, limit=_MOST_READY)
        jobs = (await self._store.jobs(wanted)).jobs
        paused = {queue.name for queue in await self._store.queues() if queue.paused}
        return Counter(
            lane_of(job.queue, job.kind, job.target) for job in jobs if job.queue not in paused
        )

    async def _moved(self, group: Group) -> bool:
        """Whether a job of the group ended meanwhile: then what was found may be under way."""
        page = await self._store.group_progress(group.number - 1, 1)
        marks = {one.number: one.mark for one in page}
        return marks.get(group.number) != self._watch.mark_of(group.number)

    async def _stalled(
        self, group: Group, findings: Sequence[Finding], alive: Sequence[WorkerInfo]
    ) -> None:
        idle_s = self._idle_s(group)
        self._since[group.number] = self._clock.utc() - timedelta(seconds=idle_s)
        if self._watch.is_news(group.number, STALLED):
            jobs = await self._jobs(findings)
            words = stall_words(group, idle_s, findings, jobs, alive)
            log.error("%s\n%s", words, _ADVICE[self._policy], extra={"group": group.id})
        if self._policy is Policy.LOG:
            return
        # A group whose counts are wrong could not end, even if it is cancelled.
        await self._store.examine_group(group.id, repair=True)
        if self._policy is Policy.CANCEL:
            by = f"a dispatcher, as it made no progress for {span(idle_s)}"
            await self._store.cancel_group(group.id, by)
        self._ring([group.id])

    async def _jobs(self, findings: Sequence[Finding]) -> list[Job]:
        """The jobs that the findings name, the first few."""
        ids = [one.job for one in findings if one.job is not None]
        found = [await self._store.job(id) for id in dict.fromkeys(ids[:MOST_TOLD])]
        return [job for job in found if job is not None]


_ADVICE: Final = {
    Policy.LOG: "it is left as it is (stalled_groups); `longshore doctor --repair` counts it anew",
    Policy.REPAIR: "it is counted anew (stalled_groups)",
    Policy.CANCEL: "it is cancelled (stalled_groups)",
}
