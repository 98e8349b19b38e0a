"""Reads a page of a job's log from the store."""

from __future__ import annotations

from longshore.core.logs import MOST_ENTRIES, page
from longshore.model.job import Job
from longshore.model.log import LogPage
from longshore.ports import Store
from longshore.wire.messages import ReadLogs


async def log_page(store: Store, job: Job, request: ReadLogs) -> LogPage:
    """What a job's attempts said after a place in its log; of one if it is given.

    The job was read before: once it has ended, the store has everything that it said. The archives
    come last: what has left the store by then is surely noted in them.
    """
    attempt, after = request.attempt, request.after
    most = max(1, min(request.most, MOST_ENTRIES))
    token = job.token if attempt == job.attempt else None
    entries = await store.logs(job.id, token=token, after=after, most=most)
    parts = await store.log_parts(job.id)
    return page(entries, most, job, after, attempt, parts)
