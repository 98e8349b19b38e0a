"""Groups over HTTP."""

from __future__ import annotations

import json
from typing import Any

import pytest

from longshore.gateway import operation
from longshore.wire import messages

from .api import Api

GROUPS = "/dispatcher/groups/"
FLOW: dict[str, Any] = {
    "name": "nightly",
    "jobs": [
        {"key": "one", "kind": "add", "args": {"a": 1, "b": 2}},
        {
            "key": "two",
            "kind": "add",
            "args": {"a": {"$result": {"job": "one"}}, "b": 4},
            "retries": 0,
        },
        {"key": "last", "kind": "add", "args": {"a": 0, "b": 0}, "after": ["two"]},
    ],
}


def in_lines(flow: dict[str, Any]) -> bytes:
    head = {name: value for name, value in flow.items() if name != "jobs"}
    return b"\n".join(json.dumps(one).encode() for one in (head, *flow["jobs"]))


async def created(api: Api, flow: dict[str, Any] = FLOW) -> str:
    reply = await api.post(GROUPS, flow)
    assert reply.status == 201, reply.body
    id: str = reply.json["id"]
    return id


async def test_a_group_runs_in_order_and_is_shown(api: Api) -> None:
    reply = await api.post(GROUPS, FLOW)
    assert (reply.status, reply.json["jobs"], reply.json["state"]) == (201, 3, "running")
    await api.kit.drain_async()
    group = (await api.get(reply.headers["location"])).json
    assert (group["state"], group["counts"]["succeeded"]) == ("succeeded", 3)
    listed = (await api.get(f"{GROUPS}?name=nightly&state=succeeded")).json["groups"]
    assert [one["id"] for one in listed] == [group["id"]]


async def test_a_group_has_a_limit(api: Api) -> None:
    reply = await api.post(GROUPS, {**FLOW, "limit": {"concurrency": 5}})
    group = (await api.get(reply.headers["location"])).json
    assert (group["limit"]["key"], group["limit"]["concurrency"]) == ("group=", 5)
    [job, *_] = (await api.get(f"/dispatcher/jobs/?group={group['id']}")).json["jobs"]
    assert [one["key"] for one in job["limits"]] == [f"group={group['id']}"]
    await api.kit.drain_async()
    assert (await api.get(reply.headers["location"])).json["state"] == "succeeded"
    refused = await api.post(GROUPS, {**FLOW, "limit": {"concurrency": 5, "key": "a"}})
    assert (refused.status, "counts the jobs of the group" in refused.json["detail"]) == (400, True)


async def test_a_group_may_come_line_by_line(api: Api) -> None:
    reply = await api.post(GROUPS, in_lines(FLOW), content_type="application/x-ndjson")
    assert (reply.status, reply.json["jobs"]) == (201, 3)
    await api.kit.drain_async()
    assert (await api.get(f"{GROUPS}{reply.json['id']}")).json["state"] == "succeeded"


async def test_a_large_group_is_read_beside_other_requests(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operation, "LARGE_BYTES", 1)
    assert (await api.post(GROUPS, FLOW, idempotency_key="large")).status == 201
    assert (await api.post(GROUPS, FLOW, idempotency_key="large")).status == 200


async def test_a_repeat_with_one_key_is_one_group(api: Api) -> None:
    first = await api.post(GROUPS, FLOW, idempotency_key="k")
    api.replies[messages.ShowKind] = None  # no worker tells of the kind any more
    api.gateway.kinds.forget()
    second = await api.post(GROUPS, FLOW, idempotency_key="k")
    assert (first.status, second.status) == (201, 200)
    assert first.json["id"] == second.json["id"]
    other = {**FLOW, "jobs": FLOW["jobs"][:1]}
    reused = await api.post(GROUPS, other, idempotency_key="k")
    assert (reused.status, reused.json["code"]) == (422, "idempotency_key_reused")


@pytest.mark.parametrize(
    ("flow", "words"),
    [
        ({"name": "x"}, "`jobs`"),
        ({"jobs": FLOW["jobs"]}, "`name` is missing"),
        ({"name": "x", "jobs": [{"kind": "add"}, {"knd": "add"}]}, "jobs[1]: a job has no 'knd'"),
        ({"name": "x", "jobs": [{"kind": "add", "after": ["nobody"]}]}, "nobody"),
        ({"name": "x", "jobs": [{"key": "a", "kind": "add", "after": ["a"]}]}, "'a'"),
    ],
)
async def test_what_is_wrong_in_a_group_is_named(api: Api, flow: object, words: str) -> None:
    reply = await api.post(GROUPS, flow)
    assert (reply.status, words in reply.json["detail"]) == (400, True), reply.json
    assert api.kit.submitted() == []


async def test_what_is_wrong_in_a_line_is_named_by_its_number(api: Api) -> None:
    lines = in_lines(FLOW) + b'\n\n{"knd": 1}\n'
    reply = await api.post(GROUPS, lines, content_type="application/x-ndjson")
    assert (reply.status, "the body, line 6" in reply.json["detail"]) == (400, True), reply.json
    broken = await api.post(GROUPS, b'{"name": "x"}\n{', content_type="application/x-ndjson")
    assert (broken.status, "line 2" in broken.json["detail"]) == (400, True)


async def test_a_graph_is_listed_page_by_page(api: Api) -> None:
    target: str = f"{GROUPS}{await created(api)}/graph?limit=2"
    nodes, edges = [], []
    while target:
        page = await api.get(target)
        nodes += [node["key"] for node in page.json["nodes"]]
        edges += [(edge["from"], edge["to"]) for edge in page.json["edges"]]
        target = page.headers.get("link", "").partition("<")[2].partition(">")[0]
    assert nodes == ["one", "two", "last"]
    assert edges == [("one", "two"), ("two", "last")]


async def test_a_group_is_held_and_goes_on(api: Api) -> None:
    group = f"{GROUPS}{await created(api)}"
    assert (await api.post(f"{group}/pause")).json["verdict"] == "paused"
    assert (await api.get(group)).json["state"] == "paused"
    assert (await api.post(f"{group}/resume")).json["verdict"] == "running"
    done = await api.call("DELETE", group)
    assert (done.status, done.json["verdict"]) == (202, "cancelling")
    again = await api.call("DELETE", group)
    assert (again.status, again.json["code"]) == (409, "wrong_state")
    assert (await api.post(f"{GROUPS}77/pause")).status == 404


async def test_a_failed_group_is_retried_and_run_anew(api: Api) -> None:
    flow = {"name": "bad", "jobs": [{"key": "f", "kind": "fail", "args": {"why": "x"}}]}
    group = f"{GROUPS}{await created(api, flow)}"
    early = await api.post(f"{group}/rerun")
    assert early.status == 409
    await api.kit.drain_async()
    plan = await api.post(f"{group}/retry", {"dry_run": True})
    assert (plan.status, plan.json["reopened"]) == (200, ["f"])
    assert (await api.get(group)).json["state"] == "failed"
    await api.post(f"{group}/retry", idempotency_key="once")
    assert (await api.get(group)).json["state"] == "running"
    await api.kit.drain_async()
    run = await api.post(f"{group}/rerun", idempotency_key="again")
    same = await api.post(f"{group}/rerun", idempotency_key="again")
    assert (run.status, run.json["run"]["id"]) == (201, same.json["run"]["id"])


async def test_a_gate_is_opened_with_a_value(api: Api) -> None:
    flow = {"name": "gated", "jobs": [{"key": "ok/go", "gate": True}]}
    group = f"{GROUPS}{await created(api, flow)}"
    opened = await api.post(f"{group}/gates/ok%2Fgo", {"value": 42})
    assert (opened.status, opened.json) == (200, {"key": "ok/go", "verdict": "opened"})
    assert (await api.post(f"{group}/gates/ok%2Fgo", {"value": 43})).status == 409
    assert (await api.post(f"{group}/gates/nothing")).status == 404
