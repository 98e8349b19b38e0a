"""A client's conversation with the first dispatcher that answers.

Every request may be repeated: a submit is known by its jobs' ids, the others only read, or ask for
a state that asking again does not change. So the connection sends a request that gets no answer
within `try_s` again, with the same `rid`, to the next address, until `timeout_s` has passed. The
first answer counts. One socket, the current one, carries all requests at once. A socket that was
left stays open only while a request waits for its answer. Closing it drops what it could not send,
so that nothing is delivered after its sender has given up.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterable
from math import isnan
from typing import Any, Concatenate, ParamSpec, Self

from msgspec.structs import replace

from longshore.client.adapters import Dialler
from longshore.errors import (
    ConfigError,
    DispatcherUnavailable,
    InvalidInput,
    LongshoreError,
    ProtocolError,
    Unavailable,
    from_code,
)
from longshore.ports import Link, OnMessages
from longshore.wire import codec, messages
from longshore.wire.access_messages import on_behalf
from longshore.wire.messages import (
    Request,
)

Connect = Callable[[str, OnMessages], Link]
"""Opens a link to an address."""

DEFAULT_ADDRESS = "tcp://127.0.0.1:7702"

P = ParamSpec("P")


def parse_addresses(connect: str | Iterable[str]) -> tuple[str, ...]:
    """The addresses in a comma-separated text or a list, each like tcp://127.0.0.1:7702."""
    parts = connect.split(",") if isinstance(connect, str) else connect
    addresses = tuple(part.strip() for part in parts if part.strip())
    if not addresses:
        raise ConfigError(f"no dispatcher to connect to: give an address like {DEFAULT_ADDRESS}")
    for address in addresses:
        if "://" not in address:
            raise ConfigError(f"'{address}' is not an address; it looks like {DEFAULT_ADDRESS}")
    return addresses


class _Line:
    """One socket, the requests that wait for its answer, and when it last sent a message."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.heard_at = float("-inf")
        self.owes: set[int] = set()
        self.link: Link


class _Exchange:
    """One request until it is answered."""

    def __init__(
        self,
        request: Request,
        answer: asyncio.Future[Any],
        patience_s: float,
        deadline: float,
        token: bytes | None = None,
    ) -> None:
        self.request = request
        self.frames = codec.encode(request)
        if token is not None:
            self.frames = on_behalf(token, request.rid, self.frames)
        self.answer = answer
        self.patience_s = patience_s
        self.deadline = deadline
        self.begun_at = answer.get_loop().time()
        self.sent_at = self.begun_at
        self.line: _Line | None = None
        self.timer: asyncio.TimerHandle | None = None
        self.refusal: LongshoreError | None = None

    def fail(self, error: LongshoreError) -> None:
        """Ends the exchange without an answer."""
        if not self.answer.done():
            self.answer.set_exception(error)


class Conversation:
    """Asks one dispatcher of several at a time, on the event loop of its first use."""

    def __init__(
        self,
        addresses: str | Iterable[str] = DEFAULT_ADDRESS,
        *,
        timeout_s: float = 10.0,
        try_s: float = 2.5,
        pause_s: float = 0.25,
        connect: Connect | None = None,
        dialler: Dialler | None = None,
        token: Callable[[], bytes | None] = lambda: None,
    ) -> None:
        self._token = token
        self.addresses = parse_addresses(addresses)
        self.timeout_s = timeout_s
        self._try_s = min(try_s, timeout_s)
        self._pause_s = pause_s
        self._dialler = dialler or Dialler()
        self._connect = connect or self._dialler.connect
        self._rids = itertools.count(1)
        self._turn = 0
        self._line: _Line | None = None
        self._lines: list[_Line] = []
        self._pending: dict[int, _Exchange] = {}
        self._noise = ""
        self._closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes every socket; requests under way fail as unavailable."""
        self._closed = True
        for exchange in list(self._pending.values()):
            exchange.fail(DispatcherUnavailable("the connection was closed before an answer came"))
        for line in self._lines:
            line.link.close()
        self._lines.clear()
        self._line = None
        self._dialler.close()

    # how it is asked

    def _token_for(self, request: Request) -> bytes | None:
        """The hash of the token for whose holder this is asked."""
        return self._token()

    async def _ask(
        self, make: Callable[Concatenate[int, P], Request], *args: P.args, **kwargs: P.kwargs
    ) -> Any:
        """The answer to a request of these fields."""
        return await self._exchange(make(next(self._rids), *args, **kwargs))

    async def relay(self, request: Request, within_s: float = 0.0) -> messages.Ok:
        """The answer to a request of another client, which this one passes on as its own."""
        answer = await self._deliver(replace(request, rid=next(self._rids)), within_s)
        return messages.Ok(request.rid, answer.answer)

    async def _exchange(self, request: Request, within_s: float = 0.0) -> Any:
        """The answer to a request that may take the dispatcher `within_s` to give."""
        return codec.answer_to(request, await self._deliver(request, within_s))

    async def _deliver(self, request: Request, within_s: float) -> messages.Ok:
        if self._closed:
            raise DispatcherUnavailable("the connection is closed; make a new one")
        if isnan(within_s):  # no deadline would ever pass
            raise InvalidInput("the time to wait is not a number; give seconds, 0 or more")
        loop = asyncio.get_running_loop()
        exchange = _Exchange(
            request,
            loop.create_future(),
            patience_s=self._try_s + within_s,
            deadline=loop.time() + self.timeout_s + within_s,
            token=self._token_for(request),
        )
        self._pending[request.rid] = exchange
        try:
            self._send(exchange)
            answer: messages.Ok = await exchange.answer
            return answer
        finally:
            self._forget(exchange)

    def _send(self, exchange: _Exchange) -> None:
        """Sends a request on the current line, and again when its patience is at an end."""
        line = self._current()
        now = asyncio.get_running_loop().time()
        exchange.line, exchange.sent_at = line, now
        line.owes.add(exchange.request.rid)
        line.link.send(b"", exchange.frames)
        self._look_again(exchange, exchange.patience_s)

    def _look_again(self, exchange: _Exchange, after_s: float) -> None:
        loop = asyncio.get_running_loop()
        if exchange.timer is not None:
            exchange.timer.cancel()
        due_s = max(0.0, min(after_s, exchange.deadline - loop.time()))
        exchange.timer = loop.call_later(due_s, self._again, exchange)

    def _again(self, exchange: _Exchange) -> None:
        """Repeats a request without an answer, elsewhere if its dispatcher is silent."""
        if exchange.answer.done():
            return
        if asyncio.get_running_loop().time() >= exchange.deadline:
            exchange.fail(exchange.refusal or self._unavailable(exchange))
            return
        line = exchange.line
        try:
            if line is not None and line.heard_at < exchange.sent_at and len(self.addresses) > 1:
                self._leave(line)
            else:
                self._send(exchange)
        except ConfigError as error:
            exchange.fail(error)

    def _leave(self, line: _Line) -> None:
        """Moves on to the next address, with every request that waits for this silent one."""
        self._turn_from(line)
        for exchange in list(self._pending.values()):
            if exchange.line is line and not exchange.answer.done():
                self._send(exchange)

    def _turn_from(self, line: _Line | None) -> None:
        if line is self._line and len(self.addresses) > 1:
            self._line = None
            self._turn += 1

    def _current(self) -> _Line:
        if self._line is None:
            line = _Line(self.addresses[self._turn % len(self.addresses)])
            line.link = self._connect(line.address, lambda arrived: self._heard(line, arrived))
            self._lines.append(line)
            self._line = line
        return self._line

    def _heard(self, line: _Line, arrived: list[tuple[bytes, list[bytes]]]) -> None:
        line.heard_at = asyncio.get_running_loop().time()
        for _, frames in arrived:
            try:
                message = codec.to_client.decode(frames)
            except ProtocolError as error:
                self._noise = f"; what answers does not speak our protocol ({error})"
                continue
            exchange = self._pending.get(message.rid)
            if exchange is not None and not exchange.answer.done():
                self._answered(exchange, message)

    def _answered(self, exchange: _Exchange, message: messages.Answer) -> None:
        if isinstance(message, messages.Ok):
            exchange.answer.set_result(message)
            return
        error = from_code(message.code, message.message)
        if isinstance(error, Unavailable):
            self._postpone(exchange, error)
        else:
            exchange.fail(error)

    def _postpone(self, exchange: _Exchange, error: Unavailable) -> None:
        """Asks again after a pause, elsewhere: this dispatcher may be cut off from its store."""
        if exchange.refusal is None:
            until = asyncio.get_running_loop().time() + self.timeout_s
            exchange.deadline = min(exchange.deadline, until)
        exchange.refusal = error
        self._turn_from(exchange.line)
        self._look_again(exchange, self._pause_s)

    def _forget(self, exchange: _Exchange) -> None:
        """Closes lines that no request waits for, except the current one if it answers."""
        rid = exchange.request.rid
        self._pending.pop(rid, None)
        if exchange.timer is not None:
            exchange.timer.cancel()
        for line in list(self._lines):
            line.owes.discard(rid)
            if line.owes or (line is self._line and line.heard_at >= exchange.sent_at):
                continue
            line.link.close()
            self._lines.remove(line)
            if line is self._line:
                self._line = None

    def _unavailable(self, exchange: _Exchange) -> DispatcherUnavailable:
        if any(line.heard_at >= exchange.begun_at for line in self._lines):
            return DispatcherUnavailable(
                f"no answer within {self.timeout_s:g} s, although a dispatcher is there: it is "
                "overloaded, or waits for its store; try again"
            )
        advice = self._dialler.advice(self.addresses)
        return DispatcherUnavailable(
            f"no dispatcher answers at {', '.join(self.addresses)}{self._noise}; is `longshore up` "
            f"running? (gave up after {self.timeout_s:g} s{advice})"
        )
