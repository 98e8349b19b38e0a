"""Requests to addresses that users name: each is checked where it connects, on real sockets."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp.abc import AbstractResolver, ResolveResult

from longshore.core.addresses import Allowed, allowed
from longshore.links.outbound import Answer, NotAllowed, Outbound, Request, Unanswered

OK = b"HTTP/1.1 204 No Content\r\n\r\n"
WITHIN_S = 5.0


class Receiver:
    """A server on all loopback addresses that answers with these bytes, and keeps what it got."""

    def __init__(self, answer: bytes = OK) -> None:
        self.answer = answer
        self.got: list[bytes] = []
        self.port = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            self.got.append(await reader.readuntil(b"\r\n\r\n"))
            writer.write(self.answer)
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()


@asynccontextmanager
async def receiving(answer: bytes = OK) -> AsyncIterator[Receiver]:
    receiver = Receiver(answer)
    async with await asyncio.start_server(receiver.serve, "0.0.0.0") as server:
        receiver.port = server.sockets[0].getsockname()[1]
        yield receiver


class Names(AbstractResolver):
    """A name server that gives each of these answers once, in their order."""

    def __init__(self, *answers: list[str]) -> None:
        self.answers = list(answers)

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        return [
            ResolveResult(
                hostname=host, host=one, port=port, family=socket.AF_INET, proto=0, flags=0
            )
            for one in self.answers.pop(0)
        ]

    async def close(self) -> None:
        pass


async def ask(rules: Allowed, url: str, names: Names | None = None, **more: Any) -> Answer:
    async with Outbound(rules, resolver=names) as outbound:
        return await outbound.send(Request(url=url, **more), within_s=WITHIN_S)


def play(story: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(story())  # type: ignore[arg-type]


LOCAL = allowed([], loopback=True)


def test_an_allowed_address_is_called_with_what_was_given() -> None:
    async def story() -> None:
        async with receiving() as receiver:
            url = f"http://127.0.0.1:{receiver.port}/hook%2Fa?b=c"
            answer = await ask(LOCAL, url, method="PUT", headers={"x-own": "1"}, body=b"{}")
            assert answer.status == 204
            [got] = receiver.got
            assert got.startswith(b"PUT /hook%2Fa?b=c HTTP/1.1\r\n")
            assert b"x-own: 1\r\n" in got
            assert b"Content-Length: 2\r\n" in got

    play(story)


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "localhost", "127.1", "0x7f.1", "2130706433", "017700000001", "0.0.0.0"]
)
def test_an_address_that_is_not_allowed_is_not_even_connected_to(host: str) -> None:
    async def story() -> None:
        async with receiving() as receiver:
            with pytest.raises((NotAllowed, Unanswered), match=r"only public|not a canonical"):
                await ask(Allowed(), f"http://{host}:{receiver.port}/")
            assert not receiver.got

    play(story)


def test_a_name_that_leads_elsewhere_the_second_time_is_caught_the_second_time() -> None:
    """DNS rebinding: the address that is checked is the one that is connected to."""

    async def story() -> None:
        rules, names = allowed(["127.0.0.2"], loopback=False), Names(["127.0.0.2"], ["127.0.0.1"])
        async with receiving() as receiver, Outbound(rules, resolver=names) as outbound:
            request = Request(url=f"http://rebinding.example:{receiver.port}/")
            assert (await outbound.send(request, within_s=WITHIN_S)).status == 204
            with pytest.raises(NotAllowed) as refused:
                await outbound.send(request, within_s=WITHIN_S)
            assert refused.value.of_name
            assert len(receiver.got) == 1

    play(story)


def test_of_several_addresses_of_a_name_only_an_allowed_one_is_called() -> None:
    async def story() -> None:
        rules, names = allowed(["127.0.0.2"], loopback=False), Names(["127.0.0.1", "127.0.0.2"])
        async with receiving() as receiver:
            url = f"http://two.example:{receiver.port}/"
            assert (await ask(rules, url, names)).status == 204

    play(story)


def test_a_redirect_is_an_answer_and_is_not_followed() -> None:
    async def story() -> None:
        async with receiving() as elsewhere:
            where = f"Location: http://127.0.0.1:{elsewhere.port}/\r\n".encode()
            moved = b"HTTP/1.1 307 Temporary Redirect\r\n" + where + b"Content-Length: 0\r\n\r\n"
            async with receiving(moved) as receiver:
                assert (await ask(LOCAL, f"http://127.0.0.1:{receiver.port}/")).status == 307
            assert not elsewhere.got

    play(story)


def test_no_proxy_is_taken_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        async with receiving() as receiver, receiving() as proxy:
            monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{proxy.port}")
            await ask(LOCAL, f"http://127.0.0.1:{receiver.port}/")
            assert len(receiver.got) == 1
            assert not proxy.got

    play(story)


def test_of_a_huge_answer_only_the_beginning_is_read() -> None:
    async def story() -> None:
        huge = b"HTTP/1.1 500 No\r\nContent-Length: 999999999\r\n\r\n" + b"x" * 1_000_000
        async with receiving(huge) as receiver, Outbound(LOCAL) as outbound:
            request = Request(url=f"http://127.0.0.1:{receiver.port}/")
            answer = await outbound.send(request, within_s=WITHIN_S, most=1000)
            assert answer.status == 500
            assert answer.body == b"x" * 1000

    play(story)


def test_who_does_not_answer_in_time_or_speaks_no_http_or_is_not_there_gave_no_answer() -> None:
    async def story() -> None:
        silent = socket.create_server(("127.0.0.1", 0))
        port = silent.getsockname()[1]
        async with Outbound(LOCAL) as outbound:
            with pytest.raises(Unanswered, match=r"within 0.05 s"):
                await outbound.send(Request(url=f"http://127.0.0.1:{port}/"), within_s=0.05)
        silent.close()
        with pytest.raises(Unanswered, match=r"Connection refused"):
            await ask(LOCAL, f"http://127.0.0.1:{port}/")
        for said in (b"220 mail.example\r\n", b"mail.example\r\n\r\n", b"HTTP/1.1 2mail.example"):
            async with receiving(said) as receiver:
                with pytest.raises(Unanswered, match=r"no answer of HTTP|was closed") as told:
                    await ask(LOCAL, f"http://127.0.0.1:{receiver.port}/")
                assert "mail" not in str(told.value)

    play(story)


@pytest.mark.parametrize("host", ["xn--a", "[::1]x", "\xe9", "[::1"])
def test_an_address_that_cannot_be_read_gave_no_answer(host: str) -> None:
    async def story() -> None:
        with pytest.raises(Unanswered):
            await ask(LOCAL, f"http://{host}/")

    play(story)
