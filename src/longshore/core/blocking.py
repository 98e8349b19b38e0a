"""What holds a ready job back: one word for each cause, for `why` and for metrics."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Final

from longshore.core.capacity import pool_busy, pool_slots
from longshore.core.lanes import serves
from longshore.core.resources import Amounts, has, split, taken
from longshore.model.depth import LaneDepth, LaneView
from longshore.model.group import GATE, NOT_RUN
from longshore.model.job import JobState
from longshore.model.worker import Lane, QueueView, WorkerView


class Cause(StrEnum):
    """Why a ready job does not run; `CAUSES` says it in words."""

    GATE = "gate"
    DISPATCHER = "dispatcher"
    PAUSED_QUEUE = "paused_queue"
    LIMIT = "limit"
    LANE_LIMIT = "lane_limit"
    NO_WORKER = "no_worker"
    SILENT_DISPATCHER = "silent_dispatcher"
    DRAINING = "draining"
    NO_SLOTS = "no_slots"
    BUSY = "busy"
    RESOURCES = "resources"
    STARTING = "starting"


CAUSES: Final[dict[Cause, str]] = {
    Cause.GATE: "is a gate of a group, and nobody has opened it",
    Cause.DISPATCHER: "is run by no worker: a dispatcher is about to count it, or take it apart",
    Cause.PAUSED_QUEUE: "is in a queue that is paused",
    Cause.LIMIT: "is behind a key, or of a kind or queue, whose limit lets no more begin",
    Cause.LANE_LIMIT: "is of a queue, kind and target past `max_lanes`: no dispatcher looks there",
    Cause.NO_WORKER: "is of a kind, queue and target that no live worker serves",
    Cause.SILENT_DISPATCHER: "could only go to workers whose dispatcher is silent",
    Cause.DRAINING: "could only go to workers that are draining",
    Cause.NO_SLOTS: "could only go to workers with 0 slots for it",
    Cause.BUSY: "could only go to slots that are taken",
    Cause.RESOURCES: "needs more than other jobs leave of what workers have",
    Cause.STARTING: "is held back by nothing: a slot is free, and it is about to start",
}


def cause_of(
    lane: Lane, workers: Iterable[WorkerView], *, paused: bool = False, past_limit: bool = False
) -> Cause:
    """What holds the ready jobs of a lane back, of all that could the first in this order.

    Those that wait behind keys are not among them: for these it is `LIMIT`.
    """
    if lane.kind in NOT_RUN:
        return Cause.GATE if lane.kind == GATE else Cause.DISPATCHER
    if paused:
        return Cause.PAUSED_QUEUE
    if past_limit:
        return Cause.LANE_LIMIT
    able = able_workers(lane, workers)
    if not able:
        return Cause.NO_WORKER
    if all(worker.silent_s for worker in able):
        return Cause.SILENT_DISPATCHER
    if all(worker.draining for worker in able):
        return Cause.DRAINING
    slots, busy = taken_slots(lane, able)
    if not slots:
        return Cause.NO_SLOTS
    if busy >= slots:
        return Cause.BUSY
    return Cause.STARTING if fitting(lane, able) else Cause.RESOURCES


def lane_views(
    depths: Iterable[LaneDepth],
    workers: Sequence[WorkerView],
    queues: Iterable[QueueView] = (),
) -> list[LaneView]:
    """Lanes as they are shown: each with what holds its ready jobs back.

    `queues` say since when they are paused.
    """
    paused_at = {one.name: one.paused_at for one in queues}
    return [_lane_view(one, workers, paused_at.get(one.lane.queue)) for one in depths]


def _lane_view(
    depth: LaneDepth, workers: Sequence[WorkerView], paused_at: datetime | None
) -> LaneView:
    is_ready = depth.counts.get(JobState.READY, 0)
    return LaneView(
        queue=depth.lane.queue,
        kind=depth.lane.kind,
        target=depth.lane.target,
        paused=depth.paused,
        counts={state.value: count for state, count in depth.counts.items() if count},
        oldest_at=depth.oldest_at,
        held_back=cause_of(depth.lane, workers, paused=depth.paused).value if is_ready else "",
        paused_at=paused_at,
    )


def fitting(lane: Lane, able: Iterable[WorkerView]) -> list[WorkerView]:
    """Those that do not drain and have what a job of the lane takes, beside what others take."""
    _, shape = split(lane.target)
    taking = [worker for worker in able if not worker.draining]
    return [worker for worker in taking if has(left_of(worker), shape)]


def left_of(worker: WorkerView) -> Amounts:
    """What the jobs of a worker leave of its resources."""
    left: Amounts = worker.info.resources
    for target, count in worker.shapes.items():
        left = taken(left, split(target)[1], count)
    return left


def able_workers(lane: Lane, workers: Iterable[WorkerView]) -> list[WorkerView]:
    """The live workers that serve a lane; if the dispatchers of some are silent, the others."""
    able = [worker for worker in workers if worker.alive and serves(worker.info, lane)]
    return [worker for worker in able if not worker.silent_s] or able


def taken_slots(lane: Lane, able: Sequence[WorkerView]) -> tuple[int, int]:
    """How many slots those that do not drain have for the kind of a lane, and how many are busy."""
    taking = [worker for worker in able if not worker.draining]
    pools = [worker.info.kinds[lane.kind].pool for worker in taking]
    return sum(map(pool_slots, taking, pools)), sum(map(pool_busy, taking, pools))
