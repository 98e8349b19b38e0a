"""Finds the worker that a user means, by its id, its name, or the beginning of its id."""

from __future__ import annotations

from collections.abc import Iterable

from longshore.model.worker import WorkerView


def workers_named(text: str, workers: Iterable[WorkerView]) -> list[WorkerView]:
    """The live workers that a text may mean; if there are none, those that are gone.

    A whole id or name beats the beginning of an id. If several match, the caller must ask which.
    """
    views = list(workers)
    for alive in (True, False):
        among = [view for view in views if view.alive is alive]
        exact = [view for view in among if text in (str(view.info.id), view.info.name)]
        found = exact or [view for view in among if _begins(view, text)]
        if found:
            return found
    return []


def _begins(view: WorkerView, text: str) -> bool:
    start = text.lower().replace("-", "")
    return bool(start) and view.info.id.hex.startswith(start)
