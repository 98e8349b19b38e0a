"""Jobs over HTTP: what a client sends, and what it gets."""

from __future__ import annotations

import asyncio
import base64
import gzip
import json
from collections.abc import Callable
from typing import Any
from uuid import UUID, uuid4

import pytest

from longshore.errors import DispatcherUnavailable, StoreUnavailable, Unavailable
from longshore.wire import codec, messages

from .api import Api

JOBS = "/dispatcher/jobs/"
ADD = {"kind": "add", "args": {"a": 1, "b": 2}}


async def submitted(api: Api, body: object = ADD) -> str:
    reply = await api.post(JOBS, body)
    assert reply.status == 201, reply.body
    id: str = reply.json["id"]
    return id


async def test_a_job_is_submitted_run_and_shown(api: Api) -> None:
    reply = await api.post(JOBS, ADD)
    assert (reply.status, reply.json["existing"]) == (201, False)
    assert reply.headers["location"] == f"/dispatcher/jobs/{reply.json['id']}"
    await api.kit.drain_async()
    shown = (await api.get(reply.headers["location"])).json
    assert (shown["state"], shown["args"], shown["result"]) == ("succeeded", {"a": 1, "b": 2}, 3)
    assert [entry["state"] for entry in shown["history"]] == ["ready", "running", "succeeded"]
    assert shown["created_at"].endswith("Z")
    assert len(shown["created_at"]) == len("2026-01-31T12:00:00.000000Z")


async def test_what_the_request_leaves_out_is_as_the_app_declares_it(api: Api) -> None:
    job = (await api.get(f"{JOBS}{await submitted(api)}")).json
    assert job["retry"]["attempts"] == 3
    other = (await api.get(f"{JOBS}{await submitted(api, {**ADD, 'retries': 0})}")).json
    assert other["retry"]["attempts"] == 1


async def test_every_option_of_a_submit_arrives(api: Api) -> None:
    options = {
        "queue": "mail",
        "target": "linux",
        "priority": 7,
        "delay_s": 60,
        "timeout_s": 5,
        "expires_s": 9,
        "retries": 4,
        "backoff_s": 2,
        "backoff_factor": 3,
        "max_backoff_s": 99,
        "jitter": 0.5,
        "unique_key": "one",
        "labels": ["a", "b"],
    }
    job = (await api.get(f"{JOBS}{await submitted(api, {**ADD, **options})}")).json
    assert {name: job[name] for name in ("queue", "target", "priority", "unique_key")} == {
        "queue": "mail",
        "target": "linux",
        "priority": 7,
        "unique_key": "one",
    }
    assert (job["state"], job["labels"], job["timeout_s"]) == ("delayed", ["a", "b"], 5)
    assert job["retry"] == {
        "attempts": 5,
        "backoff_s": 2,
        "factor": 3,
        "max_backoff_s": 99,
        "jitter": 0.5,
    }


CLOSE = {"kind": "close_day", "args": {"date": "monday"}}


async def test_a_submit_gives_the_key_that_a_function_makes(api: Api) -> None:
    refused = await api.post(JOBS, CLOSE)
    assert (refused.status, refused.json["code"]) == (400, "invalid_input")
    assert "give the submit its own limit with a whole key" in refused.json["detail"]
    body = {**CLOSE, "limit": [{"key": "day=monday", "concurrency": 1}]}
    job = (await api.get(f"{JOBS}{await submitted(api, body)}")).json
    assert [(one["key"], one["concurrency"]) for one in job["limits"]] == [("day=monday", 1)]
    job = (await api.get(f"{JOBS}{await submitted(api, {**CLOSE, 'limit': None})}")).json
    assert job["limits"] == []


async def test_a_submit_gives_limits_a_fair_key_and_a_debounce(api: Api) -> None:
    rate = {"key": "api=maps", "rate": "9/min", "burst": 5, "units": 2}
    own = {"key": "a", "concurrency": 1, "full": "drop_newest"}
    body = {**ADD, "limit": [rate, own], "fair_by": "b", "id": str(uuid4())}
    job = (await api.get(f"{JOBS}{await submitted(api, body)}")).json
    assert [one["key"] for one in job["limits"]] == ["api=maps", "a=1"]
    assert job["limits"][0]["rate"] == {"units": 9, "per_s": 60.0, "burst": 5}
    assert (job["limits"][1]["full"], job["fair"]) == ("drop_newest", "b=2")
    assert (await api.post(JOBS, body)).status == 200, "a repeat"
    debounced = {**ADD, "debounce": {"wait_s": 5, "max_wait_s": 60, "key": "a"}}
    job = (await api.get(f"{JOBS}{await submitted(api, debounced)}")).json
    assert (job["debounce"]["key"], job["state"]) == ("a=1", "delayed")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"limit": [{"key": "c", "concurrency": 1}]}, "limited by its parameter 'c'"),
        ({"limit": [{"key": "a", "rate": "often"}]}, "is no rate"),
        ({"limit": [{"key": "a", "burst": 2}]}, "no rate"),
        ({"limit": [{"key": "a=1"}, {"key": "a"}]}, "given twice"),
        ({"limit": [{"key": "a", "most": 1}]}, "unknown field"),
        ({"fair_by": "c"}, "shares by its parameter 'c'"),
        ({"debounce": {"wait_s": 5}, "unique_key": "x"}, "unique_key the first"),
        ({"debounce": {"wait_s": 5}, "delay_s": 1}, "leave out delay_s"),
        ({"debounce": {"wait_s": 5, "max_wait_s": 1}}, "at least wait_s"),
    ],
)
async def test_what_cannot_limit_a_job_is_refused(
    api: Api, given: dict[str, Any], words: str
) -> None:
    reply = await api.post(JOBS, {**ADD, **given})
    assert reply.status == 400
    assert words in reply.json["detail"]


async def test_a_raw_job_has_bytes_in_base64(api: Api) -> None:
    data = base64.b64encode(b"\x00\xff").decode()
    job = (await api.get(f"{JOBS}{await submitted(api, {'kind': 'raw', 'data': data})}")).json
    assert (job["raw"], job["args"]) == (True, data)
    both = await api.post(JOBS, {"kind": "raw", "data": data, "args": {"a": 1}})
    assert both.status == 400


async def test_many_jobs_are_answered_in_order(api: Api) -> None:
    many = [{**ADD, "args": {"a": n, "b": 0}} for n in range(3)]
    reply = await api.post(JOBS, {"jobs": many})
    assert reply.status == 201
    assert [one["number"] for one in reply.json["jobs"]] == [1, 2, 3]
    lines = b"\n".join(json.dumps(one).encode() for one in many)
    more = await api.post(JOBS, lines, content_type="application/x-ndjson")
    assert [one["number"] for one in more.json["jobs"]] == [4, 5, 6]


async def test_of_many_jobs_those_that_are_refused_are_named(api: Api) -> None:
    reply = await api.post(JOBS, {"jobs": [ADD, {"kind": "add", "args": {"a": "x", "b": 1}}]})
    assert reply.status == 207
    good, bad = reply.json["jobs"]
    assert good["number"] == 1
    assert bad["code"] == "invalid_arguments"


async def test_a_repeat_with_the_same_id_is_the_same_job(api: Api) -> None:
    body = {**ADD, "id": str(uuid4())}
    first, second = await api.post(JOBS, body), await api.post(JOBS, body)
    assert (first.status, second.status) == (201, 200)
    assert first.json == second.json
    other = await api.post(JOBS, {**body, "args": {"a": 9, "b": 9}})
    assert (other.status, other.json["code"]) == (409, "conflict")


async def test_a_repeat_with_the_same_key_is_the_same_request(api: Api) -> None:
    for body in (ADD, {"jobs": [ADD, ADD]}):
        key = f"{len(body)} fields"
        first = await api.post(JOBS, body, idempotency_key=key)
        second = await api.post(JOBS, body, idempotency_key=f'"{key}"')
        assert (first.status, second.status) == (201, 200)
        assert first.json == second.json
    assert len(api.kit.submitted()) == 3
    reused = await api.post(JOBS, {"kind": "other"}, idempotency_key="2 fields")
    assert (reused.status, reused.json["code"]) == (422, "idempotency_key_reused")


@pytest.mark.parametrize(
    "other",
    [
        {"jobs": [ADD, {**ADD, "args": {"a": 9, "b": 9}}]},
        {"jobs": [{**ADD, "args": {"a": 9, "b": 9}}, ADD]},
        {"jobs": [ADD, ADD, ADD]},
        {"jobs": [ADD]},
        {"jobs": [{**ADD, "id": str(uuid4())}, ADD, ADD]},
        ADD,
    ],
)
async def test_no_job_of_another_batch_under_a_used_key_runs(
    api: Api, other: dict[str, Any]
) -> None:
    first = await api.post(JOBS, {"jobs": [ADD, ADD]}, idempotency_key="k")
    reused = await api.post(JOBS, other, idempotency_key="k")
    assert (reused.status, reused.json["code"]) == (422, "idempotency_key_reused")
    assert len(api.kit.submitted()) == 2
    again = await api.post(JOBS, {"jobs": [ADD, ADD]}, idempotency_key="k")
    assert (again.status, again.json) == (200, first.json)


async def test_a_batch_is_repeated_although_its_first_answer_was_lost_halfway(api: Api) -> None:
    """The gateway died when it had submitted the job that stands for the batch."""
    with_key = {**ADD, "unique_key": "u"}
    body = {"jobs": [with_key, {**ADD, "id": str(uuid4())}, ADD, {**ADD, "args": {"x": 1}}]}
    whole = api.gateway.submits.submit
    sent: list[int] = []

    async def once(jobs: Any, strict: bool) -> Any:
        sent.append(len(jobs))
        if len(sent) > 1:
            raise Unavailable("it died")
        return await whole(jobs, strict)

    api.gateway.submits.submit = once  # type: ignore[method-assign]
    assert (await api.post(JOBS, body, idempotency_key="k")).status == 503
    assert sent == [1, 3]
    assert [job.kind for job in api.kit.submitted()] == ["add"]
    api.gateway.submits.submit = whole  # type: ignore[method-assign]
    first = await api.post(JOBS, body, idempotency_key="k")
    second = await api.post(JOBS, body, idempotency_key="k")
    assert (first.status, second.status) == (207, 207)
    assert [one.get("number") for one in first.json["jobs"]] == [2, 3, 1, None]
    assert first.json == second.json
    assert len(api.kit.submitted()) == 3


async def test_a_repeat_is_one_although_the_app_declares_something_else_by_now(api: Api) -> None:
    first = await api.post(JOBS, ADD, idempotency_key="k")
    api.replies[messages.ShowKind] = None  # no worker tells of the kind any more
    api.gateway.kinds.forget()
    second = await api.post(JOBS, ADD, idempotency_key="k")
    assert (second.status, second.json) == (200, first.json)
    job = (await api.get(f"{JOBS}{first.json['id']}")).json
    assert job["retry"]["attempts"] == 3


async def test_a_retry_with_one_key_opens_one_round(api: Api) -> None:
    id = await submitted(api, {"kind": "fail", "args": {"why": "x"}})
    await api.kit.drain_async()
    await api.post(f"{JOBS}{id}/retry", idempotency_key="once")
    await api.kit.drain_async()
    again = await api.post(f"{JOBS}{id}/retry", idempotency_key="once")
    assert again.status == 200
    assert (await api.get(f"{JOBS}{id}")).json["round"] == 2


@pytest.mark.parametrize("key", ["", " ", "x" * 256, "tä"])
async def test_a_key_that_is_none_is_refused(api: Api, key: str) -> None:
    assert (await api.post(JOBS, ADD, idempotency_key=key)).status == 400


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({}, "kind"),
        ({"kind": ""}, "$.kind"),
        ({"kind": "longshore.map"}, "$.kind"),
        ({"kind": "add", "knd": 1}, "knd"),
        ({"kind": "add", "priority": 40_000}, "$.priority"),
        ({"kind": "add", "args": [1]}, "$.args"),
        ({"kind": "add", "args": {"a": 2**70, "b": 1}}, "64 bits"),
        ({"kind": "add", "run_at": "2026-01-01T00:00:00"}, "$.run_at"),
        ({"kind": "add", "run_at": "2030-01-01T00:00:00Z", "delay_s": 1}, "run_at"),
        ({"jobs": []}, "$.jobs"),
        ({"jobs": [ADD, {**ADD, "labels": ["longshore.x"]}]}, "$.jobs[1].labels"),
        (b"{", "JSON"),
        (b'{"kind": "add", "args": ' + b'{"a":' * 5_000, "deep"),
        (b'{"kind": "\xff"}', "JSON"),
    ],
)
async def test_a_body_that_cannot_be_accepted_is_named(api: Api, body: object, words: str) -> None:
    reply = await api.post(JOBS, body)
    assert (reply.status, reply.headers["content-type"]) == (400, "application/problem+json")
    assert words in reply.json["detail"]
    assert api.kit.submitted() == []


async def test_a_strict_submit_refuses_unknown_kinds(api: Api) -> None:
    reply = await api.post(f"{JOBS}?strict=true", {"kind": "nobody"})
    assert (reply.status, reply.json["code"]) == (400, "unknown_kind")


async def test_lists_go_on_where_the_last_page_ended(api: Api) -> None:
    for _ in range(5):
        await submitted(api)
    numbers, target = [], f"{JOBS}?limit=2&kind=add&state=ready&state=delayed"
    while target:
        page = await api.get(target)
        assert page.status == 200
        numbers += [job["number"] for job in page.json["jobs"]]
        link = page.headers.get("link", "")
        assert bool(link) == (page.json["next"] is not None)
        target = link.partition("<")[2].partition(">")[0]
        assert not target or link.endswith('>; rel="next"')
    assert numbers == [5, 4, 3, 2, 1]


async def test_jobs_are_listed_by_when_they_came(api: Api) -> None:
    await submitted(api)
    assert len((await api.get(f"{JOBS}?since=2000-01-01T00:00:00Z")).json["jobs"]) == 1
    assert (await api.get(f"{JOBS}?since=2200-01-01T00:00:00%2B01:00")).json["jobs"] == []


async def test_a_page_has_at_most_max_page_items(make_api: Callable[..., Api]) -> None:
    api = make_api(max_page=2)
    for _ in range(3):
        await submitted(api)
    assert len((await api.get(f"{JOBS}?limit=1000")).json["jobs"]) == 2


@pytest.mark.parametrize(
    "query",
    [
        "limit=0",
        "limit=x",
        "state=bad",
        "stat=ready",
        "limit=1&limit=2",
        "group=abc",
        "before=null",
    ],
)
async def test_parameters_that_cannot_be_are_refused(api: Api, query: str) -> None:
    assert (await api.get(f"{JOBS}?{query}")).status == 400


async def test_a_result_is_waited_for(api: Api) -> None:
    id = await submitted(api)
    none = await api.get(f"{JOBS}{id}/result")
    assert (none.status, none.json["state"]) == (202, "ready")
    waiting = asyncio.create_task(api.get(f"{JOBS}{id}/result", prefer="respond-async, wait=30"))
    await api.waited_for()
    await api.kit.drain_async()
    reply = await waiting
    assert (reply.status, reply.json["result"], reply.json["error"]) == (200, 3, None)
    assert reply.headers["preference-applied"] == "wait=30"


async def test_a_wait_ends_without_a_result_when_its_time_is_over(
    make_api: Callable[..., Api],
) -> None:
    api = make_api(max_long_poll_s=0.01)
    reply = await api.get(f"{JOBS}{await submitted(api)}/result?wait_s=3600")
    assert reply.status == 202


async def test_a_wait_ends_when_the_gateway_stops(api: Api) -> None:
    id = await submitted(api)
    waiting = asyncio.create_task(api.get(f"{JOBS}{id}/result?wait_s=60"))
    await api.waited_for()
    api.gateway.closing.set()
    assert (await waiting).status == 202


async def test_a_failure_is_a_result_too(api: Api) -> None:
    id = await submitted(api, {"kind": "fail", "args": {"why": "no luck"}})
    await api.kit.drain_async()
    reply = (await api.get(f"{JOBS}{id}/result")).json
    assert (reply["state"], reply["error"]["message"]) == ("failed", "no luck")


async def test_why_and_history_and_logs(api: Api) -> None:
    id = await submitted(api)
    assert "why" in (await api.get(f"{JOBS}{id}/why")).json
    await api.kit.drain_async()
    history = (await api.get(f"{JOBS}{id}/history")).json
    assert [one["state"] for one in history["history"]] == ["ready", "running", "succeeded"]
    assert history["is_cut"] is False
    page = (await api.get(f"{JOBS}{id}/logs")).json
    assert [line["text"] for line in page["lines"]] == ["adding 1 2"]
    rest = (await api.get(f"{JOBS}{id}/logs?after={page['next']}")).json
    assert rest["lines"] == []
    assert (await api.get(f"{JOBS}{id}/logs?after=x")).status == 400


async def test_a_cancel_cancels_once(api: Api) -> None:
    id = await submitted(api)
    done = await api.call("DELETE", f"{JOBS}{id}")
    assert (done.status, done.json["verdict"]) == (200, "cancelled")
    again = await api.call("DELETE", f"{JOBS}{id}")
    assert (again.status, again.json["verdict"]) == (200, "already_ended")


async def test_a_retry_says_why_it_cannot_be(api: Api) -> None:
    id = await submitted(api)
    reply = await api.post(f"{JOBS}{id}/retry")
    assert (reply.status, reply.json["code"]) == (409, "wrong_state")


@pytest.mark.parametrize("method", ["GET", "DELETE"])
async def test_a_job_that_is_not_there_is_not_found(api: Api, method: str) -> None:
    for name in ("77", str(UUID(int=7))):
        reply = await api.call(method, f"{JOBS}{name}")
        assert (reply.status, reply.json["code"]) == (404, "not_found")
    assert (await api.call(method, f"{JOBS}nonsense")).status == 400


async def test_when_no_dispatcher_answers_the_client_is_told_to_try_again(api: Api) -> None:
    api.replies[messages.Show] = StoreUnavailable("the database does not answer")
    reply = await api.get(f"{JOBS}1")
    assert (reply.status, reply.json["code"]) == (503, "store_unavailable")
    assert reply.headers["retry-after"] == "1"
    api.replies[messages.Hello] = DispatcherUnavailable("gone")
    assert (await api.get("/readyz")).status == 503
    assert (await api.get("/healthz")).status == 200


async def test_a_body_may_be_packed(api: Api) -> None:
    packed = gzip.compress(json.dumps(ADD).encode())
    assert (await api.post(JOBS, packed, content_encoding="gzip")).status == 201
    assert (await api.post(JOBS, b"no gzip", content_encoding="gzip")).status == 400
    assert (await api.post(JOBS, packed[:-9], content_encoding="gzip")).status == 400
    assert (await api.post(JOBS, packed, content_encoding="br")).status == 415


def bodies_past(limit: int) -> list[tuple[str, dict[str, Any]]]:
    large = json.dumps({**ADD, "labels": ["x" * limit]}).encode()
    return [
        ("as its header says", {"body": large}),
        (
            "while it comes",
            {"chunks": [large[:10], large[10:]], "content_type": "application/json"},
        ),
        ("unpacked", {"body": gzip.compress(large), "content_encoding": "gzip"}),
    ]


@pytest.mark.parametrize(("how", "sent"), bodies_past(5_000))
async def test_a_body_past_its_limit_is_refused(
    make_api: Callable[..., Api], how: str, sent: dict[str, Any]
) -> None:
    reply = await make_api(max_body_bytes=5_000).call("POST", JOBS, **sent)
    assert (reply.status, reply.json["code"]) == (413, "too_large")
    assert reply.headers["connection"] == "close", "the rest of the body is not read"
    assert "max_body_bytes" in reply.json["detail"]


async def test_bodies_take_no_more_memory_than_is_allowed(make_api: Callable[..., Api]) -> None:
    api = make_api(max_bodies_bytes=10)
    assert (await api.post(JOBS, ADD)).status == 503
    assert (await api.post(JOBS, b"{}")).status == 400  # what was held is free again


async def test_large_answers_are_packed_for_those_who_take_it(api: Api) -> None:
    for _ in range(5):
        await submitted(api)
    reply = await api.get(JOBS, accept_encoding="gzip")
    assert reply.headers["content-encoding"] == "gzip"
    assert len(json.loads(gzip.decompress(reply.body))["jobs"]) == 5


async def test_jobs_are_found_by_a_search(api: Api) -> None:
    await submitted(api)
    await submitted(api, {"kind": "add", "args": {"a": 7, "b": 2}})
    found = (await api.get(f"{JOBS}?q=arg.a:7+kind:add")).json["jobs"]
    assert [job["kind"] for job in found] == ["add"]
    assert (await api.get(f"{JOBS}?q=arg.a:8")).json["jobs"] == []
    assert (await api.get(f"{JOBS}?q=kind:add&kind=other")).json["jobs"] == []
    reply = await api.get(f"{JOBS}?q=slover:3s")
    assert (reply.status, "did you mean slower:?" in reply.json["detail"]) == (400, True)


async def test_jobs_are_listed_by_one_label_or_several(api: Api) -> None:
    await api.post(JOBS, {**ADD, "labels": ["red", "round"]})
    await api.post(JOBS, {**ADD, "labels": ["red"]})
    for query, expected in (("label=red", [2, 1]), ("label=red&label=round", [1])):
        reply = await api.get(f"{JOBS}?{query}")
        assert [job["number"] for job in reply.json["jobs"]] == expected, query


async def test_lines_without_a_job_are_refused(api: Api) -> None:
    reply = await api.call("POST", JOBS, b"\n\n", content_type="application/x-ndjson")
    assert (reply.status, reply.json["code"]) == (400, "invalid_input")


@pytest.mark.parametrize("moment", ["0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59"])
async def test_a_time_that_utc_cannot_tell_is_refused(api: Api, moment: str) -> None:
    reply = await api.post(JOBS, {**ADD, "run_at": moment})
    assert (reply.status, reply.json["code"]) == (400, "invalid_input")
    assert "run_at" in reply.json["detail"]


async def test_a_wait_that_is_no_number_is_refused(api: Api) -> None:
    body = codec.encode(messages.Wait(1, (uuid4(),), float("nan")))[-1]
    target, octets = "/dispatcher/requests/wait", "application/octet-stream"
    async with asyncio.timeout(5):
        reply = await api.call("POST", target, body, content_type=octets)
    assert reply.status == 400
    assert b"wait_s is not a number" in reply.body
