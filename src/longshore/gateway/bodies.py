"""Reads the bodies of requests: counted while they come, unpacked, decoded.

A body past its limit is refused as soon as it is known to be, in its header or while it comes. A
small body that unpacks to a large one counts by its unpacked size.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any, Final, TypeVar

import msgspec
from starlette.requests import Request

from longshore.errors import InvalidInput, TooLarge, Unavailable
from longshore.gateway.problems import BodyTooSlow, UnsupportedMediaType

T = TypeVar("T")

JSON: Final = "application/json"
NDJSON: Final = "application/x-ndjson"
OCTETS: Final = "application/octet-stream"
_NDJSON_NAMES: Final = frozenset({NDJSON, "application/ndjson", "application/jsonl"})
_GZIP: Final = zlib.MAX_WBITS | 16
_UNDECODABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, OverflowError)


class Bodies:
    """How much of bodies is held at once."""

    def __init__(self, most: int, wait_s: float) -> None:
        self._most = most
        self._wait_s = wait_s
        self._held = 0

    @property
    def held(self) -> int:
        """How many bytes are held now."""
        return self._held

    @asynccontextmanager
    async def read(self, request: Request, limit: int, name: str) -> AsyncIterator[bytes]:
        """The body of a request, which counts as held while the block runs."""
        reading = _Reading(request, limit, name)
        try:
            async for size in reading.chunks(self._wait_s):
                self._held += size
                if self._held > self._most:
                    raise Unavailable(
                        "the gateway holds too many bodies of requests (max_bodies_bytes: "
                        f"{self._most:,}); try again"
                    )
            yield reading.body()
        finally:
            self._held -= reading.size


class _Reading:
    """One body while it comes; `size` is how much of it there is, unpacked."""

    def __init__(self, request: Request, limit: int, name: str) -> None:
        self._request = request
        self._limit = limit
        self._name = name
        self._chunks: list[bytes] = []
        self.size = 0
        encoding = request.headers.get("content-encoding", "identity").lower()
        if encoding not in ("identity", "gzip"):
            raise UnsupportedMediaType(f"Content-Encoding is {encoding!r}; gzip is taken, or none")
        self._gzip = zlib.decompressobj(_GZIP) if encoding == "gzip" else None

    async def chunks(self, wait_s: float) -> AsyncIterator[int]:
        """Reads it to its end; yields how many bytes came."""
        given = self._request.headers.get("content-length", "")
        if given.isdigit() and int(given) > self._limit:
            raise self._too_large()
        stream = self._request.stream()
        while True:
            try:
                async with asyncio.timeout(wait_s):
                    chunk = await anext(stream, None)
            except TimeoutError:
                words = (
                    f"no more bytes of the body came within body_s ({wait_s:g} s); send it again"
                )
                raise BodyTooSlow(words, {"Connection": "close"}) from None
            if chunk is None:
                return
            yield self._take(chunk)

    def _take(self, chunk: bytes) -> int:
        plain = chunk if self._gzip is None else self._unpacked(chunk)
        self.size += len(plain)
        if self.size > self._limit:
            raise self._too_large()
        self._chunks.append(plain)
        return len(plain)

    def _unpacked(self, chunk: bytes) -> bytes:
        assert self._gzip is not None
        try:
            return self._gzip.decompress(chunk, self._limit - self.size + 1)
        except zlib.error:
            raise InvalidInput("the body is not gzip, as its Content-Encoding says") from None

    def body(self) -> bytes:
        """All of it."""
        if self._gzip is not None and self._chunks and not self._gzip.eof:
            raise InvalidInput("the body is not whole: its gzip data breaks off")
        return b"".join(self._chunks)

    def _too_large(self) -> TooLarge:
        return TooLarge(
            f"the body is larger than {self._name} ({self._limit:,} bytes); send less at once, or "
            "keep large data in a file or an object store and pass its name"
        )


def media_type(request: Request) -> str:
    """What the body of a request is, by its header; empty if there is no body."""
    given = request.headers.get("content-type", "")
    name = given.partition(";")[0].strip().lower()
    if name == JSON:
        return JSON
    if name in _NDJSON_NAMES:
        return NDJSON
    if name == OCTETS:
        return OCTETS
    if name or _has_body(request):
        what = repr(name) if name else "not named"
        raise UnsupportedMediaType(
            f"the content type is {what}; send {JSON}, or where many are sent {NDJSON}"
        )
    return ""


def _has_body(request: Request) -> bool:
    length = request.headers.get("content-length", "0")
    return length != "0" or "transfer-encoding" in request.headers


def decoded(data: bytes, kind: type[T], what: str = "the body") -> T:
    """What JSON holds; raises `InvalidInput` with the place of what is wrong."""
    try:
        return msgspec.json.decode(data, type=kind)
    except RecursionError:
        raise InvalidInput(f"{what} is nested too deep; make it flatter") from None
    except msgspec.ValidationError as error:
        raise InvalidInput(f"{what}: {error}") from None
    except _UNDECODABLE as error:
        raise InvalidInput(f"{what} is not JSON: {error}") from None


def lines(data: bytes, kind: type[T]) -> Iterator[tuple[int, T]]:
    """What the lines of NDJSON hold, numbered from 1. Empty ones count, but hold nothing."""
    for number, line in enumerate(data.split(b"\n"), start=1):
        if line.strip():
            yield number, decoded(line, kind, f"line {number}")


Document = dict[str, Any]
"""A JSON object, not looked into."""
