"""The workers, and the page of one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from longshore.client import jsonable
from longshore.core.access import Right
from longshore.core.capacity import pool_busy, pool_slots, pools_of
from longshore.core.naming import workers_named
from longshore.core.timing import span
from longshore.errors import NotFound
from longshore.gateway.operation import Call
from longshore.gateway.pages import parts
from longshore.gateway.pages.html import Html, h, joined
from longshore.gateway.pages.jobs import jobs_table
from longshore.gateway.pages.page import Page, Regions, View
from longshore.model.job import Job, JobFilter
from longshore.model.worker import WorkerView, slot_words

_NEWEST: Final = 30
BEAT_S: Final = 5.0
"""How often their load is looked at: it changes without a change of any job."""


class Seen(Struct, frozen=True):
    """What the page of all workers shows."""

    workers: Sequence[WorkerView]


async def look(call: Call) -> Seen:
    """Asks for workers."""
    return Seen(sorted(await call.connection.workers(), key=_order))


def _order(view: WorkerView) -> tuple[bool, bool, str]:
    return (not view.alive, view.info.gateway, view.info.name)


def show(seen: Seen, view: View) -> Regions:
    """The regions of the page of all workers."""
    alive = [one for one in seen.workers if one.alive and not one.info.gateway]
    gone = [one for one in seen.workers if not one.alive]
    return {
        "list": joined(parts.heading("Workers"), _table(alive, view)),
        "gone": parts.section("Ended lately", _gone(gone, view)),
    }


def _name(one: WorkerView, view: View) -> Html:
    return h(
        "a", one.info.name or str(one.info.id), href=parts.url(view.root, "workers", one.info.id)
    )


def _table(workers: Sequence[WorkerView], view: View) -> Html:
    rows = [
        [
            _name(one, view),
            parts.state(jsonable.worker_state(one)),
            _slots(one),
            ", ".join(f"{count:,} {kind}" for kind, count in one.running.items()),
            ", ".join(one.info.queues) or "all",
            _load(one),
            parts.when(one.seen_at),
            parts.since(one.started_at),
            drain(one) if view.may(Right.ADMIN) else None,
        ]
        for one in workers
    ]
    heads = ("worker", "state", "slots", "runs", "queues", "load", "seen", "up", " ")
    return parts.table(heads, rows, "Live workers", empty="no worker is alive")


def _slots(one: WorkerView) -> Html:
    pools = [
        h(
            "div",
            f"{pool_busy(one, pool):,} / {pool_slots(one, pool):,} {slot_words(pool)[1]}",
        )
        for pool in pools_of([one])
        if pool_slots(one, pool)
    ]
    return joined(pools)


def _load(one: WorkerView) -> str | None:
    if one.cpu_percent is None:
        return None
    return f"{one.cpu_percent:.0f} % CPU, {one.memory_percent or 0:.0f} % memory"


def drain(one: WorkerView) -> Html | None:
    """The button that has a worker finish and leave."""
    if not one.alive or one.draining:
        return None
    words = (
        f"Drain worker {one.info.name}? It finishes what it runs, takes nothing new, and leaves."
    )
    path = f"dispatcher/workers/{one.info.id}/drain"
    return parts.action("Drain", "POST", path, confirm=words, danger=True)


def _gone(workers: Sequence[WorkerView], view: View) -> Html:
    rows = [[_name(one, view), parts.when(one.ended_at), one.ended_why] for one in workers]
    return parts.table(("worker", "ended", "why"), rows, "Workers that ended", empty="none")


# one worker


class OneSeen(Struct, frozen=True):
    """What the page of one worker shows."""

    worker: WorkerView
    jobs: Sequence[Job]


async def look_at(call: Call) -> OneSeen:
    """Asks for a worker and its newest jobs."""
    name = call.name("id")
    found = workers_named(name, await call.connection.workers())
    if len(found) != 1:
        raise NotFound(f"there is no worker {name!r}, or several go by that name; see all workers")
    [worker] = found
    wanted = JobFilter(worker=worker.info.id, limit=_NEWEST)
    return OneSeen(worker, (await call.connection.jobs(wanted)).jobs)


def show_one(seen: OneSeen, view: View) -> Regions:
    """The regions of the page of one worker."""
    one, info = seen.worker, seen.worker.info
    button = drain(one) if view.may(Right.ADMIN) else None
    title = joined("Worker ", h("span", info.name or str(info.id), class_="kind"))
    resources = ", ".join(f"{name} {amount:g}" for name, amount in info.resources.items())
    about = [
        ("slots", _slots(one)),
        (
            "runs",
            ", ".join(f"{count:,} {kind}" for kind, count in one.running.items()) or "nothing",
        ),
        ("load", _load(one)),
        ("queues", ", ".join(info.queues) or "all"),
        ("kinds", ", ".join(sorted(info.kinds))),
        ("target", info.target),
        ("resources", resources),
        ("machine", " ".join(filter(None, (info.host, info.machine.instance)))),
        ("process", str(info.pid) if info.pid else None),
        ("session", str(one.session)),
        ("lease", span(info.lease_s) if info.lease_s else None),
        ("seen", parts.when(one.seen_at)),
        ("up", parts.since(one.started_at) if one.alive else None),
        ("ended", parts.when(one.ended_at)),
        ("why", one.ended_why),
        ("dispatcher", h("code", str(one.dispatcher))),
        ("id", h("code", str(info.id))),
    ]
    return {
        "head": parts.heading(title, parts.state(jsonable.worker_state(one)), button),
        "facts": parts.section("Facts", parts.facts(about)),
        "jobs": joined(h("h2", "Its newest jobs"), jobs_table(seen.jobs, view)),
    }


WORKERS: Final = Page(
    path="/workers/",
    id="page_workers",
    title=lambda _: "Workers",
    look=look,
    show=show,
    again_s=lambda _: BEAT_S,
)
WORKER: Final = Page(
    path="/workers/{id}",
    id="page_worker",
    title=lambda seen: f"Worker {seen.worker.info.name}",
    look=look_at,
    show=show_one,
    again_s=lambda seen: BEAT_S if seen.worker.alive else None,
)
