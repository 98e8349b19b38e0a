"""The client of gateways' files: what workers' hosts and the command line move bytes with.

Every request may be repeated. One that is cut off goes on where it stopped: a download by `Range`,
an upload by the offset that the gateway tells. Who calls sets the time for all of it; until then a
gateway that does not answer is asked again, or the next one is.
"""

from __future__ import annotations

import asyncio
import random
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from math import inf
from types import TracebackType
from typing import Any, Final, Self, TypeVar
from urllib.parse import quote, urlencode
from uuid import UUID

import aiohttp
import msgspec
from msgspec import Struct

from longshore.errors import (
    ConfigError,
    Damaged,
    DiskFull,
    LongshoreError,
    ProtocolError,
    Unavailable,
    from_code,
)
from longshore.files import documents as d
from longshore.files.pace import Pace
from longshore.files.packs import Unpacking, frame
from longshore.files.streams import Sink, Source

T = TypeVar("T")

OCTETS: Final = "application/octet-stream"
PAUSE_S: Final = 0.1
LONGEST_PAUSE_S: Final = 5.0
STALL_S: Final = 30.0
"""A connection over which nothing comes for so long is given up."""
MAX_ANSWER_BYTES: Final = 64 * 1024 * 1024
SMALL_BYTES: Final = 256 * 1024
"""So few bytes are sent at once."""
_PROBLEM: Final = "application/problem+json"
_BUFFER_BYTES: Final = 1024 * 1024
_CUT: Final = (aiohttp.ClientError, TimeoutError, OSError, asyncio.IncompleteReadError)


class _Problem(Struct, frozen=True):
    """What a problem document says that matters here."""

    code: str
    detail: str


class Terms(Struct, frozen=True):
    """How a client moves bytes."""

    slots: int = 8
    """How many at once."""
    bytes_per_s: int = 0
    """How many bytes a second at most, both ways together; 0 is any number."""
    patience_s: float = inf
    """How long no request may succeed; then the last error is raised."""
    stall_s: float = STALL_S


class UploadOf(Struct, frozen=True):
    """For which manifest a blob is stored; by an attempt, if there is no `upload`."""

    manifest: str
    size: int
    upload: UUID | None


_USUAL: Final = Terms()


class FileClient:
    """Asks gateways. `authorization` is the header's value; empty is none."""

    def __init__(self, urls: Sequence[str], authorization: str = "", terms: Terms = _USUAL) -> None:
        if not urls:
            raise ConfigError(
                "no gateway is named from which files come; set files_url, like "
                "http://127.0.0.1:7700"
            )
        self._urls = [url.rstrip("/") for url in urls]
        self._headers = {"Authorization": authorization} if authorization else {}
        self._terms = terms
        self._pace = Pace(terms.bytes_per_s)
        self._session: aiohttp.ClientSession | None = None
        self._heard_at = -inf
        self._received = [0]
        self.last_error = ""
        """Why the last request that is tried again failed."""

    async def __aenter__(self) -> Self:
        self.open()
        return self

    def open(self) -> None:
        """Makes ready to ask, on the event loop that runs."""
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=self._terms.slots + 2),
            timeout=aiohttp.ClientTimeout(
                total=None, sock_connect=10, sock_read=self._terms.stall_s
            ),
            read_bufsize=_BUFFER_BYTES,
            trust_env=False,
            auto_decompress=True,
        )

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._session is not None
        await self._session.close()

    def with_ticket(self, ticket: str) -> FileClient:
        """The same connections, for an attempt."""
        if self._session is None:
            self.open()
        made = FileClient(self._urls, f"{d.TICKET_SCHEME} {ticket}", self._terms)
        made._session = self._session
        made._pace, made._received = self._pace, self._received
        made._urls = self._urls
        return made

    @property
    def received_bytes(self) -> int:
        """How many bytes of blobs came, for all attempts together."""
        return self._received[0]

    # documents

    async def pin(self, wanted: d.PinRequest) -> d.PinAnswer:
        """What is to be uploaded of a manifest."""
        return await self._post("/dispatcher/blobs/pin", wanted, d.PinAnswer)

    async def seal(self, wanted: d.SealRequest) -> d.Sealed:
        """Says that all files of a manifest are stored."""
        return await self._post("/dispatcher/blobs/seal", wanted, d.Sealed)

    async def publish(self, fileset: str, wanted: d.PublishRequest) -> d.ShownVersion:
        """Makes a version of an upload."""
        return await self._post(_fileset(fileset), wanted, d.ShownVersion)

    async def input(self, wanted: d.InputRequest) -> d.ShownVersion:
        """The version that an attempt reads."""
        return await self._post("/dispatcher/inputs/", wanted, d.ShownVersion)

    async def save_checkpoint(self, wanted: d.CheckpointRequest) -> d.ShownCheckpoint:
        """Makes a sealed manifest the checkpoint of the attempt's job."""
        return await self._post("/dispatcher/checkpoints/", wanted, d.ShownCheckpoint)

    async def checkpoint(self) -> d.ShownCheckpoint | None:
        """What the attempt begins with."""
        path = "/dispatcher/checkpoints/"
        return (await self._get(path, d.CheckpointAnswer, {})).checkpoint

    async def filesets(self, after: str = "", limit: int = 100) -> d.FilesetList:
        """Filesets by name."""
        asked = {"limit": limit, **({"after": after} if after else {})}
        return await self._get("/dispatcher/filesets/", d.FilesetList, asked)

    async def versions(
        self, fileset: str, before: int | None = None, limit: int = 100
    ) -> d.VersionList:
        """Versions of a fileset, newest first."""
        asked = {"limit": limit, **({} if before is None else {"before": before})}
        return await self._get(_fileset(fileset), d.VersionList, asked)

    async def version(
        self, fileset: str, version: int | None = None, after: int = 0, limit: int = 1_000
    ) -> d.VersionFiles:
        """A version, or the newest, and some of its files."""
        path = f"{_fileset(fileset)}/{version or 'latest'}"
        return await self._get(path, d.VersionFiles, {"after": after, "limit": limit})

    async def remove(self, fileset: str, version: int) -> d.Removed:
        """Removes a version."""
        return await self._document("DELETE", f"{_fileset(fileset)}/{version}", d.Removed)

    async def collect(self, *, dry_run: bool) -> d.Unused:
        """Removes what nothing needs, or says how much that is."""
        path = f"/dispatcher/blobs/gc?dry_run={'true' if dry_run else 'false'}"
        return await self._document("POST", path, d.Unused)

    # bytes

    async def fetch(self, sha256: bytes, sink: Sink) -> None:
        """Downloads a blob into a sink, from where it stands on."""
        try:
            await self._until_done(lambda: self._fetch_some(sha256, sink))
        except Damaged:
            # What an earlier download left may be wrong, or a byte broke on the way. The sink is
            # empty now: what is wrong again is wrong at the gateway.
            await self._until_done(lambda: self._fetch_some(sha256, sink))

    async def store(self, blob: d.NeededBlob, source: Source, of: UploadOf) -> None:
        """Uploads a blob, from as far as the gateway has it on."""
        at = 0
        has_failed = False

        async def once() -> None:
            nonlocal at, has_failed
            if has_failed:
                at = await self._offset(blob, of)
            has_failed = True
            await self._store_some(blob, source, at, of)

        await self._until_done(once)

    async def store_pack(self, blobs: Sequence[tuple[bytes, bytes]], of: UploadOf) -> None:
        """Uploads small blobs together: the hash and the bytes of each."""
        body = b"".join(frame(sha256, data) for sha256, data in blobs)
        await self._pace.take(len(body))
        path = f"/dispatcher/blobs/store?{urlencode(_told(of))}"
        await self._document(
            "POST", path, d.StoredPack, data=body, headers={"Content-Type": OCTETS}
        )

    async def fetch_pack(
        self, blobs: Sequence[bytes], keep: Callable[[bytes, bytes], None]
    ) -> None:
        """Downloads small blobs together; `keep` gets the hash and the bytes of each."""
        left = dict.fromkeys(blobs)

        async def once() -> None:
            wanted = msgspec.json.encode(d.PackRequest(tuple(one.hex() for one in left)))
            headers = {"Content-Type": "application/json"}
            unpacking = Unpacking()
            path = "/dispatcher/blobs/read"
            async with self._request("POST", path, headers=headers, data=wanted) as response:
                async for chunk in response.content.iter_any():
                    await self._pace.take(len(chunk))
                    self._received[0] += len(chunk)
                    for sha256 in await asyncio.to_thread(_kept, unpacking, chunk, keep):
                        left.pop(sha256, None)
            if left:
                raise Unavailable(f"{len(left)} blobs of a pack did not come")

        await self._until_done(once)

    async def _fetch_some(self, sha256: bytes, sink: Sink) -> None:
        headers = {"Range": f"bytes={sink.offset}-"} if sink.offset else {}
        path = f"/dispatcher/blobs/{sha256.hex()}"
        async with self._request("GET", path, headers=headers) as response:
            if sink.offset and response.status != 206:
                await sink.restart()
            try:
                async for chunk in response.content.iter_any():
                    await self._pace.take(len(chunk))
                    self._received[0] += len(chunk)
                    await sink.write(chunk)
            except _CUT:
                await sink.keep()
                raise
        await sink.finish()

    async def _store_some(self, blob: d.NeededBlob, source: Source, at: int, of: UploadOf) -> None:
        headers = {"Content-Type": OCTETS, "Content-Length": str(blob.size - at)}
        if at:
            headers[d.UPLOAD_OFFSET] = str(at)
        path = f"/dispatcher/blobs/{blob.sha256}?{_query(blob, of)}"
        left = blob.size - at
        data = (
            await self._small(source, at, left) if left <= SMALL_BYTES else self._paced(source, at)
        )
        async with self._request("PUT", path, headers=headers, data=data) as response:
            await response.read()

    async def _small(self, source: Source, at: int, size: int) -> bytes:
        await self._pace.take(size)
        return await source.small(at, size)

    async def _paced(self, source: Source, at: int) -> AsyncIterator[bytes]:
        async for chunk in source.chunks(at):
            await self._pace.take(len(chunk))
            yield chunk

    async def _offset(self, blob: d.NeededBlob, of: UploadOf) -> int:
        path = f"/dispatcher/blobs/{blob.sha256}/upload?{_query(blob, of)}"
        async with self._request("GET", path) as response:
            told = response.headers.get(d.UPLOAD_OFFSET, "")
            return int(told) if told.isdigit() and int(told) <= blob.size else 0

    # requests

    async def _get(self, path: str, kind: type[T], asked: dict[str, Any]) -> T:
        return await self._document("GET", path, kind, params=asked)

    async def _post(self, path: str, body: Struct, kind: type[T]) -> T:
        return await self._document(
            "POST",
            path,
            kind,
            data=msgspec.json.encode(body),
            headers={"Content-Type": "application/json"},
        )

    async def _document(self, method: str, path: str, kind: type[T], **more: Any) -> T:
        async def once() -> T:
            async with self._request(method, path, **more) as response:
                body = await _bounded(response)
            try:
                return msgspec.json.decode(body, type=kind)
            except msgspec.DecodeError as error:
                raise ProtocolError(
                    f"{self._urls[0]}{path} answers no {kind.__name__}: {error}"
                ) from None

        return await self._until_done(once)

    async def _until_done(self, once: Callable[[], Awaitable[T]]) -> T:
        """Repeats what may succeed later, until the caller's time is over."""
        pause_s = PAUSE_S
        self._heard_at = max(self._heard_at, asyncio.get_running_loop().time())
        while True:
            try:
                return await once()
            except DiskFull:
                raise
            except Unavailable as error:
                self._failed(error, str(error))
            except ssl.SSLCertVerificationError:
                raise
            except _CUT as error:
                words = f"{self._urls[0]} gives no answer: {str(error) or type(error).__name__}"
                self._failed(Unavailable(words), words)
            await asyncio.sleep(pause_s * random.uniform(0.5, 1.0))
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)

    def _failed(self, error: Unavailable, words: str) -> None:
        """Turns to the next gateway; raises the error if none has answered for too long."""
        self.last_error = words
        if asyncio.get_running_loop().time() - self._heard_at > self._terms.patience_s:
            raise error
        self._urls.append(self._urls.pop(0))

    @asynccontextmanager
    async def _request(
        self, method: str, path: str, *, headers: dict[str, str] | None = None, **more: Any
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        assert self._session is not None, "use it in `async with`"
        async with self._session.request(
            method,
            self._urls[0] + path,
            headers={**self._headers, **(headers or {})},
            allow_redirects=False,
            **more,
        ) as response:
            if response.status >= 300:
                raise await _refused(response)
            self._heard_at = asyncio.get_running_loop().time()
            yield response


async def _refused(response: aiohttp.ClientResponse) -> LongshoreError:
    """What a gateway refused, or something else that answers in its place."""
    body = await _bounded(response)
    words = f"{response.url.origin()} answers {response.status} {response.reason}"
    if response.content_type == _PROBLEM:
        try:
            problem = msgspec.json.decode(body, type=_Problem)
        except msgspec.DecodeError:
            return ProtocolError(words)
        if response.status in (408, 429):
            return Unavailable(problem.detail)
        return from_code(problem.code, problem.detail)
    if response.status >= 500 or response.status in (408, 429):
        return Unavailable(f"{words}; is a gateway running behind it?")
    return ProtocolError(f"{words}, as no gateway does; check the address")


async def _bounded(response: aiohttp.ClientResponse) -> bytes:
    body = bytearray()
    async for chunk in response.content.iter_any():
        body += chunk
        if len(body) > MAX_ANSWER_BYTES:
            raise ProtocolError("the answer is larger than any of a gateway")
    return bytes(body)


def _fileset(name: str) -> str:
    return f"/dispatcher/filesets/{quote(name, safe='')}"


def _kept(unpacking: Unpacking, chunk: bytes, keep: Callable[[bytes, bytes], None]) -> list[bytes]:
    """Keeps the blobs of a pack that are whole now; answers which."""
    found = []
    for sha256, data in unpacking.add(chunk):
        keep(sha256, data)
        found.append(sha256)
    return found


def _query(blob: d.NeededBlob, of: UploadOf) -> str:
    return urlencode({"generation": blob.generation, "size": blob.size, **_told(of)})


def _told(of: UploadOf) -> dict[str, str | int]:
    by: dict[str, str | int] = {"upload": str(of.upload)} if of.upload else {}
    return {"manifest": of.manifest, "manifest_size": of.size, **by}
