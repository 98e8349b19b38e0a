"""What web workers answer, and what shows itself as a token or a signature: never more than no."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.unit.hostile.inputs import (
    as_json,
    broken_bytes,
    deep_json,
    deep_msgpack,
    refusal,
    spoilt,
    texts,
)

from longshore.core import callbacks, tickets
from longshore.core.access import hash_of, is_token
from longshore.core.addresses import Allowed
from longshore.core.signatures import FROM_SERVICE, is_signed, signature
from longshore.core.webhooks import SECRET_PREFIX, key_of_text, secret_text
from longshore.errors import ConfigError, InvalidInput, LongshoreError
from longshore.gateway.bodies import decoded
from longshore.gateway.service_client import Failing, Health, ServiceClient, Signing
from longshore.gateway.service_client import refusal as words_of
from longshore.gateway.web_models import NewWebWorker, WebResult
from longshore.gateway.web_routes import _report
from longshore.links.outbound import Answer, Request
from longshore.model.fileset import Ticket
from longshore.model.web_worker import WebRegistration

JOB = UUID(int=7)
HEALTH = {"jobs": [{"id": str(JOB), "token": 3}]}
RESULT: dict[str, Any] = {
    "token": 3,
    "status": "failed",
    "result": {"a": [1, 2]},
    "error": {"reason": "raised", "message": "no", "type": "E", "traceback": "", "final": True},
    "after_s": 1.5,
    "note": "later",
    "raw": False,
}
KEY = tickets.ticket_key(b"s")
TICKET = Ticket(JOB, 3, 1, 10, 9)
SERVICE = WebRegistration(host="127.0.0.1", port=1, kinds=("fetch",))
SIGNED = ("secret", FROM_SERVICE, "GET", "/health_check/", 1000)

bodies = (
    st.binary(max_size=100)
    | spoilt([HEALTH, HEALTH["jobs"][0], {"detail": "no"}]).map(as_json)
    | broken_bytes([as_json(HEALTH)])
)


@dataclass
class Service:
    """A service at the other end of a connection, which answers all alike."""

    status: int
    body: bytes
    headers: dict[str, str]

    allowed = Allowed(())

    async def send(self, request: Request, *, within_s: float, most: int = 0) -> Answer:
        return Answer(self.status, self.headers, self.body)

    def client(self, *, signs: bool = False) -> ServiceClient:
        signing = Signing("secret", signs, lambda: 1000.0)
        return ServiceClient(SERVICE, self, signing, 1, within_s=1.0, most=10_000)


@given(bodies, st.sampled_from([200, 200, 404, 500, 302]))
@example(deep_json(), 200)
@example(deep_json(b'{"jobs": %s}'), 200)
@example(deep_json(b'{"id": "x", "more": %s}'), 200)
@example(deep_json(b'{"more": %s}'), 200)
async def test_what_a_web_worker_answers(body: bytes, status: int) -> None:
    client = Service(status, body, {}).client()
    assert isinstance(await client.health(1, 0, 5.0), Health | Failing)
    assert isinstance(await client.has(JOB, 3), bool | Failing)
    assert isinstance(await client.stop(JOB, 3), Answer | Failing)
    assert len(words_of(Answer(status, {}, body))) < 10_000


@given(st.dictionaries(st.sampled_from(["longshore-signature", "longshore-time"]), texts))
async def test_an_answer_with_a_signature_that_is_none(headers: dict[str, str]) -> None:
    client = Service(200, b"{}", headers).client(signs=True)
    assert isinstance(await client.health(1, 0, 5.0), Failing)


@given(spoilt([RESULT]).map(as_json) | broken_bytes([as_json(RESULT)]))
@example(deep_json())
@example(deep_json(b'{"token": 3, "result": %s}'))
def test_the_result_that_a_web_worker_tells(data: bytes) -> None:
    assert refusal(lambda: _report(JOB, decoded(data, WebResult)), InvalidInput) != ""


@given(spoilt([{"host": "h", "port": 80, "kinds": ["a"], "max_jobs": 2}]).map(as_json))
def test_the_registration_of_a_web_worker(data: bytes) -> None:
    assert refusal(lambda: decoded(data, NewWebWorker), InvalidInput) != ""


@given(texts, st.binary(max_size=20))
def test_a_signature_is_right_or_it_is_not(given_text: str, body: bytes) -> None:
    secret, speaker, method, path, time = SIGNED
    assert not is_signed(secret, given_text, speaker, method, path, time, body, 1000.0)
    made = signature(secret, speaker, method, path, time, body)
    assert is_signed(secret, made, speaker, method, path, time, body, 1000.0)
    assert not is_signed(secret, made, speaker, method, path, time, body + b"x", 1000.0)


@given(texts | st.binary(max_size=60).map(lambda data: data.decode("latin-1")))
@example("é" * 40)
@example("\ud800")
@example("")
@example("A" * 501)
@example(urlsafe_b64encode(deep_msgpack() + bytes(16)).decode())
def test_a_text_that_stands_where_a_ticket_or_a_token_should(text: str) -> None:
    for check in (
        lambda: tickets.verified(KEY, text, 0.0),
        lambda: callbacks.verified(b"s", text),
    ):
        with pytest.raises(LongshoreError):
            check()
    if is_token(text):
        assert len(hash_of(text)) == 32


@given(broken_bytes([tickets.sign(KEY, TICKET).encode()]))
def test_a_ticket_with_other_bytes_in_it(data: bytes) -> None:
    """It is refused, unless what was added means nothing."""
    text = data.decode("latin-1")
    if refusal(lambda: tickets.verified(KEY, text, 0.0), LongshoreError) is None:
        assert tickets.verified(KEY, text, 0.0) == TICKET


@given(texts)
@example("é")
@example("=")
@example("A")
def test_a_secret_for_webhooks_is_taken_or_refused(text: str) -> None:
    said = refusal(lambda: key_of_text(SECRET_PREFIX + text), ConfigError)
    if said is None:
        key = key_of_text(SECRET_PREFIX + text)
        assert key_of_text(secret_text(key)) == key
    else:
        assert "is not base64" in said
