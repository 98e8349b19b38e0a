"""A client's link over HTTP: what it makes of what answers."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.unit.gateway.test_certificates import make_certificate

from longshore.errors import ConfigError
from longshore.links.http import HttpLink
from longshore.wire import codec, messages
from longshore.wire.portions import MAX_MESSAGE_BYTES

REQUEST = codec.encode(messages.Hello(7))
OCTETS = "application/octet-stream"


class Server:
    """Something that answers HTTP, with the bytes that it is given."""

    def __init__(self, answer: bytes) -> None:
        self.answer = answer
        self.asked: list[bytes] = []
        self.url = ""

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        body = await reader.readexactly(len(REQUEST[2]))
        self.asked.append(head + body)
        writer.write(self.answer)
        writer.close()


@asynccontextmanager
async def serving(answer: bytes) -> AsyncIterator[Server]:
    """A server that gives every request this answer."""
    answering = Server(answer)
    server = await asyncio.start_server(answering, "127.0.0.1", 0)
    answering.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with server:
        yield answering


def response(status: str, kind: str, body: bytes) -> bytes:
    head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


async def answer_of(server: Server, token: str | None = None) -> messages.Answer:
    """The message that the link makes of the server's answer."""
    came: asyncio.Future[list[bytes]] = asyncio.get_running_loop().create_future()
    link = HttpLink(server.url, lambda arrived: came.set_result(arrived[0][1]), token)
    try:
        assert link.send(b"", REQUEST)
        return codec.to_client.decode(await asyncio.wait_for(came, 10))
    finally:
        link.close()


async def test_the_message_travels_as_it_is_and_so_does_the_answer() -> None:
    ok = codec.ok(7, None)[2]
    async with serving(response("200 OK", OCTETS, ok)) as server:
        answer = await answer_of(server, "ls_secret")
    assert isinstance(answer, messages.Ok)
    assert answer.rid == 7
    [asked] = server.asked
    assert asked.startswith(b"POST /dispatcher/requests/HELLO HTTP/1.1")
    assert b"Authorization: Bearer ls_secret" in asked
    assert asked.endswith(REQUEST[2])


async def test_a_problem_document_is_the_error_that_it_names() -> None:
    body = b'{"type": "/errors/not_found", "code": "not_found", "detail": "there is no job 9"}'
    async with serving(response("404 Not Found", "application/problem+json", body)) as server:
        assert await answer_of(server) == messages.Err(7, "not_found", "there is no job 9")


@pytest.mark.parametrize(
    ("status", "code"),
    [
        ("502 Bad Gateway", "unavailable"),
        ("404 Not Found", "protocol"),
        ("302 Found", "protocol"),
        ("200 OK", "protocol"),
    ],
)
async def test_what_is_no_gateway_is_named_with_its_status(status: str, code: str) -> None:
    """A proxy may answer in a gateway's place. No redirect is followed."""
    async with serving(response(status, "text/html", b"<html>")) as server:
        answer = await answer_of(server)
    assert isinstance(answer, messages.Err)
    assert answer.code == code
    assert status in answer.message
    assert server.url in answer.message
    assert len(server.asked) == 1


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"220 mail.example ESMTP\r\n",
        f"HTTP/1.1 200 OK\r\nContent-Type: {OCTETS}\r\nContent-Length: 100\r\n\r\nshort".encode(),
        f"HTTP/1.1 200 OK\r\nContent-Type: {OCTETS}\r\n\r\n".encode()
        + bytes(MAX_MESSAGE_BYTES + 1),
    ],
    ids=["nothing", "no HTTP", "cut off", "too large"],
)
async def test_no_answer_and_half_an_answer_are_silence(
    answer: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """The conversation asks again after silence, so nothing may be made of it."""
    caplog.set_level("DEBUG", "longshore.client")
    async with serving(answer) as server:
        link = HttpLink(server.url, unexpected)
        link.send(b"", REQUEST)
        await others_end()
        link.close()
    assert "no answer from" in caplog.text


async def test_a_missing_token_is_told_with_the_variable_that_takes_one() -> None:
    body = b'{"code": "not_authenticated", "detail": "this needs a token"}'
    async with serving(response("401 Unauthorized", "application/problem+json", body)) as server:
        missing, wrong = await answer_of(server), await answer_of(server, "ls_x")
    assert isinstance(missing, messages.Err)
    assert isinstance(wrong, messages.Err)
    assert (missing.code, wrong.message) == ("not_authenticated", "this needs a token")
    assert "LONGSHORE_TOKEN" in missing.message


async def test_a_certificate_that_is_not_trusted_is_told_as_such(tmp_path: Path) -> None:
    cert, key = make_certificate(tmp_path, "dock")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    answering = Server(b"")
    server = await asyncio.start_server(answering, "127.0.0.1", 0, ssl=context)
    answering.url = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with server:
        answer = await answer_of(answering)
    assert isinstance(answer, messages.Err)
    assert "SSL_CERT_FILE" in answer.message
    assert "self-signed" in answer.message
    assert answering.asked == []


async def test_a_closed_link_says_nothing_any_more() -> None:
    async with serving(response("200 OK", OCTETS, codec.ok(7, None)[2])) as server:
        link = HttpLink(server.url, unexpected)
        link.send(b"", REQUEST)
        link.close()
        await others_end()
    assert server.asked == []


async def test_a_password_in_the_address_is_refused_without_being_shown() -> None:
    with pytest.raises(ConfigError, match="LONGSHORE_TOKEN") as caught:
        HttpLink("http://ann:hunter2@127.0.0.1", unexpected)
    assert "hunter2" not in str(caught.value)


def unexpected(arrived: object) -> None:
    pytest.fail(f"{arrived} came")


async def others_end() -> None:
    """Waits until nothing else runs here."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    await asyncio.wait_for(asyncio.gather(*others, return_exceptions=True), 30)
