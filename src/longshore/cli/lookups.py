"""Since when, and which worker: what somebody means, where one request cannot say it."""

from __future__ import annotations

from collections.abc import Container, Mapping
from datetime import UTC, datetime, timedelta
from uuid import UUID

import click

from longshore.client.connection import Connection
from longshore.config import parse_seconds
from longshore.core.naming import workers_named
from longshore.errors import InvalidInput, NotFound
from longshore.model.job import Job
from longshore.model.worker import WorkerView


def parse_since(
    context: click.Context, parameter: click.Parameter, text: str | None
) -> datetime | None:
    """The moment in a text: so long ago, like 2h, or a time with its zone."""
    if text is None:
        return None
    try:
        seconds = parse_seconds(text)
        if seconds is not None and seconds >= 0:
            return datetime.now(UTC) - timedelta(seconds=seconds)
        at = datetime.fromisoformat(text)
        moment = None if at.tzinfo is None else at.astimezone(UTC)
    except (ValueError, OverflowError):
        moment = None
    if moment is None:
        raise click.BadParameter(
            f"'{text}' is neither a duration, like 30m or 2h, nor a time with its zone, like "
            "2026-01-31T12:00:00Z",
            context,
            parameter,
        )
    return moment


async def worker_id(connection: Connection, text: str) -> UUID:
    """The id of the worker that a text means: its id, its name, or the beginning of its id."""
    try:
        return UUID(text)
    except ValueError:
        found = workers_named(text, await connection.workers())
    if not found:
        raise NotFound(f"there is no worker {text}; `longshore workers` lists those there are")
    if len(found) > 1:
        ids = ", ".join(str(view.info.id) for view in found)
        raise InvalidInput(f"several workers go by {text}; give the id of one: {ids}")
    return found[0].info.id


async def worker_names(connection: Connection, job: Job) -> Mapping[UUID, str]:
    """The names of the workers that had a job, as far as they are known."""
    had = {str(job.worker), *(entry.by for entry in job.history)} if job.worker else set()
    workers = await connection.workers() if had else ()
    return {view.info.id: view.info.name for view in workers if _is_named(view, had)}


def _is_named(view: WorkerView, among: Container[str]) -> bool:
    return bool(view.info.name) and str(view.info.id) in among
