"""Who may call at all, and what every answer carries."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from longshore.gateway.problems import all_errors, problem, status_of
from longshore.wire import messages

from .api import Api

HEALTH = "/healthz"
TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


@pytest.mark.parametrize("host", ["127.0.0.1:7700", "localhost:7700", "[::1]:7700", "LOCALHOST"])
async def test_the_names_of_this_machine_are_taken(api: Api, host: str) -> None:
    assert (await api.get(HEALTH, host=host)).status == 200


@pytest.mark.parametrize(
    "host", ["", "evil.example", "127.0.0.1.evil.example:7700", "localhost.", "127.0.0.1@evil"]
)
async def test_a_foreign_host_is_misdirected(api: Api, host: str) -> None:
    reply = await api.get(HEALTH, host=host)
    assert (reply.status, reply.json["code"]) == (421, "misdirected")


async def test_other_names_can_be_allowed(make_api: Callable[..., Api]) -> None:
    api = make_api(http_hosts=("jobs.internal",))
    assert (await api.get(HEALTH, host="jobs.internal")).status == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": "http://localhost:3000"},
        {"origin": "http://127.0.0.1:7700.evil.example"},
        {"sec_fetch_site": "cross-site"},
        {"sec_fetch_site": "same-site"},
    ],
)
@pytest.mark.parametrize("method", ["GET", "POST", "DELETE", "OPTIONS"])
async def test_a_page_of_another_site_may_do_nothing(
    api: Api, method: str, headers: dict[str, str]
) -> None:
    reply = await api.call(method, "/dispatcher/jobs/", {"kind": "add"}, chunks=None, **headers)
    assert (reply.status, reply.json["code"]) == (403, "forbidden")
    assert "access-control-allow-origin" not in reply.headers
    assert api.kit.submitted() == []


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://127.0.0.1:7700", "sec_fetch_site": "same-origin"},
        {"sec_fetch_site": "none"},
    ],
)
async def test_a_page_of_its_own_may_call(api: Api, headers: dict[str, str]) -> None:
    assert (await api.get(HEALTH, **headers)).status == 200


@pytest.mark.parametrize(
    "kind",
    [
        "text/plain",
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=x",
        "text/plain; application/json",
        "application/xml",
    ],
)
async def test_what_a_form_can_send_is_refused(api: Api, kind: str) -> None:
    for target in ("/dispatcher/jobs/", "/dispatcher/queues/default/pause"):
        reply = await api.post(target, b'{"kind": "add"}', content_type=kind)
        assert (reply.status, reply.json["code"]) == (415, "unsupported_media_type")


async def test_lines_are_taken_only_where_many_are_sent(api: Api) -> None:
    reply = await api.post("/dispatcher/actors/", b"{}", content_type="application/x-ndjson")
    assert reply.status == 415


async def test_an_unknown_address_and_an_unknown_method_are_problems(api: Api) -> None:
    nowhere = await api.get("/dispatcher/nothing")
    assert (nowhere.status, nowhere.json["code"]) == (404, "no_route")
    reply = await api.call("PATCH", "/dispatcher/jobs/1")
    assert (reply.status, reply.json["code"]) == (405, "method_not_allowed")
    assert reply.headers["allow"] == "DELETE, GET, HEAD"


async def test_the_type_of_every_problem_leads_to_its_page(api: Api) -> None:
    for kind in all_errors():
        reply = await api.get(f"/errors/{kind.code}")
        assert reply.status == 200
        assert kind.code in reply.body.decode()
        error = kind("what happened")
        assert problem(error).error_type == f"/errors/{error.code}"
        assert 400 <= status_of(error) < 600
    assert (await api.get("/errors/nonsense")).status == 404


async def test_a_request_keeps_its_id(api: Api) -> None:
    assert (await api.get(HEALTH, x_request_id="req-1")).headers["x-request-id"] == "req-1"
    forged = await api.get(HEALTH, x_request_id="a b\tc")
    assert forged.headers["x-request-id"] not in ("", "a b\tc")


async def test_a_trace_is_echoed_if_it_is_one(api: Api) -> None:
    reply = await api.get(HEALTH, traceparent=TRACE, tracestate="a=1,b=2")
    assert (reply.headers["traceparent"], reply.headers["tracestate"]) == (TRACE, "a=1,b=2")
    for bad in ("", "00-0-0-0", TRACE.upper(), f"ff{TRACE[2:]}", TRACE.replace("00f0", "0" * 16)):
        assert "traceparent" not in (await api.get(HEALTH, traceparent=bad)).headers


async def test_an_unexpected_error_tells_nothing_of_itself(api: Api) -> None:
    def breaks(request: messages.Show) -> object:
        raise RuntimeError("secret")

    api.replies[messages.Show] = breaks
    reply = await api.get("/dispatcher/jobs/1", x_request_id="r1")
    assert (reply.status, reply.headers["content-type"]) == (500, "application/problem+json")
    assert "secret" not in reply.body.decode()
    assert "r1" in reply.json["detail"]


async def test_too_many_requests_are_told_to_try_again(make_api: Callable[..., Api]) -> None:
    api = make_api(max_http_requests=1)
    assert (await api.get(HEALTH)).status == 200
    async with api.stream("/events") as events:
        await events.next()
        reply = await api.get(HEALTH)
        assert (reply.status, reply.headers["retry-after"]) == (503, "1")
    assert (await api.get(HEALTH)).status == 200


async def test_answers_are_for_nobody_else_to_keep_or_to_guess(api: Api) -> None:
    headers = (await api.get(HEALTH)).headers
    assert headers["cache-control"] == "no-store"
    assert headers["x-content-type-options"] == "nosniff"


async def test_a_callback_may_not_call_the_api(api: Api) -> None:
    """A gateway sends it from this machine, with words that somebody else chose."""
    reply = await api.call("POST", "/dispatcher/queues/mail/pause", webhook_id="msg_1")
    assert (reply.status, reply.json["code"]) == (403, "forbidden")
