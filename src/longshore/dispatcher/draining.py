"""Tells workers to drain, by their names."""

from __future__ import annotations

from collections.abc import Sequence

from longshore.core.naming import workers_named
from longshore.model.worker import DrainVerdict, WorkerView
from longshore.ports import Store
from longshore.wire import messages as m


async def drained(store: Store, name: str, workers: Sequence[WorkerView]) -> m.DrainAnswer:
    """Has the worker of this name, or this id, finish what it runs and leave."""
    found = workers_named(name, workers)
    if len(found) != 1:
        verdict = DrainVerdict.AMBIGUOUS if found else DrainVerdict.NOT_FOUND
        return m.DrainAnswer(name, None, "", verdict)
    [worker] = found
    if not worker.alive or not await store.set_draining(worker.info.id, True):
        verdict = DrainVerdict.GONE
    else:
        verdict = DrainVerdict.ALREADY_DRAINING if worker.draining else DrainVerdict.DRAINING
    return m.DrainAnswer(name, worker.info.id, worker.info.name, verdict)
