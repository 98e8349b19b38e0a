"""A job's log and its changes, once or as streams that can be resumed."""

from __future__ import annotations

import asyncio
import re
from contextlib import aclosing
from typing import Annotated, Final
from uuid import UUID

from msgspec import Meta, Struct
from starlette.responses import Response

from longshore.client import jsonable
from longshore.client.connection import Ref
from longshore.client.logs import is_over
from longshore.core.group_words import shown_state
from longshore.core.lifecycle import HISTORY_FIRST, TERMINAL
from longshore.errors import InvalidInput
from longshore.gateway.jobs import is_cut
from longshore.gateway.log_archiving import read_log
from longshore.gateway.operation import Call, answer
from longshore.gateway.streams import END, Event, Events
from longshore.model.job import HistoryEntry, Job
from longshore.model.log import LogPage

_PLACE: Final = re.compile(r"(\d{1,19})-(\d{1,19})")
Place = tuple[int, int]


class LogsQuery(Struct, frozen=True):
    """Which part of a log to read."""

    follow: bool = False
    """Stream new lines until the job has ended."""
    attempt: Annotated[int, Meta(ge=1, le=2**31 - 1)] | None = None
    after: str | None = None
    """The cursor: the `next` of the page before."""


# logs


async def show_logs(call: Call) -> Response:
    """Shows a page of a job's log, or streams it."""
    query, ref = call.query(LogsQuery), call.ref("job")
    last = call.last_event if query.follow else None
    if last == END:
        return Response(status_code=204)
    after = place_in_log(last or query.after or "0-0")
    page = await _page(call, ref, query.attempt, after)
    if not query.follow:
        lines = [jsonable.plain(line) for line in page.lines]
        more = {"next": _text(page.after), "more": page.more}
        return answer({"lines": lines, **more, "state": page.state.value, "attempt": page.attempt})
    return call.gateway.streams.answer(_log_events(call, ref, query.attempt, after))


async def _log_events(call: Call, ref: Ref, attempt: int | None, after: Place) -> Events:
    """The lines after a place, until there can be no more."""

    # A log has no shared look: each of its readers is at another place.
    loop, changes = asyncio.get_running_loop(), call.gateway.streams.changes
    with changes.looking():
        while True:
            number, began_at = changes.number, loop.time()
            page = await _page(call, ref, attempt, after)
            for line in page.lines:
                yield Event("line", jsonable.plain(line), _text((line.token, line.seq)))
            after = page.after
            if not page.more and is_over(page, attempt):
                yield Event(END, {"state": page.state.value}, END)
                return
            if not page.more:
                await changes.rest(loop.time() - began_at)
                await changes.after(number)


async def _page(call: Call, ref: Ref, attempt: int | None, after: Place) -> LogPage:
    """A page of a log, also of what lies in the file store."""
    return await read_log(call.connection, call.gateway.files, ref, attempt, after)


def place_in_log(text: str) -> Place:
    """The place in a log that a text names."""
    found = _PLACE.fullmatch(text)
    if not found or max(int(found[1]), int(found[2])) >= 2**63:
        raise InvalidInput(f"{text[:80]!r} is no place in a log; give the `next` of a page")
    return int(found[1]), int(found[2])


def _text(place: Place) -> str:
    return f"{place[0]}-{place[1]}"


# changes


async def stream_job(call: Call) -> Response:
    """Streams the changes of a job until it has ended."""
    last = call.last_event
    if last == END:
        return Response(status_code=204)
    job = await call.connection.job(call.ref("job"))
    return call.gateway.streams.answer(_job_events(call, job.id, last))


async def _job_events(call: Call, id: UUID, last: str | None) -> Events:
    told = _Told(last)
    streams = call.gateway.streams
    news = streams.news(
        ("job", id), lambda: call.connection.job(id), streams.job_changes.until_changed
    )
    async with aclosing(news):
        async for job in news:
            for event in told.events(job):
                yield event
            if shown_state(job) in TERMINAL:
                yield Event(END, {"state": job.state.value}, END)
                return


class _Told:
    """What a stream has told of a job. `last` is the id of the last change."""

    def __init__(self, last: str | None) -> None:
        self._last = last
        self._said: tuple[object, object] = (None, None)

    def events(self, job: Job) -> list[Event]:
        """The events for what is new in a job."""
        found = self._changes(job)
        if (job.progress, job.step) != self._said:
            self._said = (job.progress, job.step)
            said = {"progress": jsonable.plain(job.progress), "step": job.step}
            found.append(Event("progress", said))
        return found

    def _changes(self, job: Job) -> list[Event]:
        """The changes since the last one that was told; a `gap` where the store has cut some."""
        events = [_change(job, place) for place in range(len(job.history))]
        ids = [event.id for event in events]
        if self._last in ids:
            begin = ids.index(self._last) + 1
            is_gap = is_cut(job) and begin == HISTORY_FIRST
        else:
            is_gap = self._last is not None
            begin = HISTORY_FIRST if is_gap and is_cut(job) else 0
        new = events[begin:]
        if is_gap:
            new.insert(0, _GAP)
        elif is_cut(job) and begin < HISTORY_FIRST:
            new.insert(HISTORY_FIRST - begin, _GAP)
        self._last = ids[-1] if ids else self._last
        return new


_GAP: Final = Event("gap", {"why": "the store keeps the first 5 and the last 45 changes of a job"})


def _change(job: Job, place: int) -> Event:
    """A change; its id is its time, and how many changes before it have that time."""
    entry = job.history[place]
    same = sum(one.at == entry.at for one in job.history[:place])
    return Event("change", jsonable.plain(entry), f"{_micros(entry)}-{same}")


def _micros(entry: HistoryEntry) -> int:
    return int(entry.at.timestamp()) * 1_000_000 + entry.at.microsecond
