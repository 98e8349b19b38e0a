"""Queues, workers and dispatchers over HTTP."""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import UUID

import pytest

from longshore.model.worker import Capacity, DrainVerdict, WorkerInfo, WorkerView
from longshore.wire import messages

from .api import Api

NOW = datetime(2030, 1, 1, tzinfo=UTC)
WORKER = WorkerView(
    info=WorkerInfo(id=UUID(int=5), name="dock:1"),
    session=1,
    dispatcher=UUID(int=6),
    alive=True,
    draining=False,
    running={},
    started_at=NOW,
    attended_at=NOW,
)


async def test_a_queue_is_paused_and_goes_on(api: Api) -> None:
    await api.post("/dispatcher/jobs/", {"kind": "add", "args": {"a": 1, "b": 1}, "queue": "mail"})
    paused = await api.post("/dispatcher/queues/mail/pause")
    assert paused.json == {"name": "mail", "paused": True}
    assert await api.kit.drain_async() == 0
    [mail] = (await api.get("/dispatcher/queues/")).json["queues"]
    assert (mail["name"], mail["paused"], mail["counts"]["ready"]) == ("mail", True, 1)
    await api.post("/dispatcher/queues/mail/resume")
    assert await api.kit.drain_async() == 1
    assert (await api.post("/dispatcher/queues/no%20name/pause")).status == 400


@pytest.mark.parametrize("name", ["dock:1", str(UUID(int=5)), "00000000"])
async def test_a_worker_is_found_by_name_or_id(api: Api, name: str) -> None:
    api.replies[messages.ListWorkers] = (WORKER,)
    api.replies[messages.Drain] = lambda request: [
        messages.DrainAnswer(one, UUID(one), "dock:1", DrainVerdict.DRAINING)
        for one in request.workers
    ]
    assert (await api.get(f"/dispatcher/workers/{name}")).json["state"] == "alive"
    drained = await api.post(f"/dispatcher/workers/{name}/drain")
    assert (drained.status, drained.json["verdict"]) == (202, "draining")
    assert (await api.get("/dispatcher/workers/nobody")).status == 404
    assert len((await api.get("/dispatcher/workers/")).json["workers"]) == 1


async def test_a_worker_must_be_named_so_that_it_is_one(api: Api) -> None:
    api.replies[messages.ListWorkers] = (WORKER, WORKER)
    assert (await api.get("/dispatcher/workers/dock:1")).status == 400


async def test_dispatchers_capacity_and_readiness(api: Api) -> None:
    def dispatcher(alive: bool) -> messages.DispatcherAnswer:
        return messages.DispatcherAnswer(
            id=UUID(int=1),
            name="d",
            started_at=NOW,
            renewed_no=1,
            workers=0,
            alive=alive,
            silent_s=0.0,
        )

    api.replies[messages.Hello] = messages.HelloAnswer(2, "1", UUID(int=1), NOW)
    api.replies[messages.ShowCapacity] = Capacity(kinds=(), pools=())
    api.replies[messages.ListDispatchers] = (dispatcher(True),)
    assert (await api.get("/dispatcher/capacity")).json == {"kinds": [], "pools": []}
    [one] = (await api.get("/dispatcher/dispatchers")).json["dispatchers"]
    assert one["state"] == "alive"
    assert (await api.get("/readyz")).json["status"] == "ready"
    api.replies[messages.ListDispatchers] = (dispatcher(False),)
    assert (await api.get("/readyz")).status == 503
