"""Queues, workers, dispatchers and the gateway itself over HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import aclosing
from typing import Literal

from msgspec import Struct
from starlette.responses import Response

from longshore._version import __version__
from longshore.client import etcdq, jsonable
from longshore.core import metering
from longshore.core.limits import check_name
from longshore.core.metering import Sample, snapshot
from longshore.core.naming import workers_named
from longshore.errors import InvalidInput, NotFound, Unavailable, WrongState
from longshore.gateway import web_routes
from longshore.gateway.asking import asked_by
from longshore.gateway.operation import Call, Gateway, answer
from longshore.gateway.problems import NoRoute, all_errors, explained
from longshore.gateway.streams import Event, Events
from longshore.links.openmetrics import exposition
from longshore.model.worker import DrainVerdict, WorkerView

# queues


async def list_queues(call: Call) -> Response:
    """Lists the queues, and how many jobs each holds."""
    return answer({"queues": [jsonable.queue(one) for one in await call.connection.queues()]})


async def list_lanes(call: Call) -> Response:
    """Lists the lanes that hold jobs, and what holds their ready ones back."""
    return answer({"lanes": jsonable.plain(await call.connection.lanes())})


async def pause_queue(call: Call) -> Response:
    """Lets no job of a queue start."""
    return await _set_paused(call, True)


async def resume_queue(call: Call) -> Response:
    """Lets the jobs of a queue start again."""
    return await _set_paused(call, False)


async def _set_paused(call: Call, paused: bool) -> Response:
    name = call.name("name")
    check_name("queue", name)
    await call.connection.pause(name, paused)
    return answer({"name": name, "paused": paused})


async def stream_queues(call: Call) -> Response:
    """Streams how many jobs each queue holds, whenever that changes."""
    return call.gateway.streams.answer(_queue_events(call))


async def _queue_events(call: Call) -> Events:
    """All counts first, also for a client that comes back; then those of queues that changed."""
    known: dict[str, object] | None = None
    async with aclosing(call.gateway.streams.news("queues", call.connection.queues)) as news:
        async for seen in news:
            queues = {one.name: jsonable.queue(one) for one in seen}
            if known is None:
                yield Event("resync", {"queues": list(queues.values())})
            else:
                changed = [one for name, one in queues.items() if known.get(name) != one]
                yield Event("queues", {"queues": changed})
            known = {**queues}


# workers and dispatchers


class WorkersQuery(Struct, frozen=True):
    """How to list workers."""

    format: Literal["etcdq"] | None = None
    """As documents of the Etcd Job Queue."""


async def list_workers(call: Call) -> Response:
    """Lists the workers, and those that ended lately."""
    if call.query(WorkersQuery).format is not None:
        return answer({"workers": await etcdq.shown_workers(call.connection)})
    workers = await call.connection.workers()
    services = await call.connection.web.listed()
    seen_at = {one.info.id: one.seen_at for one in workers}
    return answer(
        {
            "workers": [jsonable.worker(one) for one in workers],
            "web_workers": [web_routes.shown(one, seen_at) for one in services],
        }
    )


async def show_worker(call: Call) -> Response:
    """Shows a worker, or the registration of a web worker."""
    if (web := await web_routes.find(call, call.name("id"))) is not None:
        seen_at = {one.info.id: one.seen_at for one in await call.connection.workers()}
        return answer(web_routes.shown(web, seen_at))
    return answer(jsonable.worker(await _worker(call)))


async def _worker(call: Call) -> WorkerView:
    name = call.name("id")
    found = workers_named(name, await call.connection.workers())
    if not found:
        raise NotFound(f"there is no worker {name!r}")
    if len(found) > 1:
        ids = ", ".join(str(view.info.id) for view in found)
        raise InvalidInput(f"several workers go by {name!r}; give the id of one: {ids}")
    return found[0]


async def drain_worker(call: Call) -> Response:
    """Lets a worker finish what it runs, and leave."""
    worker = await _worker(call)
    [done] = await call.connection.drain([str(worker.info.id)])
    if done.verdict is DrainVerdict.GONE:
        raise WrongState(f"worker {worker.info.id} is gone already")
    if done.id is None:
        raise NotFound(f"there is no worker {worker.info.id}")
    document = {"id": str(done.id), "name": done.name, "verdict": done.verdict.value}
    return answer(document, 202)


async def show_capacity(call: Call) -> Response:
    """Says how many more jobs the workers can take."""
    return answer(jsonable.plain(await call.connection.capacity()))


async def list_dispatchers(call: Call) -> Response:
    """Lists the dispatchers."""
    found = await call.connection.dispatchers()
    return answer({"dispatchers": [jsonable.dispatcher(one) for one in found]})


# the gateway itself


async def is_alive(call: Call) -> Response:
    """Says that the gateway answers."""
    return answer({"status": "alive", "version": __version__})


async def is_ready(call: Call) -> Response:
    """Says whether jobs can be claimed: a dispatcher answers, its store too, its lease holds."""
    with asked_by(None):
        hello = await call.connection.hello()
        found = await call.connection.dispatchers()
    if not any(one.alive and one.id == hello.dispatcher for one in found):
        raise Unavailable(
            f"dispatcher {hello.dispatcher} answers, but does not renew its lease in the store: it "
            "can claim no jobs; try again"
        )
    return answer({"status": "ready", "dispatcher": str(hello.dispatcher)})


async def show_metrics(call: Call) -> Response:
    """Shows the metrics of the gateway."""
    accept, now = call.request.headers.get("accept", ""), snapshot(_samples(call.gateway))
    text, kind = await asyncio.to_thread(exposition, now, accept)
    return Response(text, headers={"Content-Type": kind})


def _samples(gateway: Gateway) -> Iterator[Sample]:
    yield Sample(metering.INFO, (__version__, "gateway"), 1)
    yield Sample(metering.STREAMS, (), gateway.streams.open)
    yield Sample(metering.BODIES, (), gateway.bodies.held)
    yield from gateway.meter.samples()


async def explain_error(call: Call) -> Response:
    """Says what an error means, and what to do: where the `type` of a problem leads."""
    code = call.name("code")
    known = {error.code: error for error in all_errors()}
    if code not in known:
        raise NoRoute(f"there is no error {code!r}")
    means, advice = explained(known[code])
    return Response(f"{code}\n\n{means}\n\n{advice}\n", media_type="text/plain")
