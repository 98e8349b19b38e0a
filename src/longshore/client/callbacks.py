"""What became of the callbacks of a job or a group, asked of dispatchers."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from longshore.client.connection import Connection
from longshore.errors import NotFound
from longshore.model.job import Job
from longshore.model.watcher import Watcher
from longshore.payload.callback_words import CallbackView, callback_ids, callback_view


async def callbacks_of(
    connection: Connection, subject: UUID, round: int, watchers: Sequence[Watcher], *, ended: bool
) -> list[CallbackView]:
    """The callbacks of a round; without asking, if it has not ended or there are none."""
    found = []
    for watcher, id in callback_ids(subject, round, watchers):
        job = await _job(connection, id) if ended else None
        found.append(callback_view(watcher, id, job))
    return found


async def _job(connection: Connection, id: UUID) -> Job | None:
    try:
        return await connection.job(id)
    except NotFound:
        return None
