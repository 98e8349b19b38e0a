"""Jobs and workers as documents of the Etcd Job Queue, asked of dispatchers."""

from __future__ import annotations

from typing import Any, Final
from uuid import UUID

from longshore.client.connection import Connection
from longshore.client.logs import read_logs
from longshore.model.job import Job, JobFilter, JobState
from longshore.model.log import ENGINE, STEP
from longshore.payload.etcdq import job_document, worker_document

MOST_LINES: Final = 10_000
"""How many steps of a job are shown, the newest."""
_MOST_JOBS: Final = 1_000
_RUNS: Final = (JobState.RUNNING, JobState.CANCELLING)


async def shown_job(connection: Connection, job: Job) -> dict[str, Any]:
    """A container job as a document, with the steps that it told."""
    log = [line async for line in read_logs(connection, job.id) if line.stream in (STEP, ENGINE)]
    names = {view.info.id: view.info.name for view in await connection.workers()}
    owner = "" if job.worker is None else names.get(job.worker) or str(job.worker)
    return job_document(job, log[-MOST_LINES:], owner)


async def shown_workers(connection: Connection) -> list[dict[str, Any]]:
    """All workers as documents; each with one of the jobs that it runs."""
    page = await connection.jobs(JobFilter(states=_RUNS, limit=_MOST_JOBS))
    first = {job.worker: job.number for job in page.jobs}  # the newest come first
    documents = []
    for view in await connection.workers():
        number = first.get(view.info.id)
        if number is None and view.alive and any(view.running.values()):
            number = await _job_of(connection, view.info.id)
        documents.append(worker_document(view, number))
    return documents


async def _job_of(connection: Connection, worker: UUID) -> int | None:
    """A job that a worker runs; None if it has just ended. Others run very many newer ones."""
    before: int | None = None
    while True:
        wanted = JobFilter(states=_RUNS, worker=worker, limit=1, before=before)
        page = await connection.jobs(wanted)
        if page.jobs or page.stopped_at is None:
            return page.jobs[0].number if page.jobs else None
        before = page.stopped_at
