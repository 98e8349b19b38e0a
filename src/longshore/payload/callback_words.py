"""Says what became of callbacks: of which end each tells, and whether it was delivered."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from msgspec import Struct, structs

from longshore.core.addresses import shown_url
from longshore.model.ids import watched_id
from longshore.model.job import Job, JobState
from longshore.model.watcher import CallbackWatcher, Watcher
from longshore.payload.callback_jobs import callback_of


class CallbackView(Struct, frozen=True, kw_only=True):
    """A callback of a job or a group, and how far it is.

    `state` is that of its job. It is None while there is no job: what it tells of has not ended, or
    the job was removed since.
    """

    url: str
    method: str
    id: UUID
    number: int | None = None
    state: JobState | None = None
    attempt: int = 0
    delivered_at: datetime | None = None
    error: str | None = None


def callback_ids(
    subject: UUID, round: int, watchers: Sequence[Watcher]
) -> list[tuple[CallbackWatcher, UUID]]:
    """The callbacks of a round of a job or a group, with the ids of their jobs."""
    return [
        (watcher, watched_id(subject, round, place))
        for place, watcher in enumerate(watchers)
        if isinstance(watcher, CallbackWatcher)
    ]


def callback_view(watcher: CallbackWatcher, id: UUID, job: Job | None) -> CallbackView:
    """How far a callback is, by its job, if there is one."""
    view = CallbackView(url=watcher.url, method=watcher.method, id=id)
    if job is None:
        return view
    return structs.replace(
        view,
        number=job.number,
        state=job.state,
        attempt=job.attempt,
        delivered_at=job.ended_at if job.state is JobState.SUCCEEDED else None,
        error=None if job.error is None else job.error.message,
    )


def words(view: CallbackView) -> str:
    """What became of a callback, in a few words."""
    what = f"{view.method} {shown_url(view.url)}"
    error = f" ({view.error})" if view.error else ""
    match view.state:
        case None:
            return f"{what}: not yet"
        case JobState.SUCCEEDED:
            return f"{what}: delivered by job {view.number}"
        case state:
            return f"{what}: {state.value}, job {view.number}{error}"


def purpose(job: Job) -> str:
    """Of whose end a callback's job tells; empty if the job is no callback."""
    callback = callback_of(job)
    if callback is None:
        return ""
    kind, state = callback.event.split(".", 1)
    number = callback.subject_number
    subject = f"{kind} {callback.subject if number is None else number}"
    return f"it tells {shown_url(callback.url)} that {subject} ended as {state}"
