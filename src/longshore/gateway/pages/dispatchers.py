"""The dispatchers, what each attends, and the gateways."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from uuid import UUID

from msgspec import Struct, structs

from longshore._version import __version__
from longshore.client import jsonable
from longshore.client.connection import all_of
from longshore.gateway.operation import Call
from longshore.gateway.pages import parts
from longshore.gateway.pages.html import Html, h, joined
from longshore.gateway.pages.page import Page, Regions, View
from longshore.model.worker import WorkerView
from longshore.wire.messages import DispatcherAnswer

LEASE_LOOK_S: Final = 5.0
"""How often leases are looked at: a dispatcher that falls silent changes nothing."""
_MOST_NAMED: Final = 12
"""So many of the workers that a dispatcher attends are named."""


class Seen(Struct, frozen=True):
    """What the page shows."""

    dispatchers: Sequence[DispatcherAnswer]
    workers: Sequence[WorkerView]
    answers: UUID
    """The dispatcher that answers this gateway."""
    version: str
    """Which Longshore that dispatcher is."""


async def look(call: Call) -> Seen:
    """Asks for dispatchers and for all that they attend."""
    connection = call.connection
    dispatchers, workers, hello = await all_of(
        [connection.dispatchers(), connection.workers(), connection.hello()]
    )
    alive = sorted((one for one in workers if one.alive), key=lambda one: one.info.name)
    return Seen([_still(one) for one in dispatchers], alive, hello.dispatcher, hello.version)


def _still(one: DispatcherAnswer) -> DispatcherAnswer:
    """A dispatcher without what changes with each renewal of its lease."""
    return structs.replace(one, renewed_no=0, silent_s=0.0)


def show(seen: Seen, view: View) -> Regions:
    """The regions of the page."""
    return {
        "list": joined(parts.heading("Dispatchers"), _dispatchers(seen, view)),
        "gateways": parts.section("Gateways", _gateways(seen, view)),
    }


def _dispatchers(seen: Seen, view: View) -> Html:
    rows = [
        [
            h("div", h("strong", one.name), _answers(one, seen)),
            parts.state(jsonable.dispatcher_state(one)),
            "renewed" if one.alive else "not renewed: others take over what it attends",
            _attended(seen.workers, one.id, view),
            parts.since(one.started_at),
            h("code", str(one.id)),
        ]
        for one in seen.dispatchers
    ]
    heads = ("dispatcher", "state", "lease", "attends", "up", "id")
    return parts.table(heads, rows, "Dispatchers", empty="none has a lease")


def _answers(one: DispatcherAnswer, seen: Seen) -> Html | None:
    if one.id != seen.answers:
        return None
    return h("div", f"Longshore {seen.version}, answers this gateway", class_="muted")


def _attended(workers: Sequence[WorkerView], dispatcher: UUID, view: View) -> Html:
    own = [one for one in workers if one.dispatcher == dispatcher and not one.info.service]
    links = [
        joined(", " if at else None, _worker(one, view)) for at, one in enumerate(own[:_MOST_NAMED])
    ]
    services = sum(one.dispatcher == dispatcher and bool(one.info.service) for one in workers)
    more = len(own) - len(links)
    return h(
        "span",
        links or "nobody",
        f" and {more:,} more" if more > 0 else None,
        f"; {services:,} web worker{'' if services == 1 else 's'}" if services else None,
    )


def _worker(one: WorkerView, view: View) -> Html:
    words = one.info.name or str(one.info.id)
    return h("a", words, href=parts.url(view.root, "workers", one.info.id))


def _gateways(seen: Seen, view: View) -> Html:
    names = {one.id: one.name for one in seen.dispatchers}
    rows = [
        [
            _worker(one, view),
            parts.state(jsonable.worker_state(one)),
            one.info.machine.url or None,
            _machine(one),
            names.get(one.dispatcher, str(one.dispatcher)),
            parts.since(one.started_at),
        ]
        for one in seen.workers
        if one.info.gateway and not one.info.service
    ]
    heads = ("gateway", "state", "address", "machine", "dispatcher", "up")
    note = h("p", f"The one that shows this page is Longshore {__version__}.", class_="muted")
    return joined(parts.table(heads, rows, "Gateways", empty="none is known"), note)


def _machine(one: WorkerView) -> str:
    machine = one.info.machine
    process = f"process {one.info.pid}" if one.info.pid else ""
    return " · ".join(filter(None, (one.info.host, machine.instance, process)))


DISPATCHERS: Final = Page(
    path="/dispatchers/",
    id="page_dispatchers",
    title=lambda _: "Dispatchers",
    look=look,
    show=show,
    again_s=lambda _: LEASE_LOOK_S,
)
