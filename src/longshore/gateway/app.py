"""The application that a server runs: the guard, then the operation that a request names."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any
from urllib.parse import unquote

import msgspec
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route, Router, compile_path
from starlette.types import ASGIApp, Receive, Scope, Send

from longshore.core.access import Right
from longshore.errors import InvalidInput, LongshoreError, NotAuthenticated
from longshore.gateway.asking import asked_by, asking, bearer, cookie_token, ticket_of
from longshore.gateway.bodies import JSON, media_type
from longshore.gateway.fleet import explain_error, show_metrics
from longshore.gateway.guard import Guard
from longshore.gateway.ids import ids_of
from longshore.gateway.meter import MEASURED, Metering
from longshore.gateway.openapi import document
from longshore.gateway.operation import Call, Gateway, Operation
from longshore.gateway.pages.sign_in import error_answer
from longshore.gateway.pages.table import PAGE_OPERATIONS
from longshore.gateway.problems import MethodNotAllowed, NoRoute, problem_answer
from longshore.gateway.routes import OPERATIONS

GZIP_FROM_BYTES = 1_024
_GZIP_LEVEL = 5
_FILES = re.compile(r"/dispatcher/(blobs/([0-9a-f]{64}|read)$|filesets/[^/]+/[^/]+/files/)")


async def _describe(call: Call) -> Response:
    """Describes the API."""
    return Response(_document(), media_type=JSON)


@cache
def _document() -> bytes:
    return msgspec.json.encode(document(OPERATIONS))


_PAGES = (
    Operation(
        method="GET",
        path="/openapi.json",
        id="describe",
        summary="Describe the API.",
        needs=None,
        do=_describe,
        answers={200: dict[str, Any]},
    ),
    Operation(
        method="GET",
        path="/metrics",
        id="show_metrics",
        summary="Show the metrics of the gateway.",
        do=show_metrics,
        needs=Right.READ,
        answers={200: str},
    ),
    Operation(
        method="GET",
        path="/errors/{code}",
        id="explain_error",
        summary="Say what an error means.",
        needs=None,
        do=explain_error,
        answers={200: str},
    ),
)


def _forms(path: str) -> Iterable[str]:
    """The address of a list, which may leave out its last slash."""
    return (path, path.rstrip("/")) if path.endswith("/") and path != "/" else (path,)


def make_app(gateway: Gateway) -> ASGIApp:
    """The application of a gateway."""
    by_path: dict[str, dict[str, Operation]] = {}
    for one in (*OPERATIONS, *_PAGES, *PAGE_OPERATIONS):
        by_path.setdefault(one.path, {})[one.method] = one
    routes = [
        Route(path.replace("{path}", "{path:path}"), _Resource(gateway, methods))
        for listed, methods in by_path.items()
        for path in _forms(listed)
    ]
    router = Router(routes, redirect_slashes=False, default=_no_route)
    guard = Guard(_Packing(router), gateway.settings, gateway.own_host, _is_page)
    return Metering(guard, gateway.meter)


_PAGE_PATHS = [
    compile_path(path)[0] for one in PAGE_OPERATIONS if one.is_page for path in _forms(one.path)
]


def _is_page(path: str) -> bool:
    """Whether a page of the dashboard is at a path."""
    return any(one.fullmatch(path) for one in _PAGE_PATHS)


class _Packing:
    """Packs answers for who takes gzip, but not files: those are sent as they are stored."""

    def __init__(self, router: Router) -> None:
        self._router = router
        self._packed = GZipMiddleware(router, GZIP_FROM_BYTES, _GZIP_LEVEL)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one request."""
        app: ASGIApp = self._router if _FILES.match(scope["path"]) else self._packed
        await app(scope, receive, send)


async def _no_route(scope: Scope, receive: Receive, send: Send) -> None:
    raise NoRoute(
        f"there is nothing at {unquote(scope['path'])!r}; /openapi.json lists all there is"
    )


class _Resource:
    """What is at one path."""

    def __init__(self, gateway: Gateway, operations: Mapping[str, Operation]) -> None:
        self._gateway = gateway
        self._operations = operations
        methods = {*operations, *(["HEAD"] if "GET" in operations else [])}
        self._allowed = ", ".join(sorted(methods))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one request."""
        request = Request(scope, receive)
        try:
            operation = self._operation(request)
        except LongshoreError as error:
            await problem_answer(error)(scope, receive, send)
            return
        try:
            token = await self._token(operation, request)
        except LongshoreError as error:
            await _refusal(operation, request, error)(scope, receive, send)
            return
        # Around the sending too: a stream asks dispatchers while it is sent.
        with asked_by(token):
            try:
                response = await self._answer(operation, request)
            except ClientDisconnect:
                return
            except LongshoreError as error:
                response = _refusal(operation, request, error)
            await response(scope, receive, send)

    def _operation(self, request: Request) -> Operation:
        method = "GET" if request.method == "HEAD" else request.method
        operation = self._operations.get(method)
        if operation is None:
            raise MethodNotAllowed(
                f"{request.method} is not for this address; {self._allowed} are",
                {"Allow": self._allowed},
            )
        request.scope[MEASURED].operation = operation.id
        return operation

    async def _token(self, operation: Operation, request: Request) -> bytes | None:
        """The token of a request; raises if it is worth nothing here, or asks too often."""
        if operation.needs is None:
            return None
        if operation.takes_ticket and ticket_of(request.headers):
            return None  # a dispatcher judges the ticket
        token = bearer(request.headers) or cookie_token(request.method, request.headers)
        if token is None and operation.is_page:
            token = self._gateway.board
        if token is None and self._gateway.needs_token:
            raise NotAuthenticated("this needs a token: send `Authorization: Bearer ls_…`")
        if token is not None:
            self._gateway.rates.take(token)
            await self._gateway.askers.check(token, operation.needs)
        return token

    async def _answer(self, operation: Operation, request: Request) -> Response:
        request.scope["path_params"] = _decoded(request.path_params)
        takes_other = operation.is_octets or operation.takes_bytes or operation.takes_form
        if operation.body is None and not takes_other:
            media_type(request)  # which raises for what a page of another site could send
        call = Call(self._gateway, operation, request)
        key = request.headers.get("idempotency-key")
        with ids_of(operation.method, request.scope["path"], key, asking()):
            return await operation.do(call)


def _refusal(operation: Operation, request: Request, error: LongshoreError) -> Response:
    """An error: as a page, where a browser wants one."""
    return error_answer(request, error) if operation.is_page else problem_answer(error)


def _decoded(names: Mapping[str, str]) -> dict[str, str]:
    """The names in a path, as people write them."""
    try:
        return {name: unquote(text, errors="strict") for name, text in names.items()}
    except UnicodeDecodeError:
        raise InvalidInput("the address holds bytes that are not UTF-8") from None
