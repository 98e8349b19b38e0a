"""Bodies that stop coming, and clients that go away in the middle of one."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest
from starlette.types import Message

from .api import Api, _scope

HALF = b'{"kind": "add", "args": {"a": 1, '


async def sent_in_half(api: Api, then: Callable[[], Any]) -> list[Message]:
    """What is answered to a client that sends half a body, and what `then` gives after that."""
    headers = {"content-type": "application/json", "content-length": "1000"}
    coming: list[Any] = [{"type": "http.request", "body": HALF, "more_body": True}]
    answered: list[Message] = []

    async def receive() -> Message:
        message: Message = coming.pop() if coming else await then()
        return message

    async def send(message: Message) -> None:
        answered.append(message)

    await api.app(_scope("POST", "/dispatcher/jobs/", headers), receive, send)
    return answered


async def test_a_body_that_stops_coming_is_given_up(make_api: Callable[..., Api]) -> None:
    api = make_api(body_s=0.01)
    head, body = await sent_in_half(api, asyncio.Event().wait)
    problem = json.loads(body["body"])
    assert (head["status"], "body_s" in problem["detail"]) == (408, True)
    assert (b"connection", b"close") in [(name.lower(), value) for name, value in head["headers"]]
    assert api.gateway.bodies.held == 0, "it costs no more memory"
    assert (await api.get("/healthz")).status == 200


async def test_a_client_that_goes_away_in_the_middle_leaves_nothing(api: Api) -> None:
    async def gone() -> Message:
        return {"type": "http.disconnect"}

    assert await sent_in_half(api, gone) == []
    assert api.gateway.bodies.held == 0
    assert (await api.get("/dispatcher/jobs/")).json["jobs"] == []


@pytest.mark.parametrize("length", ["-1", "x", "1e3", ""])
async def test_a_length_that_is_none_is_not_believed(api: Api, length: str) -> None:
    body = {"kind": "add", "args": {"a": 1, "b": 2}}
    assert (await api.post("/dispatcher/jobs/", body, content_length=length)).status == 201
