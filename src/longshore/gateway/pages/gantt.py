"""When the jobs of a group ran, as SVG: a row for each job, from its begin to its end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final
from uuid import UUID

from longshore.core.timing import span
from longshore.gateway.pages import parts
from longshore.gateway.pages.html import Html, h
from longshore.model.job import Job

MOST_JOBS: Final = 200
"""Of a larger group the chart shows the newest jobs."""
_ROW: Final = 16
_LEFT: Final = 200
_WIDTH: Final = 1000
_MOST_CHARS: Final = 28
_ROOM: Final = 1.25


def gantt(jobs: Sequence[Job], keys: Mapping[UUID, str], root: str) -> Html | None:
    """The chart of those that have begun. What still runs goes to the right edge."""
    begun = [(job.started_at, job) for job in jobs if job.started_at is not None]
    if not begun:
        return None
    begun.sort(key=lambda one: (one[0], one[1].number))
    first = begun[0][0]
    last = max(job.ended_at or at for at, job in begun)
    ended_s = max((last - first).total_seconds(), 0.001)
    # What still runs needs room at the right.
    goes_on = any(job.ended_at is None for _, job in begun)
    whole = ended_s * _ROOM if goes_on else ended_s
    rows = [
        _row(n, job, at, first, whole, keys.get(job.id, ""), root)
        for n, (at, job) in enumerate(begun)
    ]
    height = _ROW * len(rows) + 20
    words = "now" if goes_on else span(ended_s)
    end = h("text", words, x=_WIDTH, y=height - 5, text_anchor="end")
    begin = h("text", "0", x=_LEFT, y=height - 5)
    return h(
        "svg",
        rows,
        begin,
        end,
        viewbox=f"0 0 {_WIDTH} {height}",
        class_="gantt",
        role="group",
        aria_label=f"When {len(rows):,} jobs ran, over {span(ended_s)}",
    )


def _row(
    n: int, job: Job, begun: datetime, first: datetime, whole: float, key: str, root: str
) -> Html:
    scale = (_WIDTH - _LEFT) / whole
    x = _LEFT + (begun - first).total_seconds() * scale
    end = job.ended_at
    width = _WIDTH - x if end is None else (end - begun).total_seconds() * scale
    took = "runs" if end is None else f"took {span((end - begun).total_seconds())}"
    name = key or job.kind
    short = name if len(name) <= _MOST_CHARS else f"{name[: _MOST_CHARS - 1]}…"
    return h(
        "a",
        h("title", f"{name}: {job.state.value}, {took}"),
        h("text", short, x=_LEFT - 8, y=n * _ROW + 12, text_anchor="end"),
        h(
            "rect",
            x=f"{x:.1f}",
            y=n * _ROW + 3,
            width=f"{max(2.0, width):.1f}",
            height=_ROW - 5,
            class_=f"f-{job.state.value}",
        ),
        href=parts.url(root, "jobs", job.number),
    )
