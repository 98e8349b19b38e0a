"""Actors over HTTP."""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import uuid4

import pytest

from longshore.model.worker import KindInfo, Parameter, WorkerInfo, WorkerView
from longshore.wire import messages

from .api import Api

ACTORS = "/dispatcher/actors/"
ANN = f"{ACTORS}Counter/ann%2Fb"
NOW = datetime(2030, 1, 1, tzinfo=UTC)


Takes = dict[str, tuple[Parameter, ...] | None]


def a_worker(takes: Takes | None = None, version: int = 1) -> WorkerView:
    """A live worker whose counters take these messages; any, if none are given."""
    fields = (Parameter("count", required=False, schema='{"type": "integer"}'),)
    kinds = {f"Counter@{version}": KindInfo(parameters=fields, messages=takes)}
    return WorkerView(
        info=WorkerInfo(id=uuid4(), kinds=kinds),
        session=1,
        dispatcher=uuid4(),
        alive=True,
        draining=False,
        running={},
        started_at=NOW,
        attended_at=NOW,
    )


@pytest.fixture
async def ann(api: Api) -> Api:
    """A gateway to a fleet with an actor."""
    api.replies[messages.ListWorkers] = (a_worker(),)
    reply = await api.post(ACTORS, {"type": "Counter", "key": "ann/b", "fields": {"count": 5}})
    assert (reply.status, reply.json["existing"]) == (201, False), reply.body
    return api


async def test_an_actor_is_started_once(ann: Api) -> None:
    again = {"type": "Counter", "key": "ann/b", "fields": {}}
    assert (await ann.post(ACTORS, again)).status == 409
    reuse = await ann.post(ACTORS, {**again, "reuse": True})
    assert (reuse.status, reuse.json["existing"]) == (200, True)
    assert (await ann.post(ACTORS, {"type": "Nobody", "key": "k"})).status == 400
    wrong = await ann.post(ACTORS, {"type": "Counter", "key": "k", "fields": {"cuont": 1}})
    assert (wrong.status, "'cuont'" in wrong.json["detail"]) == (400, True)


async def test_a_start_with_a_used_key_is_a_repeat_or_refused(ann: Api) -> None:
    """Whatever its actor has become meanwhile."""
    body = {"type": "Counter", "key": "bob", "fields": {"count": 1}}
    first = await ann.post(ACTORS, body, idempotency_key="k")
    await ann.post(f"{ACTORS}Counter/bob/messages", {"name": "bump"})
    await ann.kit.drain_async()
    again = await ann.post(ACTORS, body, idempotency_key="k")
    assert (first.status, again.status) == (201, 200)
    assert again.json == first.json
    for other in ({"fields": {"count": 2}}, {"key": "cy"}, {"reuse": True}):
        reused = await ann.post(ACTORS, {**body, **other}, idempotency_key="k")
        assert (reused.status, reused.json["code"]) == (422, "idempotency_key_reused")
    assert (await ann.get(f"{ACTORS}Counter/bob")).json["state"] == {"count": 2}
    assert (await ann.get(f"{ACTORS}Counter/cy")).status == 404
    assert (await ann.post(ACTORS, body, idempotency_key="new")).status == 409


async def test_an_actor_is_shown_and_listed(ann: Api) -> None:
    shown = (await ann.get(ANN)).json
    assert (shown["key"], shown["state"]) == ("ann/b", {"count": 5})
    page = await ann.get(f"{ACTORS}?type=Counter&limit=1")
    assert [one["key"] for one in page.json["actors"]] == ["ann/b"]
    rest = await ann.get(page.headers["link"].partition("<")[2].partition(">")[0])
    assert (rest.status, rest.json["actors"]) == (200, [])
    assert (await ann.get(f"{ACTORS}Counter/nobody")).status == 404
    assert (await ann.get(f"{ACTORS}?after=x")).status == 400


async def test_messages_are_handled_once_for_one_key(ann: Api) -> None:
    bump = {"name": "bump", "args": {"by": 2}}
    first = await ann.post(f"{ANN}/messages", bump, idempotency_key="k")
    again = await ann.post(f"{ANN}/messages", bump, idempotency_key="k")
    assert (first.status, first.json) == (202, again.json)
    await ann.kit.drain_async()
    assert (await ann.get(ANN)).json["state"] == {"count": 7}
    assert (await ann.post(f"{ACTORS}Counter/nobody/messages", bump)).status == 404


async def test_an_ask_is_answered(ann: Api) -> None:
    id = str(uuid4())
    bump = {"name": "bump", "id": id}
    late = await ann.post(f"{ANN}/ask?wait_s=0.01", bump)
    assert (late.status, late.json["code"]) == (504, "not_finished")
    await ann.kit.drain_async()
    reply = await ann.post(f"{ANN}/ask", bump)
    assert (reply.status, reply.json) == (200, {"id": id, "result": 6})


async def test_an_ask_that_cannot_be_handled_is_told_so(ann: Api) -> None:
    wrong = {"name": "nothing", "id": str(uuid4())}
    await ann.post(f"{ANN}/ask?wait_s=0.01", wrong)
    await ann.kit.drain_async()
    reply = await ann.post(f"{ANN}/ask", wrong)
    assert (reply.status, reply.json["code"]) == (422, "ask_failed")


async def test_a_message_that_no_worker_takes_is_refused_before_it_is_sent(ann: Api) -> None:
    """As the command line does; it would fail the actor."""
    takes: Takes = {"bump": (Parameter("by", required=False, type="int"),)}
    ann.replies[messages.ListWorkers] = (a_worker(takes),)
    assert (await ann.post(f"{ANN}/messages", {"name": "bump"})).status == 202
    for wrong in ({"name": "bmup"}, {"name": "bump", "args": {"bye": 1}}):
        for way in ("messages", "ask"):
            reply = await ann.post(f"{ANN}/{way}", wrong)
            assert (reply.status, reply.json["code"]) == (400, "invalid_arguments"), reply.body
    assert "'bump'" in (await ann.post(f"{ANN}/messages", {"name": "bmup"})).json["detail"]
    ann.replies[messages.ListWorkers] = (a_worker(takes), a_worker({**takes, "bmup": ()}, 2))
    assert (await ann.post(f"{ANN}/messages", {"name": "bmup"})).status == 202


async def test_an_actor_is_paused_and_stopped(ann: Api) -> None:
    assert (await ann.post(f"{ANN}/pause")).json["verdict"] == "done"
    assert (await ann.post(f"{ANN}/pause")).json["verdict"] == "already"
    assert (await ann.post(f"{ANN}/resume")).status == 200
    assert (await ann.call("DELETE", ANN)).status == 200
    assert (await ann.get(ANN)).status == 404


async def test_a_state_is_edited_only_by_who_has_seen_it(ann: Api) -> None:
    await ann.kit.drain_async()
    seen = await ann.get(ANN)
    new = {"state": {"count": 100}}
    assert (await ann.call("PUT", f"{ANN}/state", new)).status == 428
    tag = seen.headers["etag"]
    stale = await ann.call("PUT", f"{ANN}/state", new, if_match='"turn-99"')
    assert (stale.status, stale.headers["etag"]) == (412, tag)
    assert (await ann.call("PUT", f"{ANN}/state", new, if_match=tag)).status == 200
    assert (await ann.get(ANN)).json["state"] == {"count": 100}
    again = await ann.call("PUT", f"{ANN}/state", {"state": {"count": 1}}, if_match=tag)
    assert again.status == 412


@pytest.mark.parametrize("state", [{"count": "x"}, {"count": 1, "bogus": 1}])
async def test_a_state_that_would_fail_the_actor_is_refused(
    ann: Api, state: dict[str, object]
) -> None:
    await ann.kit.drain_async()
    ann.replies[messages.ListWorkers] = (a_worker(),)
    tag = (await ann.get(ANN)).headers["etag"]
    reply = await ann.call("PUT", f"{ANN}/state", {"state": state}, if_match=tag)
    assert (reply.status, reply.json["code"]) == (400, "invalid_arguments"), reply.body
    assert (await ann.get(ANN)).headers["etag"] == tag


async def test_an_actor_says_why_and_shows_its_turns_and_its_mail(ann: Api) -> None:
    assert "its turn is ready" in (await ann.get(f"{ANN}/why")).json["why"]
    await ann.post(f"{ANN}/messages", {"name": "add", "args": {"by": 2}})
    await ann.post(f"{ANN}/messages", {"name": "add", "args": {"by": 3}})
    mail = (await ann.get(f"{ANN}/mail")).json["mail"]
    assert [(one["name"], one["args"], one["parked"]) for one in mail] == [
        ("add", {"by": 2}, False),
        ("add", {"by": 3}, False),
    ]
    assert len((await ann.get(f"{ANN}/mail?limit=1")).json["mail"]) == 1
    first = f"{ANN}/mail/{mail[0]['number']}"
    parked = await ann.post(first, {"action": "park"})
    assert (parked.status, parked.json["verdict"]) == (200, "done")
    assert (await ann.get(f"{ANN}/mail")).json["mail"][0]["parked"]
    assert (await ann.post(first, {"action": "put_back"})).json["verdict"] == "done"
    assert (await ann.post(first, {"action": "drop"})).json["verdict"] == "done"
    assert (await ann.post(first, {"action": "drop"})).status == 404
    assert (await ann.post(first, {"action": "burn"})).status == 400
    assert (await ann.post(f"{ANN}/mail/one", {"action": "drop"})).status == 400
    turns = (await ann.get(f"{ANN}/turns")).json["turns"]
    assert [(one["turn"], one["state"]) for one in turns] == [(0, {"count": 5})]
    assert (await ann.get(f"{ACTORS}Counter/nobody/why")).status == 404


async def test_actors_are_listed_by_fields_of_a_type(ann: Api) -> None:
    assert (await ann.get(f"{ACTORS}?type=Counter&field=count=5")).json["actors"] == []
    refused = await ann.get(f"{ACTORS}?field=count=5")
    assert (refused.status, "name the type" in refused.json["detail"]) == (400, True)
