"""Which worker somebody means: by its id, its name, or the beginning of its id."""

from __future__ import annotations

from collections.abc import Iterable

from longshore.model.worker import WorkerView


def workers_named(text: str, workers: Iterable[WorkerView]) -> list[WorkerView]:
    """The workers that a text may mean, live ones before any that are gone.

    A whole id or name beats the beginning of an id. More than one found is for the asker to tell
    apart.
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
