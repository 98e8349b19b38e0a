"""Which bytes a request asks for: `Range` and `Content-Range` (RFC 9110, section 14)."""

from __future__ import annotations

import re
from typing import Final

from starlette.datastructures import Headers

from longshore.errors import InvalidInput
from longshore.files.documents import UPLOAD_OFFSET
from longshore.gateway.problems import RangeNotSatisfiable

_RANGE: Final = re.compile(r"bytes=(\d{0,18})-(\d{0,18})")
_CONTENT_RANGE: Final = re.compile(r"bytes (\d{1,18})-(\d{1,18})/(\d{1,18})")


def asked_range(header: str, size: int) -> tuple[int, int] | None:
    """From where to where the bytes are that `Range` asks for; None if it asks for all.

    A header that we do not understand, or that asks for several parts, asks for all.
    """
    found = _RANGE.fullmatch(header.strip())
    if not found or found[0] == "bytes=-":
        return None
    first, last = found[1], found[2]
    if not first:
        start, stop = max(size - int(last), 0), size
    else:
        start, stop = int(first), min(int(last) + 1, size) if last else size
    if first and last and int(last) < int(first):
        return None
    if start >= size or start >= stop:
        raise RangeNotSatisfiable(
            f"there are {size:,} bytes, and the range {header!r} is behind them",
            {"Content-Range": f"bytes */{size}"},
        )
    return start, stop


def given_start(headers: Headers, size: int) -> int:
    """At which byte the body of an upload begins: by `Upload-Offset`, or by `Content-Range`.

    The second cannot say that nothing is left to send.
    """
    told = headers.get(UPLOAD_OFFSET, "").strip()
    if told:
        if not (told.isascii() and told.isdigit() and len(told) < 19 and int(told) <= size):
            raise InvalidInput(f"{UPLOAD_OFFSET} is {told[:80]!r}; it must be 0 to {size:,}")
        return int(told)
    header = headers.get("content-range", "").strip()
    found = _CONTENT_RANGE.fullmatch(header)
    if not header:
        return 0
    if not found:
        raise InvalidInput(f"Content-Range is {header!r}; it must be like `bytes 100-199/200`")
    if int(found[3]) != size:
        raise InvalidInput(f"Content-Range is {header!r}, and the blob has {size:,} bytes")
    return int(found[1])
