"""Bytes of blobs on their way: answers with ranges, and bodies that are written while they come."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Final

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from longshore.errors import InvalidInput
from longshore.files.blobs import Upload
from longshore.files.packs import PACKED_BYTES, frame
from longshore.gateway.bodies import OCTETS
from longshore.gateway.byte_ranges import asked_range
from longshore.gateway.file_keeping import FileKeeping
from longshore.gateway.problems import BodyTooSlow

READ_TOGETHER: Final = 50
"""So many small blobs are read at once."""
WRITE_BYTES: Final = 1024 * 1024
"""So many bytes of a body are written at once."""


async def download(
    request: Request, keeping: FileKeeping, sha256: bytes, generation: int, size: int
) -> Response:
    """The answer with a blob, or with the part that the request asks for."""
    tag = f'"{sha256.hex()}"'
    headers = {
        "ETag": tag,
        "Accept-Ranges": "bytes",
        "Cache-Control": "private, max-age=31536000, immutable",
        "Content-Disposition": "attachment",
    }
    if tag in [one.strip() for one in request.headers.get("if-none-match", "").split(",")]:
        return Response(status_code=304, headers=headers)
    part = None
    if request.headers.get("if-range", tag) == tag:
        part = asked_range(request.headers.get("range", ""), size)
    start, stop = part or (0, size)
    headers["Content-Length"] = str(stop - start)
    if part:
        headers["Content-Range"] = f"bytes {start}-{stop - 1}/{size}"
    status = 206 if part else 200
    if request.method == "HEAD":
        return Response(status_code=status, headers=headers, media_type=OCTETS)
    chunks = keeping.chunks(keeping.blobs.read(sha256, generation, size, start, stop))
    first = await anext(chunks, b"")  # so that what is not there is an error, not a broken answer
    return StreamingResponse(_all(first, chunks), status, headers, OCTETS)


async def _all(first: bytes, rest: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    yield first
    async for chunk in rest:
        yield chunk


async def send_pack(
    keeping: FileKeeping, blobs: Sequence[tuple[bytes, int]]
) -> AsyncIterator[bytes]:
    """The bytes of a pack with these blobs, each by its hash and its generation."""
    for at in range(0, len(blobs), READ_TOGETHER):
        yield await keeping.in_thread(_packed, keeping, blobs[at : at + READ_TOGETHER])


def _packed(keeping: FileKeeping, blobs: Sequence[tuple[bytes, int]]) -> bytes:
    frames = []
    for sha256, generation in blobs:
        size = keeping.blobs.size(sha256, generation)
        if size is None or size > PACKED_BYTES:
            raise InvalidInput(f"the blob {sha256.hex()} is too large for a pack, or not there")
        frames.append(frame(sha256, keeping.blobs.whole(sha256, generation, size)))
    return b"".join(frames)


async def take_body(request: Request, keeping: FileKeeping, upload: Upload, wait_s: float) -> None:
    """Writes the body of a request to an upload. What came before a cut is written too."""
    held: list[bytes] = []
    count = 0
    try:
        async for chunk in _chunks(request, wait_s):
            held.append(chunk)
            count += len(chunk)
            if count >= WRITE_BYTES:
                some, held, count = held, [], 0
                await keeping.in_thread(upload.write, b"".join(some))
    finally:
        if held:
            await keeping.in_thread(upload.write, b"".join(held))


async def _chunks(request: Request, wait_s: float) -> AsyncIterator[bytes]:
    stream = request.stream()
    while True:
        try:
            async with asyncio.timeout(wait_s):
                chunk = await anext(stream, None)
        except TimeoutError:
            words = f"no more bytes of the body came within body_s ({wait_s:g} s); go on with it"
            raise BodyTooSlow(words, {"Connection": "close"}) from None
        if chunk is None:
            return
        if chunk:
            yield chunk
