"""The life of a job as rows of bars: what it waited for in its last round, and each attempt.

A bar is a rectangle whose units are seconds since the first of them. One that goes on has no end on
the server, which knows no clock here: the browser lets it grow, and the others shrink (`ages.js`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Final, NamedTuple

from longshore.core.lifecycle import OWNED, TERMINAL
from longshore.core.timing import span
from longshore.core.waits import wait_words
from longshore.gateway.pages import parts
from longshore.gateway.pages.html import NOTHING, Html, h
from longshore.model.job import HistoryEntry, Job, JobState
from longshore.model.waited import WaitCause, Waited

MOST_ATTEMPTS: Final = 20
"""Of more attempts the newest are shown."""
_ROOM: Final = 1.25
"""What goes on gets so much room at first, until the browser knows better."""
_COLOURS: Final = {
    WaitCause.DEPENDENCIES: "waiting",
    WaitCause.DELAY: "delayed",
    WaitCause.BACKOFF: "delayed",
    WaitCause.SLOT: "ready",
    WaitCause.LIMIT: "limit",
    WaitCause.PAUSED_QUEUE: "paused",
    WaitCause.PAUSED_GROUP: "paused",
    WaitCause.PAUSED_ACTOR: "paused",
}


class Bar(NamedTuple):
    """A time, and its colour; without an end it goes on."""

    since: datetime
    until: datetime | None
    colour: str
    words: str


class Row(NamedTuple):
    """What one line shows."""

    name: str
    bars: Sequence[Bar]


def rows_of(job: Job) -> list[Row]:
    """The rows: what it waited for, then its attempts, the oldest first."""
    waits = [
        Row(f"waited {wait_words(one)}", bars)
        for one in job.waited
        if (bars := [*_waits(job, one)])
    ]
    waits.sort(key=lambda row: row.bars[0].since)
    attempts = [Row(name, bars) for name, bars in _attempts(job)]
    return [*waits, *attempts[-MOST_ATTEMPTS:]]


def _waits(job: Job, waited: Waited) -> Iterator[Bar]:
    colour = _COLOURS.get(waited.cause, "waiting")
    for one in waited.times:
        yield Bar(one.since, one.until, colour, "waited")
    if waited.since is not None and job.state not in TERMINAL:
        yield Bar(waited.since, None, colour, "waits")


def _attempts(job: Job) -> Iterator[tuple[str, list[Bar]]]:
    """Each attempt: held ahead of a free slot, then running, and how it ended."""
    ends: list[HistoryEntry | None] = [*job.history[1:], None]
    spells = [
        (entry, end)
        for entry, end in zip(job.history, ends, strict=True)
        if entry.state is JobState.RUNNING
    ]
    for at, (entry, end) in enumerate(spells):
        is_last = at == len(spells) - 1
        name = f"attempt {max(1, job.attempt - (len(spells) - 1 - at))}"
        yield name, [*_attempt(job, entry, end, is_last=is_last)]


def _attempt(
    job: Job, entry: HistoryEntry, end: HistoryEntry | None, *, is_last: bool
) -> Iterator[Bar]:
    begun = entry.at
    until, outcome = _outcome(job, end)
    if is_last and job.held_behind is not None:
        yield Bar(begun, None, "held", "held ahead of a free slot")
        return
    if is_last and job.started_at is not None and begun < job.started_at:
        yield Bar(begun, job.started_at, "held", "held ahead of a free slot")
        begun = job.started_at
    yield Bar(begun, until, outcome, "runs" if until is None else f"ran, then {outcome}")


def _outcome(job: Job, end: HistoryEntry | None) -> tuple[datetime | None, str]:
    """When an attempt ended, and the state of the job after it, as a colour."""
    if end is None:
        return (None, "running") if job.state in OWNED else (job.ended_at, job.state.value)
    if end.state is JobState.CANCELLING:
        is_over = job.ended_at is not None and job.ended_at >= end.at
        return (job.ended_at, "cancelled") if is_over else (None, "cancelling")
    # What goes back to wait did not succeed.
    return end.at, end.state.value if end.state in TERMINAL else "failed"


def timeline(job: Job) -> Html:
    """The rows as a table; nothing of a job that has neither waited nor run."""
    rows = rows_of(job)
    times = [at for row in rows for bar in row.bars for at in (bar.since, bar.until) if at]
    if not times:
        return NOTHING
    first = min([*times, *(one.at for one in job.history[:1])])
    ended_s = max((max(times) - first).total_seconds(), 0.001)
    goes_on = any(bar.until is None for row in rows for bar in row.bars)
    whole = ended_s * _ROOM if goes_on else ended_s
    body = [_line(row, first, whole, goes_on=goes_on) for row in rows]
    head = h("caption", "Where its time went", class_="sr")
    return h("div", h("table", head, h("tbody", body), class_="timeline"), class_="card life-card")


def _line(row: Row, first: datetime, whole: float, *, goes_on: bool) -> Html:
    bars = [_bar(one, first, whole) for one in row.bars]
    drawn = h(
        "svg",
        bars,
        viewbox=f"0 0 {whole:.6f} 10",
        preserveAspectRatio="none",
        class_="life",
        aria_hidden="true",
        data_first=parts.iso(first) if goes_on else None,
    )
    return h("tr", h("th", row.name, scope="row"), h("td", drawn), h("td", _total(row), class_="n"))


def _bar(bar: Bar, first: datetime, whole: float) -> Html:
    x = (bar.since - first).total_seconds()
    width = whole - x if bar.until is None else (bar.until - bar.since).total_seconds()
    took = "" if bar.until is None else f" for {span(width)}"
    return h(
        "rect",
        h("title", f"{bar.words}{took}"),
        x=f"{x:.6f}",
        width=f"{max(width, 0.0):.6f}",
        height=10,
        class_=f"f-{bar.colour}",
        data_grows=True if bar.until is None else None,
    )


def _total(row: Row) -> Html | str | None:
    """How long all bars of a row took; a clock, if the last goes on."""
    last = row.bars[-1]
    if last.until is None:
        return parts.since(last.since)
    ended = [(one.until - one.since).total_seconds() for one in row.bars if one.until is not None]
    return span(sum(ended))
