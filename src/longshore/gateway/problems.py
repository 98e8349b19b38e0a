"""Errors over HTTP: problem details (RFC 9457), one status for each error.

`type` leads to a page that says what the error means and what to do; the gateway serves it itself
(`/errors/CODE`), so that it is there wherever the API is. `code` is the word that the SDK, the
command line and the wire use for the error.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

import msgspec
from msgspec import Struct
from starlette.responses import Response

from longshore.errors import (
    AskFailed,
    Conflict,
    DiskFull,
    InvalidInput,
    LongshoreError,
    NotAllowed,
    NotAuthenticated,
    NotFinished,
    NotFound,
    ProtocolError,
    TooLarge,
    Unavailable,
    WrongState,
)

PROBLEM_TYPE: Final = "application/problem+json"
RETRY_AFTER_S: Final = 1
"""After how long a client should ask again if a dispatcher, or this gateway, is busy."""

STATUSES: Final[dict[type[LongshoreError], int]] = {
    InvalidInput: 400,
    TooLarge: 413,
    NotAuthenticated: 401,
    NotAllowed: 403,
    NotFound: 404,
    Conflict: 409,
    WrongState: 409,
    AskFailed: 422,
    ProtocolError: 502,
    Unavailable: 503,
    DiskFull: 507,
    NotFinished: 504,
    LongshoreError: 500,
}
"""The status of each error; that of the nearest class it is a kind of."""


class HttpError(LongshoreError):
    """A request that HTTP itself does not allow.

    The message says why.
    """

    code = "http"
    status = 400

    def __init__(self, message: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.headers = dict(headers or {})


class Forbidden(HttpError):
    """The request comes from a page of another site, or is a callback.

    The API is not for pages of other sites, nor for callbacks. Call it from a program, or from a
    page that the gateway itself serves.
    """

    code, status = "forbidden", 403


class BadSignature(HttpError):
    """The request is not signed by the web worker that it names.

    Sign it with the secret that the registration answered, and check the clock of the machine.
    """

    code, status = "bad_signature", 403


class NoRoute(HttpError):
    """There is nothing at this address.

    `/openapi.json` lists all there is.
    """

    code, status = "no_route", 404


class MethodNotAllowed(HttpError):
    """The address is right, but not for this method.

    The header `Allow` names the methods that it takes.
    """

    code, status = "method_not_allowed", 405


class BodyTooSlow(HttpError):
    """The body of the request did not come in time.

    Send it again; `body_s` is how long the gateway waits for the next bytes.
    """

    code, status = "body_too_slow", 408


class PreconditionFailed(HttpError):
    """It has changed since it was read: `If-Match` names another version.

    Read it again, and repeat the change with the new `ETag`.
    """

    code, status = "precondition_failed", 412


class UnsupportedMediaType(HttpError):
    """The body is in a format that the address does not take.

    Send JSON with `Content-Type: application/json`, or, where many are sent at once, a line of JSON
    for each with `application/x-ndjson`.
    """

    code, status = "unsupported_media_type", 415


class RangeNotSatisfiable(HttpError):
    """The file is shorter than the range that was asked for.

    `Content-Range` says how long it is.
    """

    code, status = "range_not_satisfiable", 416


class Misdirected(HttpError):
    """The request names a host that this gateway is not.

    Call it by 127.0.0.1 or localhost, or add the name to `http_hosts`.
    """

    code, status = "misdirected", 421


class KeyReused(HttpError):
    """The `Idempotency-Key` came before, with another body.

    Give each request a key of its own, and repeat a request exactly.
    """

    code, status = "idempotency_key_reused", 422


class TooManyRequests(HttpError):
    """The token makes more requests than one may.

    Wait for as long as `Retry-After` says. `http_rate` and `http_burst` are the limits.
    """

    code, status = "too_many_requests", 429


class PreconditionRequired(HttpError):
    """A change needs `If-Match`, so that it does not undo one that its sender has not seen.

    Read it first, and send the `ETag` of the answer.
    """

    code, status = "precondition_required", 428


class ProblemDetails(Struct, frozen=True, rename={"error_type": "type"}):
    """What went wrong (RFC 9457)."""

    error_type: str
    title: str
    status: int
    detail: str
    code: str


def status_of(error: LongshoreError) -> int:
    """The status of the answer that tells of an error."""
    if isinstance(error, HttpError):
        return error.status
    return next(STATUSES[kind] for kind in type(error).__mro__ if kind in STATUSES)


def problem(error: LongshoreError) -> ProblemDetails:
    """The details of an error."""
    title, _ = explained(type(error))
    return ProblemDetails(
        f"/errors/{error.code}", title, status_of(error), " ".join(str(error).split()), error.code
    )


def problem_answer(error: LongshoreError) -> Response:
    """The answer that tells of an error."""
    status = status_of(error)
    headers = dict(error.headers) if isinstance(error, HttpError) else {}
    if status == 401:
        headers["WWW-Authenticate"] = 'Bearer realm="longshore"'
    if status == 503:
        headers.setdefault("Retry-After", str(RETRY_AFTER_S))
    if status == 413:
        # Otherwise the server would read the rest of the body, and throw it away.
        headers.setdefault("Connection", "close")
    return Response(msgspec.json.encode(problem(error)), status, headers, PROBLEM_TYPE)


def explained(kind: type[LongshoreError]) -> tuple[str, str]:
    """What an error means, and what to do about it."""
    first, _, rest = (kind.__doc__ or "").partition("\n\n")
    return " ".join(first.split()), " ".join(rest.split())


def all_errors(root: type[LongshoreError] = LongshoreError) -> Iterator[type[LongshoreError]]:
    """Every error there is."""
    yield root
    for child in root.__subclasses__():
        yield from all_errors(child)
