"""What people see of lanes and of dispatchers, put together from several reads of the store."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from longshore.core.blocking import lane_views
from longshore.dispatcher.lane_depths import lane_depths
from longshore.model.depth import LaneView
from longshore.model.worker import DispatcherView, WorkerView
from longshore.ports import Store
from longshore.wire.messages import DispatcherAnswer


async def seen_lanes(store: Store, workers: Sequence[WorkerView]) -> list[LaneView]:
    """Every lane that holds jobs, and what holds its ready ones back."""
    depths = await lane_depths(store)
    queues = await store.queues() if any(one.paused for one in depths) else []
    return lane_views(depths, workers, queues)


async def seen_dispatchers(
    store: Store, silent_s: Callable[[DispatcherView], float], lease_s: float
) -> list[DispatcherAnswer]:
    """Every dispatcher that has not retired; one that is silent for `lease_s` does not live."""
    workers = Counter(one.dispatcher for one in await store.workers() if one.alive)
    return [
        DispatcherAnswer(
            id=view.id,
            name=view.name,
            started_at=view.started_at,
            renewed_no=view.renewed_no,
            workers=workers[view.id],
            alive=(silent := silent_s(view)) < lease_s,
            silent_s=silent,
        )
        for view in await store.dispatchers()
    ]
