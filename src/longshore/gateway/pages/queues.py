"""The queues: what each holds and what holds it back; pause and resume."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from typing import Final
from urllib.parse import quote

from msgspec import Struct

from longshore.client.connection import all_of
from longshore.core.access import Right
from longshore.core.blocking import CAUSES, Cause
from longshore.core.job_query import LIVE, term
from longshore.gateway.operation import Call
from longshore.gateway.pages import parts
from longshore.gateway.pages.html import Html, h, joined
from longshore.gateway.pages.page import Page, Regions, View
from longshore.model.depth import LaneView
from longshore.model.job import JobState
from longshore.model.worker import QueueView


class Seen(Struct, frozen=True):
    """What the page shows."""

    queues: Sequence[QueueView]
    lanes: Sequence[LaneView]


async def look(call: Call) -> Seen:
    """Asks for queues and lanes."""
    queues, lanes = await all_of([call.connection.queues(), call.connection.lanes()])
    return Seen(sorted(queues, key=lambda one: one.name), lanes)


def show(seen: Seen, view: View) -> Regions:
    """The regions of the page."""
    return {
        "list": joined(parts.heading("Queues"), _queues(seen, view)),
        "lanes": parts.section("Lanes: queue, kind and target", _lanes(seen.lanes, view)),
    }


def _queues(seen: Seen, view: View) -> Html:
    oldest: dict[str, datetime] = {}
    for lane in seen.lanes:
        if lane.oldest_at is not None:
            known = oldest.get(lane.queue, lane.oldest_at)
            oldest[lane.queue] = min(known, lane.oldest_at)
    rows = []
    for queue in seen.queues:
        counts = Counter(queue.counts)
        live = sum(counts[state] for state in LIVE)
        rows.append(
            [
                h("a", queue.name, href=parts.jobs_url(view.root, term("queue", queue.name))),
                _paused(queue),
                parts.number(counts["ready"]),
                parts.since(oldest.get(queue.name)) if counts["ready"] else None,
                parts.number(counts["running"] + counts["cancelling"]),
                parts.number(counts["delayed"] + counts["waiting"]),
                parts.number(counts["succeeded"]),
                parts.number(counts["failed"]),
                parts.number(sum(counts.values()) - live),
                _button(queue) if view.may(Right.ADMIN) else None,
            ]
        )
    heads = ("queue", "", "ready#", "oldest", "running#", "later#", "succeeded#", "failed#")
    return parts.table((*heads, "ended#", " "), rows, "Queues", empty="no job has come yet")


def _paused(queue: QueueView) -> Html | None:
    if not queue.paused:
        return None
    return joined(parts.state("paused"), " ", parts.since(queue.paused_at))


def _button(queue: QueueView) -> Html:
    path = f"dispatcher/queues/{quote(queue.name, safe='')}"
    if queue.paused:
        return parts.action("Resume", "POST", f"{path}/resume", done=f"{queue.name} goes on.")
    words = f"Pause queue {queue.name}? None of its jobs will start until it is resumed."
    return parts.action(
        "Pause", "POST", f"{path}/pause", confirm=words, done=f"{queue.name} is paused."
    )


def _lanes(lanes: Sequence[LaneView], view: View) -> Html:
    def order(lane: LaneView) -> tuple[int, str, str, str]:
        return (-lane.counts.get("ready", 0), lane.queue, lane.kind, lane.target)

    rows = []
    for lane in sorted(lanes, key=order):
        query = f"{term('kind', lane.kind)} {term('queue', lane.queue)}"
        ready = lane.counts.get(JobState.READY.value, 0)
        rows.append(
            [
                h("a", lane.kind, href=parts.jobs_url(view.root, query)),
                lane.queue,
                lane.target,
                parts.number(ready),
                parts.number(lane.counts.get("running", 0)),
                parts.number(lane.counts.get("failed", 0)),
                f"a ready job {CAUSES[Cause(lane.held_back)]}" if lane.held_back else None,
            ]
        )
    heads = ("kind", "queue", "target", "ready#", "running#", "failed#", "what holds it back")
    return parts.table(heads, rows, "Lanes", empty="no lane holds jobs")


QUEUES: Final = Page(
    path="/queues/", id="page_queues", title=lambda _: "Queues", look=look, show=show
)
