"""Searches for jobs as people type them, for whoever lists jobs: commands, the API, the pages."""

from __future__ import annotations

from datetime import datetime, timedelta
from uuid import UUID

import msgspec

from longshore.client.connection import Connection
from longshore.config import parse_seconds
from longshore.core.job_query import JobQuery, parse
from longshore.core.naming import workers_named
from longshore.errors import InvalidInput, NotFound
from longshore.model.ids import parse_ref
from longshore.model.job import JobFilter, JobPage


async def search(
    connection: Connection, query: JobQuery, now: datetime, before: int | None, limit: int
) -> JobPage:
    """The newest jobs that a search finds. A search for a number finds that job."""
    if query.number is not None:
        return JobPage((await connection.job(query.number),))
    return await connection.jobs(await wanted(connection, query, now, before, limit))


async def searched(
    connection: Connection, text: str, now: datetime, before: int | None, limit: int
) -> JobFilter:
    """The filter that the text of a search stands for. Raises if a term cannot count."""
    query = parse(text)
    if query.errors:
        raise InvalidInput(f"the search: {'; '.join(query.errors)}")
    if query.number is not None:
        words = f"job {query.number} is one job, not a search: `longshore job {query.number}`"
        raise InvalidInput(f"{words} shows it, over HTTP /dispatcher/jobs/{query.number}")
    return await wanted(connection, query, now, before, limit)


async def wanted(
    connection: Connection, query: JobQuery, now: datetime, before: int | None, limit: int
) -> JobFilter:
    """The filter that a search stands for. Raises if it names what there is not."""
    group = None
    if query.group is not None:
        group = (await connection.group(parse_ref(query.group, "group"))).id
    return JobFilter(
        states=query.states,
        kind=query.kind,
        queue=query.queue,
        worker=None if query.worker is None else await worker_id(connection, query.worker),
        before=before,
        limit=limit,
        labels=query.labels,
        since=None if query.since is None else time_of("since", query.since, now),
        group=group,
        until=None if query.older is None else time_of("older", query.older, now),
        slower_s=None if query.slower is None else _seconds("slower", query.slower),
        error=query.error,
        args=query.args,
    )


async def worker_id(connection: Connection, text: str) -> UUID:
    """The id of the worker with this id, this name, or an id that begins like this."""
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


def time_of(name: str, text: str, now: datetime) -> datetime:
    """The time that a text names, or 2h ago for 2h."""
    seconds = parse_seconds(text)
    try:
        if seconds is not None and seconds >= 0:
            return now - timedelta(seconds=seconds)
        found = msgspec.convert(text, datetime)
    except (OverflowError, msgspec.ValidationError):
        found = None
    if found is None or found.utcoffset() is None:
        raise InvalidInput(
            f"{name}: '{text[:80]}' is neither a duration, like 30m or 2h, nor a time with its "
            "zone, like 2026-01-31T12:00:00Z"
        )
    return found


def _seconds(name: str, text: str) -> float:
    seconds = parse_seconds(text)
    if seconds is None or not 0 <= seconds < 1e12:
        raise InvalidInput(f"{name}: '{text[:80]}' is no duration; give one like 500ms, 30s or 2h")
    return seconds
