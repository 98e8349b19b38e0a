"""Limits the number of lanes that no worker serves.

A lane costs memory in every dispatcher, so there is a limit. It does not hold for lanes that a live
worker serves: a client that fills the limit with made-up names must not keep out jobs that can run.
But a worker that takes every queue serves, for this limit, only queues that exist. Otherwise a
client could make up queues.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from longshore.config import DispatcherSettings
from longshore.core.lanes import lane_of, serves
from longshore.core.scheduler import Scheduler
from longshore.errors import TooLarge
from longshore.model.job import ANY_TARGET, DEFAULT_QUEUE, Submission
from longshore.model.worker import Lane, WorkerInfo

_ADVICE: Final = "put what varies into the arguments, not into the kind or the queue"


class LaneLimits:
    """Refuses submits that need a lane past a limit. `elsewhere` has all dispatchers' workers."""

    def __init__(
        self,
        settings: DispatcherSettings,
        scheduler: Scheduler,
        elsewhere: Callable[[], Sequence[WorkerInfo]],
    ) -> None:
        self._elsewhere = elsewhere
        self._settings = settings
        self._scheduler = scheduler
        self._brought: dict[bytes, set[Lane]] = {}

    def check(self, job: Submission, caller: bytes) -> None:
        """Raises `TooLarge` if this client's job needs a lane past a limit."""
        lane = lane_of(job.queue, job.kind, job.target)
        if lane in self._scheduler.lanes:
            return
        most, limit = self.limit_of(lane), self._settings.max_client_lanes
        brought = self._brought.setdefault(caller, set())
        if most is not None:
            raise _too_many(lane, f"there are {most:,} already (max_lanes)")
        if len(brought) < limit:
            brought.add(lane)
        elif lane not in brought and not self._is_served(lane):
            raise _too_many(lane, f"this client has added {limit:,} of those (max_client_lanes)")

    def limit_of(self, lane: Lane) -> int | None:
        """The limit, if this lane is past it; None if it is not."""
        limit = self._settings.max_lanes
        is_full = lane not in self._scheduler.lanes and len(self._scheduler.lanes) >= limit
        return limit if is_full and not self._is_served(lane) else None

    def served(self) -> set[int]:
        """The lanes that live workers serve, of the queues they name, or of the default queue."""
        return {
            lane_of(queue, kind, target).hash
            for worker in (*self._scheduler.infos(), *self._elsewhere())
            for queue in worker.queues or (DEFAULT_QUEUE,)
            for kind in worker.kinds
            for target in {ANY_TARGET, worker.target}
        }

    def lanes_changed(self) -> None:
        """Lanes that are forgotten or served by now no longer count against their client."""
        for peer, brought in list(self._brought.items()):
            known = (lane for lane in brought if lane in self._scheduler.lanes)
            left = {lane for lane in known if not self._is_served(lane)}
            if left:
                self._brought[peer] = left
            else:
                del self._brought[peer]

    def _is_served(self, lane: Lane) -> bool:
        exists = lane.queue == DEFAULT_QUEUE or self._scheduler.lanes.has_queue(lane.queue)
        return any(
            (exists or worker.queues) and serves(worker, lane)
            for worker in (*self._scheduler.infos(), *self._elsewhere())
        )


def _too_many(lane: Lane, why: str) -> TooLarge:
    return TooLarge(
        f"job '{lane.kind}' would need a new lane (queue '{lane.queue}', target '{lane.target}') "
        f"that no live worker serves, and {why}; {_ADVICE}"
    )
