"""An operation of the API, and one call of it.

The table of operations (`routes`) is all that the API is: requests are read, checked and answered
by it, and `/openapi.json` is written from it.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from difflib import get_close_matches
from functools import cache
from time import monotonic, time
from types import UnionType
from typing import Annotated, Any, Final, TypeVar, get_args, get_origin
from urllib.parse import urlencode

import msgspec
from msgspec import Struct, structs
from starlette.requests import Request
from starlette.responses import Response

from longshore.client.actor_by_name import KnownHandlers
from longshore.client.connection import Connection, Ref
from longshore.client.outcomes import Outcomes
from longshore.config import GatewaySettings
from longshore.core.access import Right
from longshore.core.tracing import is_traceparent
from longshore.errors import InvalidInput
from longshore.gateway.asking import KnownAskers, Rates, asking, ticket_of
from longshore.gateway.bodies import JSON, NDJSON, OCTETS, Bodies, decoded, media_type
from longshore.gateway.file_keeping import FileKeeping
from longshore.gateway.kinds import KnownKinds
from longshore.gateway.meter import Meter
from longshore.gateway.pages.layouts import Layouts
from longshore.gateway.pages.lookout import Lookout
from longshore.gateway.pages.throughput import Throughput
from longshore.gateway.problems import UnsupportedMediaType
from longshore.gateway.streams import Streams
from longshore.gateway.submits import Submits
from longshore.gateway.web_workers import WebWorkers
from longshore.model.ids import parse_ref

T = TypeVar("T")
Q = TypeVar("Q", bound=Struct)

_WAIT: Final = re.compile(r"(?:^|,)\s*wait\s*=\s*\"?(\d{1,9})\"?\s*(?:[;,]|$)", re.IGNORECASE)


class Gateway:
    """What all requests share."""

    def __init__(
        self,
        connection: Connection,
        settings: GatewaySettings,
        *,
        needs_token: bool = False,
        own_host: str = "",
        board: bytes | None = None,
        web: WebWorkers | None = None,
        files: FileKeeping | None = None,
        utc: Callable[[], float] = time,
    ) -> None:
        self.connection = connection
        self.settings = settings
        self.web = web
        """The web workers that it attends; None if it is no worker itself."""
        self.files = files
        """The bytes of filesets; None if it keeps none."""
        self.utc = utc
        self.meter = Meter()
        self.needs_token = needs_token
        """Whether a request without a token is refused."""
        self.own_host = own_host
        """The address that it listens on, if that is one that a client can name."""
        self.board = board
        """The hash of the token by which pages are shown to who has none; None if there is none."""
        self.rates = Rates(settings, monotonic)
        self.askers = KnownAskers(connection, monotonic)
        self.outcomes = Outcomes(connection)
        self.kinds = KnownKinds(connection)
        self.handlers = KnownHandlers(connection)
        self.submits = Submits(connection)
        self.bodies = Bodies(settings.max_bodies_bytes, settings.body_s)
        self.closing = asyncio.Event()
        """Set when the process is told to stop: what waits ends then."""
        self.streams = Streams(connection, settings, self.closing)
        idle_s = settings.stream_idle_poll_s
        self.throughput = Throughput(connection, self.streams.changes, idle_s)
        self.lookout = Lookout(connection, self.streams.changes)
        self.layouts = Layouts()


class NoQuery(Struct, frozen=True):
    """An address without parameters behind the `?`."""


class Operation(Struct, frozen=True, kw_only=True):
    """One method on one path."""

    method: str
    path: str
    id: str
    """Its name in `/openapi.json`."""
    summary: str
    needs: Right | None
    """The right that dispatchers ask for; None if it needs no token."""
    do: Callable[[Call], Awaitable[Response]]
    answers: Mapping[int, Any]
    """What it answers, by status; None is an answer without a body."""
    query: type[Struct] = NoQuery
    body: Any = None
    """What its body must be, if it takes one."""
    may_lack_body: bool = False
    ndjson: Any = None
    """What each line must be, if it takes a body with a line for each."""
    is_octets: bool = False
    """Whether its body and its answer are a message of ours, in msgpack."""
    takes_bytes: bool = False
    """Whether its body is a file, which is written while it comes."""
    answers_bytes: bool = False
    """Whether its answer is a file, or a part of one."""
    takes_ticket: bool = False
    """Whether an attempt may ask it, with its ticket instead of a token."""
    streams: str = ""
    """When it answers with a stream of events; empty if it never does."""
    needs_match: bool = False
    """Whether it needs `If-Match`."""
    is_page: bool = False
    """Whether a browser shows its answer: then its errors are pages, too."""
    takes_form: bool = False
    """Whether its body is a form of a page."""

    @property
    def tag(self) -> str:
        """Under which heading it is listed."""
        parts = self.path.strip("/").split("/")
        return parts[1] if parts[0] == "dispatcher" else "gateway"


class Call:
    """One request, while it is answered."""

    def __init__(self, gateway: Gateway, operation: Operation, request: Request) -> None:
        self.gateway = gateway
        self.connection = gateway.connection
        self.settings = gateway.settings
        self.operation = operation
        self.request = request
        self._query = _query_of(operation, request)

    def query(self, kind: type[Q]) -> Q:
        """Its parameters behind the `?`."""
        assert isinstance(self._query, kind)
        return self._query

    def name(self, parameter: str = "key") -> str:
        """A part of its path."""
        text: str = self.request.path_params[parameter]
        return text

    def ref(self, what: str) -> Ref:
        """The job or the group that its path names, by id or number."""
        return parse_ref(self.name("id"), what)

    @property
    def ticket(self) -> str:
        """The ticket of the attempt that asks; empty if none does."""
        return ticket_of(self.request.headers) if self.operation.takes_ticket else ""

    @property
    def principal(self) -> str:
        """Who asks, by the hash of the token; empty without one."""
        return (asking() or b"").hex()

    @property
    def last_event(self) -> str | None:
        """The id of the last event that a client of a stream has got."""
        return self.request.headers.get("last-event-id") or None

    @property
    def traceparent(self) -> str:
        """Where its sender is in a trace (W3C trace context); empty if that is not said."""
        given: str = self.request.headers.get("traceparent", "")
        return given if is_traceparent(given) else ""

    async def body(self, kind: type[T]) -> T:
        """Its body, decoded; an empty one is an empty object, if the operation may lack one."""
        return await self.body_as(lambda data, is_lines: decoded(data, kind))

    async def body_as(self, read: Callable[[bytes, bool], T]) -> T:
        """What `read` makes of its body, and of whether that has lines of JSON."""
        given = media_type(self.request)
        is_lines = given == NDJSON
        self._check_type(given)
        name = "max_body_bytes" if given == JSON else "max_ndjson_bytes"
        limit = getattr(self.settings, name)
        async with self.gateway.bodies.read(self.request, limit, name) as data:
            if not data and self.operation.may_lack_body:
                data = b"{}"
            if not data:
                raise InvalidInput("the body is empty; send a JSON object")
            try:
                return await off_loop(read, data, is_lines, size=len(data))
            except RecursionError:
                raise InvalidInput("the body is nested too deep; make it flatter") from None

    def _check_type(self, given: str) -> None:
        wanted = [OCTETS] if self.operation.is_octets else [JSON]
        if self.operation.ndjson is not None:
            wanted.append(NDJSON)
        if given and given not in wanted:
            raise UnsupportedMediaType(f"the content type is {given}; send {wanted[0]} here")

    # waiting

    def wait_s(self, given: float | None) -> float:
        """How long it wants to wait: by `wait_s`, or by its header `Prefer`."""
        if given is None:
            found = _WAIT.search(",".join(self.request.headers.getlist("prefer")))
            given = float(found[1]) if found else 0.0
        return min(given, self.settings.max_long_poll_s)

    def applied(self, wait_s: float) -> dict[str, str]:
        """The header that says how long a preference let it wait."""
        prefers = "prefer" in self.request.headers and wait_s
        return {"Preference-Applied": f"wait={wait_s:g}"} if prefers else {}

    async def unless_gone(self, waiting: Awaitable[T]) -> T | None:
        """What comes of waiting; None if the client goes away, or the gateway stops, before."""
        task = asyncio.ensure_future(waiting)
        ends = [
            asyncio.ensure_future(self._is_gone()),
            asyncio.ensure_future(self.gateway.closing.wait()),
        ]
        try:
            await asyncio.wait([task, *ends], return_when=asyncio.FIRST_COMPLETED)
            return task.result() if task.done() else None
        finally:
            for one in (task, *ends):
                one.cancel()
            with suppress(asyncio.CancelledError):
                await asyncio.gather(*ends, return_exceptions=True)

    async def _is_gone(self) -> None:
        while (await self.request.receive())["type"] != "http.disconnect":
            pass

    # answers

    def next_link(self, **changes: object) -> dict[str, str]:
        """The header that leads to the next page: this address, with other parameters."""
        kept = [pair for pair in self.request.query_params.multi_items() if pair[0] not in changes]
        added = [(name, str(value)) for name, value in changes.items()]
        return {"Link": f'<{self.request.url.path}?{urlencode([*kept, *added])}>; rel="next"'}


def answer(
    document: object, status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    """An answer in JSON."""
    return Response(msgspec.json.encode(document), status, headers, JSON)


LARGE_BYTES: Final = 256 * 1024
"""A body of this size is looked at in a thread: other requests go on meanwhile."""


async def off_loop(work: Callable[..., T], *args: Any, size: int) -> T:
    """What a function makes of something of this size; in a thread, if it is large."""
    return work(*args) if size < LARGE_BYTES else await asyncio.to_thread(work, *args)


def _query_of(operation: Operation, request: Request) -> Struct:
    if not request.scope["query_string"]:
        return _nothing_given(operation.query)
    fields = {field.encode_name: field for field in structs.fields(operation.query)}
    given: dict[str, Any] = {}
    for name, value in request.query_params.multi_items():
        field = fields.get(name)
        if field is None:
            near = get_close_matches(name, fields, n=1)
            advice = (
                f"did you mean {near[0]}?" if near else f"there are {', '.join(fields) or 'none'}"
            )
            raise InvalidInput(f"there is no parameter {name!r} here; {advice}")
        if _is_list(field.type):
            given.setdefault(name, []).append(value)
        elif name in given:
            raise InvalidInput(f"{name} is given twice; give it once")
        elif value.lower() == "null" and str not in (field.type, *get_args(field.type)):
            raise InvalidInput(f"{name} is {value!r}; leave it out")
        else:
            given[name] = value
    return _converted(given, operation.query)


@cache
def _nothing_given(query: type[Struct]) -> Struct:
    return _converted({}, query)


def _converted(given: dict[str, Any], query: type[Struct]) -> Struct:
    try:
        return msgspec.convert(given, query, strict=False)
    except msgspec.ValidationError as error:
        raise InvalidInput(f"the parameters of the address: {error}") from None


def _is_list(kind: Any) -> bool:
    if get_origin(kind) is Annotated:
        kind = get_args(kind)[0]
    return get_origin(kind) is tuple and not isinstance(kind, UnionType)
