"""The census: how many jobs the store holds, and what holds the ready ones back.

Theory. What is of the whole store must be told once, or the sum over dispatchers would be many
times the truth. So one dispatcher tells it: of those that are alive, the one that started first. A
new dispatcher is younger, so it takes nothing over. If the teller dies or loses the store, its
lease ends before others call it silent, and it tells nothing without a lease: for some seconds
nobody does, but never two.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import Final

from longshore.core import metering as m
from longshore.core.blocking import Cause, cause_of
from longshore.core.metering import BoundedLabels, Sample
from longshore.core.queue_waits import QueueCause, waiting_now
from longshore.dispatcher.duties.takeover import Takeover
from longshore.dispatcher.environment import Environment
from longshore.dispatcher.lane_depths import lane_depths
from longshore.dispatcher.own_lease import OwnLease
from longshore.model.depth import LaneDepth
from longshore.model.job import JobState
from longshore.model.worker import Lane, WorkerView

MOST_ADDED: Final = 1_000
"""For so many queues and causes at once, those with the most jobs, a look adds up waiting."""


class Census:
    """Counts the jobs of the store for its metrics, if this dispatcher is the one that does.

    `is_past_limit` says whether no dispatcher looks at a lane.
    """

    def __init__(
        self,
        environment: Environment,
        own_lease: OwnLease,
        takeover: Takeover,
        labels: BoundedLabels,
        is_past_limit: Callable[[Lane], bool],
    ) -> None:
        self._id, self._store, self._settings, self._clock, _ = environment
        self._own_lease = own_lease
        self._takeover = takeover
        self._labels = labels
        self._is_past_limit = is_past_limit
        self._depths: Sequence[LaneDepth] | None = None
        self._blocked: Counter[Cause] = Counter()
        self._blocked_s = dict.fromkeys(Cause, 0.0)
        self._waiting: Counter[QueueCause] = Counter()
        self._queues = BoundedLabels(self._settings.metrics_most_labels)
        self._waited_s: defaultdict[tuple[str, ...], float] = defaultdict(float)
        """For the labels of each queue and a cause, how long jobs waited."""
        self._looked_at = float("-inf")

    async def look(self) -> None:
        """Counts anew; forgets what it counted if another dispatcher is to tell it."""
        if not await self._is_teller():
            self._depths = None
            self._blocked.clear()
            self._waiting.clear()
            return
        depths = await lane_depths(self._store)
        workers = [self._takeover.seen(one) for one in await self._store.workers()]
        waited = self._note_waiting(depths)
        self._note_blocked(depths, workers)
        self._depths = depths
        if waited:
            await self._store.add_queue_waits(waited)

    async def _is_teller(self) -> bool:
        lease_s = self._settings.dispatcher_lease_s
        alive = [
            one
            for one in await self._store.dispatchers()
            if one.id == self._id or self._takeover.silent_s(one) < lease_s
        ]
        first = min(alive, key=lambda one: (one.started_at, one.id), default=None)
        return first is not None and first.id == self._id

    def _note_waiting(self, depths: Sequence[LaneDepth]) -> dict[tuple[str, str], float]:
        """What jobs waited since the last look; of the queues in which most of them do."""
        passed_s = self._clock.now() - self._looked_at
        longest = self._waiting.most_common(MOST_ADDED) if self._depths is not None else []
        waited: dict[tuple[str, str], float] = {}
        for (queue, cause), jobs in longest:
            s = waited[queue, cause.value] = jobs * passed_s
            self._waited_s[*self._queues.of(queue), cause.value] += s
        self._waiting = waiting_now(depths)
        return waited

    def _note_blocked(self, depths: Sequence[LaneDepth], workers: Sequence[WorkerView]) -> None:
        """Adds the time since the last look to the causes of that look."""
        now = self._clock.now()
        if self._depths is not None:
            for cause, jobs in self._blocked.items():
                self._blocked_s[cause] += jobs * (now - self._looked_at)
        self._looked_at = now
        self._blocked.clear()
        for one in depths:
            ready = one.counts.get(JobState.READY, 0)
            behind = 0 if one.paused else min(one.behind, ready)
            if behind:
                self._blocked[Cause.LIMIT] += behind
            if ready > behind:
                past_limit = self._is_past_limit(one.lane)
                cause = cause_of(one.lane, workers, paused=one.paused, past_limit=past_limit)
                self._blocked[cause] += ready - behind

    def samples(self) -> Iterator[Sample]:
        """What is of the whole store; nothing if this dispatcher is not, or not surely, to tell."""
        for cause in Cause:
            yield Sample(m.BLOCKED_TIME, (cause.value,), self._blocked_s[cause])
        for labels, s in self._waited_s.items():
            yield Sample(m.QUEUE_WAIT, labels, s)
        is_fresh = self._clock.now() - self._looked_at < 3 * self._settings.metrics_s
        if self._depths is None or not is_fresh or self._own_lease.lease_s() is None:
            return
        for cause in Cause:
            yield Sample(m.BLOCKED, (cause.value,), self._blocked[cause])
        yield from self._of_lanes(self._depths)

    def _of_lanes(self, depths: Sequence[LaneDepth]) -> Iterator[Sample]:
        """What the lanes of each queue and kind hold together."""
        counts: defaultdict[tuple[str, ...], Counter[JobState]] = defaultdict(Counter)
        oldest: dict[tuple[str, ...], datetime] = {}
        for one in depths:
            labels = self._labels.of(one.lane.queue, one.lane.kind)
            counts[labels].update(one.counts)
            if one.oldest_at is not None:
                oldest[labels] = min(one.oldest_at, oldest.get(labels, one.oldest_at))
        for labels, of_states in counts.items():
            for state in JobState:
                if of_states[state] or state is JobState.READY:
                    yield Sample(m.JOBS, (*labels, state.value), of_states[state])
        for labels, at in oldest.items():
            yield Sample(m.OLDEST, labels, at.timestamp())
