"""A gateway in this process, before the test kit's dispatcher: no socket, no store."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import msgspec
from msgspec import structs
from starlette.types import ASGIApp, Message, Scope

from longshore.client.connection import Connection
from longshore.config import GatewaySettings
from longshore.errors import LongshoreError
from longshore.gateway.app import make_app
from longshore.gateway.ids import new_id
from longshore.gateway.operation import Gateway
from longshore.ports import OnMessages
from longshore.testing.kit import Kit
from longshore.wire import codec, messages
from longshore.wire.web_messages import ListWebWorkers

JSON = "application/json"
LOOK_S = 0.002
QUICK = {"stream_poll_s": 0.002, "stream_idle_poll_s": 0.002}


class Reply(NamedTuple):
    """An answer."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """The document in it."""
        return json.loads(self.body)


class Line:
    """A link to the kit's dispatcher. It waits, as a real one does; the kit itself never does."""

    def __init__(
        self,
        kit: Kit,
        replies: Mapping[type, Any],
        heard: OnMessages,
        on_wait: Callable[[], None],
    ) -> None:
        self._kit = kit
        self._on_wait = on_wait
        self._replies = replies
        self._heard = heard
        self._is_closed = False

    def key_of(self, peer: bytes) -> str:
        """None: nobody is asked for a key."""
        return ""

    def send(self, peer: bytes, frames: Sequence[bytes]) -> bool:
        """Answers, now or when what is waited for has ended."""
        request = codec.from_client.decode(frames)
        loop = asyncio.get_running_loop()
        if isinstance(request, messages.Wait):
            self._on_wait()
            self._look(request, loop.time() + request.wait_s)
        elif isinstance(request, messages.AwaitChange):
            self._look_for_change(request, loop.time() + request.wait_s)
        elif type(request) in self._replies:
            answer = self._replies[type(request)]
            self._tell(self._scripted(request, answer(request) if callable(answer) else answer))
        else:
            self._tell(self._kit.dispatcher.answer(frames))
        return True

    def _scripted(self, request: messages.Request, answer: object) -> list[bytes]:
        if isinstance(answer, LongshoreError):
            return codec.encode(messages.Err(request.rid, answer.code, str(answer)))
        return codec.ok(request.rid, answer)

    def _look(self, request: messages.Wait, until: float) -> None:
        answer = self._kit.dispatcher.answer(codec.encode(structs.replace(request, wait_s=0.0)))
        found = msgspec.msgpack.decode(codec.to_client.decode(answer).answer)  # type: ignore[union-attr]
        loop = asyncio.get_running_loop()
        if found or loop.time() >= until or self._is_closed:
            self._tell(answer)
        else:
            loop.call_later(LOOK_S, self._look, request, until)

    def _look_for_change(self, request: messages.AwaitChange, until: float) -> None:
        answer = codec.to_client.decode(self._kit.dispatcher.answer(codec.encode(request)))
        loop = asyncio.get_running_loop()
        if codec.answer_to(request, answer) != request.seen or loop.time() >= until:  # type: ignore[arg-type]
            self._tell(codec.ok(request.rid, codec.answer_to(request, answer)))  # type: ignore[arg-type]
        elif not self._is_closed:
            loop.call_later(LOOK_S, self._look_for_change, request, until)

    def _tell(self, frames: list[bytes]) -> None:
        asyncio.get_running_loop().call_soon(self._heard, [(b"", frames)])

    def close(self) -> None:
        """Answers nothing more."""
        self._is_closed = True


class Api:
    """A gateway that can be called. `replies` overrides what the dispatcher says to a request."""

    def __init__(self, kit: Kit, **settings: Any) -> None:
        self.kit = kit
        self.replies: dict[type, Any] = {ListWebWorkers: ()}
        self._waits = asyncio.Event()
        self.connection = Connection(
            "inline://kit",
            connect=lambda _, heard: Line(kit, self.replies, heard, self._waits.set),
            new_id=new_id,
            timeout_s=1.0,
            pause_s=0.01,
        )
        self.gateway = Gateway(self.connection, GatewaySettings(**{**QUICK, **settings}))
        self.app: ASGIApp = make_app(self.gateway)

    async def call(
        self,
        method: str,
        target: str,
        body: object = None,
        *,
        chunks: Sequence[bytes] | None = None,
        **headers: str,
    ) -> Reply:
        """The answer to a request; a body that is not bytes is sent as JSON."""
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        if body is not None:
            given.setdefault("content-type", JSON)
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        parts = list(chunks) if chunks is not None else [] if body is None else [data]
        if chunks is None and body is not None:
            given.setdefault("content-length", str(len(data)))
        sent: list[Message] = []
        await self.app(_scope(method, target, given), _receiving(parts), _keeping(sent))
        head, body_parts = sent[0], [one.get("body", b"") for one in sent[1:]]
        raw = {name.decode(): value.decode() for name, value in head["headers"]}
        return Reply(head["status"], raw, b"".join(body_parts))

    async def waited_for(self) -> None:
        """Returns once a request waits for a job."""
        await self._waits.wait()

    async def get(self, target: str, **headers: str) -> Reply:
        """The answer to a GET."""
        return await self.call("GET", target, chunks=None, **headers)

    async def post(self, target: str, body: object = None, **headers: str) -> Reply:
        """The answer to a POST."""
        return await self.call("POST", target, body, chunks=None, **headers)

    @asynccontextmanager
    async def stream(self, target: str, **headers: str) -> AsyncIterator[Events]:
        """The events of a stream, while the block runs."""
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        events = Events()
        streaming = self.app(_scope("GET", target, given), events.receive, events.send)
        task = asyncio.ensure_future(streaming)
        try:
            yield events
        finally:
            events.gone.set()
            await task


class Events:
    """The client's end of a stream."""

    def __init__(self) -> None:
        self.gone = asyncio.Event()
        self._messages: asyncio.Queue[Message] = asyncio.Queue()
        self._text = ""
        self.status = 0
        self._is_over = False

    async def receive(self) -> Message:
        """What the server hears of the client: that it is gone."""
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        """What the server says."""
        await self._messages.put(message)

    async def next(self) -> dict[str, Any] | None:
        """The next event: its id, its name, its data; None at the end."""
        while True:
            block, found, rest = self._text.partition("\n\n")
            if found:
                self._text = rest
                fields = dict(line.split(": ", 1) for line in block.split("\n") if line[0] != ":")
                if fields:
                    return {**fields, "data": json.loads(fields["data"])}
            elif self._is_over:
                return None
            else:
                self._take(await self._messages.get())

    def _take(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
        else:
            self._text += message.get("body", b"").decode()
            self._is_over = not message.get("more_body", False)

    async def all(self) -> list[dict[str, Any]]:
        """All events, to the end."""
        found = []
        while (event := await self.next()) is not None:
            found.append(event)
        return found


def _scope(method: str, target: str, headers: Mapping[str, str]) -> Scope:
    path, _, query = target.partition("?")
    given = {"host": "127.0.0.1:7700", **headers}
    return {
        "type": "http",
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "headers": [(name.encode(), value.encode("latin-1")) for name, value in given.items()],
        "server": ("127.0.0.1", 7700),
    }


def _receiving(parts: list[bytes]) -> Callable[[], Any]:
    async def receive() -> Message:
        if parts:
            return {"type": "http.request", "body": parts.pop(0), "more_body": True}
        return {"type": "http.request", "body": b"", "more_body": False}

    never = asyncio.Event()
    state = {"is_read": False}

    async def once() -> Message:
        if state["is_read"]:
            await never.wait()
        message = await receive()
        state["is_read"] = not message["more_body"]
        return message

    return once


def _keeping(sent: list[Message]) -> Callable[[Message], Any]:
    async def send(message: Message) -> None:
        sent.append(message)

    return send
