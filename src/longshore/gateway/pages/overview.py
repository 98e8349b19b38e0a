"""The overview: what is wrong, how much is done, what waits, who works."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from longshore.client.connection import all_of
from longshore.client.neighbours import MAX_PATH_JOBS
from longshore.core.access import is_whole
from longshore.core.capacity import capacity
from longshore.core.job_query import LIVE, term
from longshore.core.troubles import About, SeenDispatcher, Trouble, troubles
from longshore.gateway.asking import asking
from longshore.gateway.operation import Call
from longshore.gateway.pages import parts
from longshore.gateway.pages.actors import actors_url
from longshore.gateway.pages.groups import progress
from longshore.gateway.pages.html import Html, h, joined
from longshore.gateway.pages.lookout import Sight
from longshore.gateway.pages.page import Page, Regions, View, view_of
from longshore.gateway.pages.throughput import EVERY_S
from longshore.model.depth import LaneView
from longshore.model.group import Group, GroupFilter, GroupState
from longshore.model.job import Job, JobFilter, JobState
from longshore.model.worker import Capacity

_NEWEST: Final = 6
"""How many failed jobs and groups are shown."""


class Seen(Struct, frozen=True):
    """What the overview shows."""

    lanes: Sequence[LaneView]
    capacity: Capacity
    workers: int
    troubles: Sequence[Trouble]
    failed: Sequence[Job]
    groups: Sequence[Group]
    rates: tuple[float, ...] | None
    is_behind: bool
    """Whether limits and schedules may be otherwise by now."""


async def look(call: Call) -> Seen:
    """Asks for all that the overview shows."""
    connection = call.connection
    lanes, workers, dispatchers, failed, groups, stalled = await all_of(
        [
            connection.lanes(),
            connection.workers(),
            connection.dispatchers(),
            connection.jobs(JobFilter((JobState.FAILED,), limit=_NEWEST)),
            _groups(call),
            _stalled(call),
        ]
    )
    seen = [SeenDispatcher(one.name, one.alive, one.silent_s) for one in dispatchers]
    sees_all = is_whole((await view_of(call)).asker.scope)
    sight = await call.gateway.lookout.sight() if sees_all else Sight()
    own = [one for one in workers if not one.info.gateway]
    return Seen(
        lanes,
        capacity(own),
        sum(one.alive for one in own),
        troubles(lanes, workers, seen, sight.keys, sight.paused, sight.turns, stalled),
        failed.jobs,
        groups,
        await _rates(call),
        sees_all and call.gateway.lookout.is_behind,
    )


async def _groups(call: Call) -> Sequence[Group]:
    """The newest groups that go on; none for a token that reaches some queues or kinds only."""
    if not is_whole((await view_of(call)).asker.scope):
        return ()
    wanted = (GroupState.RUNNING, GroupState.PAUSED, GroupState.CANCELLING)
    found = await call.connection.groups(GroupFilter(wanted, limit=_NEWEST))
    counted = [group.id for group in found if group.jobs <= MAX_PATH_JOBS]
    whole = {one.id: one for one in await all_of(call.connection.group(id) for id in counted)}
    return [whole.get(group.id, group) for group in found]


async def _stalled(call: Call) -> Sequence[Group]:
    """The newest groups that make no progress though they could."""
    if not is_whole((await view_of(call)).asker.scope):
        return ()
    found = await call.connection.groups(GroupFilter(limit=_NEWEST, stalled=True))
    # An older dispatcher lists all groups.
    return [group for group in found if group.stalled_at is not None]


async def _rates(call: Call) -> tuple[float, ...] | None:
    """The throughput of the whole store, for who may see the whole."""
    if asking() is not None and not is_whole((await view_of(call)).asker.scope):
        return None
    return call.gateway.throughput.rates()


def show(seen: Seen, view: View) -> Regions:
    """The regions of the overview."""
    return {
        "troubles": _troubles(seen.troubles, view),
        "figures": _figures(seen, view),
        "queues": _queues(seen.lanes, view),
        "pools": _pools(seen.capacity),
        "failed": _failed(seen.failed, view),
        "groups": _groups_going_on(seen.groups, view),
    }


# what is wrong

_PLACES: Final = {
    About.QUEUES: "queues/",
    About.WORKERS: "workers/",
    About.DISPATCHERS: "dispatchers/",
    About.LIMITS: "limits/?show=waiting",
}


def _troubles(found: Sequence[Trouble], view: View) -> Html:
    if not found:
        good = h("p", "Nothing is wrong: every lane is served, and nothing stands still.")
        return h("section", h("h2", "Now", class_="sr"), good, class_="card good")
    listed = [
        h("li", _trouble(one, view), class_="grave" if one.grave else "mild") for one in found
    ]
    title = "1 thing is wrong" if len(found) == 1 else f"{len(found)} things are wrong"
    return h("section", h("h2", title), h("ul", listed, class_="troubles"), class_="card wrong")


def _trouble(one: Trouble, view: View) -> Html:
    where = _place(one, view)
    waits = [" · ", parts.when(one.since)] if one.since else []
    return joined(h("a", one.words, href=where), h("span", waits, class_="muted"))


def _place(one: Trouble, view: View) -> str:
    match one.about:
        case About.JOBS:
            return parts.jobs_url(view.root, one.query)
        case About.ACTORS:
            return actors_url(view.root, one.query, "failed")
        case About.TURNS:
            return actors_url(view.root, one.query, "running")
        case About.SCHEDULES:
            return parts.url(view.root, "schedules", one.query)
        case About.GROUPS:
            return parts.url(view.root, "groups", one.query)
        case _:
            return view.root + _PLACES[one.about]


# figures


def _figures(seen: Seen, view: View) -> Html:
    counts = _counts(seen.lanes)
    slots = sum(pool.slots for pool in seen.capacity.pools)
    busy = sum(pool.busy for pool in seen.capacity.pools)
    ready = counts[JobState.READY]
    live = [
        ("ready", ready, "state:ready"),
        ("running", counts[JobState.RUNNING] + counts[JobState.CANCELLING], "state:running"),
        ("delayed", counts[JobState.DELAYED], "state:delayed"),
        ("waiting", counts[JobState.WAITING], "state:waiting"),
        ("succeeded", counts[JobState.SUCCEEDED], "state:succeeded"),
        ("failed", counts[JobState.FAILED], "state:failed"),
    ]
    tiles = [
        h(
            "a",
            h("span", parts.number(count), class_="big"),
            h("span", name),
            href=parts.jobs_url(view.root, query),
            class_=f"tile t-{name}" if count else "tile zero",
        )
        for name, count, query in live
    ]
    used = h(
        "a",
        h("span", f"{busy:,}", h("small", f" / {slots:,}"), class_="big"),
        h("span", f"slots busy, {seen.workers:,} worker{'' if seen.workers == 1 else 's'}"),
        href=f"{view.root}workers/",
        class_="tile",
    )
    return h(
        "section", h("h2", "Jobs", class_="sr"), _rate(seen.rates), used, tiles, class_="tiles"
    )


def _rate(rates: tuple[float, ...] | None) -> Html | None:
    if rates is None:
        return None
    now = parts.rate(rates[-1]) if rates else "–"
    words = f"{now} jobs a second now; the line shows the last ten minutes"
    return h(
        "div",
        h("span", now, h("small", " /s"), class_="big"),
        h("span", "jobs ended"),
        sparkline(rates, words),
        class_="tile rate",
    )


def sparkline(rates: Sequence[float], words: str) -> Html:
    """A small line of numbers, as SVG."""
    most = max([*rates, 1.0])
    step = 120 / 119
    left = 120 - step * (len(rates) - 1)
    points = [
        f"{left + place * step:.1f},{30 - 28 * value / most:.1f}"
        for place, value in enumerate(rates)
    ]
    line = h("polyline", points=" ".join(points)) if len(points) > 1 else None
    area = (
        h("polygon", points=f"{left:.1f},31 {' '.join(points)} 120,31") if len(points) > 1 else None
    )
    return h(
        "svg",
        area,
        line,
        viewbox="0 0 120 32",
        preserveAspectRatio="none",
        class_="spark",
        role="img",
        aria_label=words,
    )


def _counts(lanes: Sequence[LaneView]) -> Counter[str]:
    counts: Counter[str] = Counter()
    for lane in lanes:
        counts.update(lane.counts)
    return counts


# queues and pools


def _queues(lanes: Sequence[LaneView], view: View) -> Html:
    by_queue: dict[str, list[LaneView]] = {}
    for lane in lanes:
        by_queue.setdefault(lane.queue, []).append(lane)
    rows = [_queue_row(name, some, view) for name, some in sorted(by_queue.items())]
    heads = ("queue", "", "ready#", "running#", "later#", "oldest", "ended#")
    body = parts.table(heads, rows, "Queues", empty="no job has come yet")
    return parts.section("Queues", body)


def _queue_row(name: str, lanes: Sequence[LaneView], view: View) -> list[Html | str | None]:
    counts = _counts(lanes)
    oldest = min((lane.oldest_at for lane in lanes if lane.oldest_at), default=None)
    live = sum(counts[state] for state in LIVE)
    later = counts[JobState.DELAYED] + counts[JobState.WAITING]
    running = counts[JobState.RUNNING] + counts[JobState.CANCELLING]
    return [
        h("a", name, href=parts.jobs_url(view.root, term("queue", name))),
        parts.state("paused") if lanes[0].paused else None,
        parts.number(counts[JobState.READY]),
        parts.number(running),
        parts.number(later),
        parts.since(oldest) if counts[JobState.READY] else None,
        parts.number(sum(counts.values()) - live),
    ]


def _pools(seen: Capacity) -> Html:
    rows = [
        [
            pool.pool,
            parts.number(pool.workers),
            parts.bar(
                [("running", pool.busy), ("ready", pool.free)],
                max(pool.slots, 1),
                f"{pool.busy:,} of {pool.slots:,} slots busy",
            ),
            f"{pool.busy:,} / {pool.slots:,}",
        ]
        for pool in seen.pools
        if pool.slots
    ]
    heads = ("pool", "workers#", "in use", "slots#")
    return parts.section("Slots", parts.table(heads, rows, "Pools", empty="no worker is alive"))


# what failed, what goes on


def _failed(jobs: Sequence[Job], view: View) -> Html:
    rows = [
        [
            parts.job_link(view.root, job.number),
            job.kind,
            parts.error_words(job.error) if job.error else "",
            parts.when(job.ended_at),
        ]
        for job in jobs
    ]
    heads = ("job#", "kind", "error", "ended")
    body = parts.table(heads, rows, "Newest failed jobs", empty="none of the kept jobs failed")
    return parts.section("Newest failures", body)


def _groups_going_on(groups: Sequence[Group], view: View) -> Html:
    rows = [
        [
            parts.group_link(view.root, group.number),
            parts.group_link(view.root, group.number, group.name),
            parts.state(group.state),
            progress(group),
            parts.number(group.jobs),
            parts.when(group.created_at),
        ]
        for group in groups
    ]
    heads = ("group#", "name", "state", "progress", "jobs#", "submitted")
    body = parts.table(heads, rows, "Groups that go on", empty="no group goes on")
    return parts.section("Groups that go on", body)


def again_s(seen: Seen) -> float | None:
    """Until no job ends any more, the rate falls although nothing changes."""
    falls = bool(seen.rates and seen.rates[-1])
    return EVERY_S if falls or seen.is_behind else None


OVERVIEW: Final = Page(
    path="/",
    id="page_overview",
    title=lambda _: "Overview",
    look=look,
    show=show,
    again_s=again_s,
)
