"""The application that a server runs: the guard, then the operation that a request names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any
from urllib.parse import unquote

import msgspec
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route, Router
from starlette.types import ASGIApp, Receive, Scope, Send

from longshore.errors import InvalidInput, LongshoreError
from longshore.gateway.bodies import JSON, media_type
from longshore.gateway.fleet import explain_error
from longshore.gateway.guard import Guard
from longshore.gateway.ids import ids_of
from longshore.gateway.openapi import document
from longshore.gateway.operation import Call, Gateway, Operation
from longshore.gateway.problems import MethodNotAllowed, NoRoute, problem_answer
from longshore.gateway.routes import OPERATIONS

GZIP_FROM_BYTES = 1_024
_GZIP_LEVEL = 5


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
        do=_describe,
        answers={200: dict[str, Any]},
    ),
    Operation(
        method="GET",
        path="/errors/{code}",
        id="explain_error",
        summary="Say what an error means.",
        do=explain_error,
        answers={200: str},
    ),
)


def make_app(gateway: Gateway) -> ASGIApp:
    """The application of a gateway."""
    by_path: dict[str, dict[str, Operation]] = {}
    for one in (*OPERATIONS, *_PAGES):
        by_path.setdefault(one.path, {})[one.method] = one
    routes = [
        Route(path, _Resource(gateway, methods))
        for listed, methods in by_path.items()
        for path in _forms(listed)
    ]
    router = Router(routes, redirect_slashes=False, default=_no_route)
    return Guard(GZipMiddleware(router, GZIP_FROM_BYTES, _GZIP_LEVEL), gateway.settings)


def _forms(path: str) -> Iterable[str]:
    """The address of a list, which may leave out its last slash."""
    return (path, path.rstrip("/")) if path.endswith("/") else (path,)


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
            response = await self._answer(request)
        except ClientDisconnect:
            return
        except LongshoreError as error:
            response = problem_answer(error)
        await response(scope, receive, send)

    async def _answer(self, request: Request) -> Response:
        method = "GET" if request.method == "HEAD" else request.method
        operation = self._operations.get(method)
        if operation is None:
            raise MethodNotAllowed(
                f"{request.method} is not for this address; {self._allowed} are",
                {"Allow": self._allowed},
            )
        request.scope["path_params"] = _decoded(request.path_params)
        if operation.body is None:
            media_type(request)  # which raises for what a page of another site could send
        call = Call(self._gateway, operation, request)
        key = request.headers.get("idempotency-key")
        with ids_of(method, request.url.path, key):
            return await operation.do(call)


def _decoded(names: Mapping[str, str]) -> dict[str, str]:
    """The names in a path, as people write them."""
    try:
        return {name: unquote(text, errors="strict") for name, text in names.items()}
    except UnicodeDecodeError:
        raise InvalidInput("the address holds bytes that are not UTF-8") from None
