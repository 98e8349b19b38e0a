"""The job that a type of actors declares to hear of its commits (see `core.histories`)."""

from __future__ import annotations

from msgspec import Struct

from longshore.model.job import ANY_TARGET, DEFAULT_QUEUE, Options


class HistoryJob(Struct, frozen=True, omit_defaults=True):
    """How the job runs that hears of every commit of an actor."""

    kind: str
    queue: str = DEFAULT_QUEUE
    target: str = ANY_TARGET
    priority: int = 0
    options: Options = Options()
