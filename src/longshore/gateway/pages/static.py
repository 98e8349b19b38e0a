"""The files of the dashboard: scripts, the style, the icon. They lie in the package.

The address of a file has the hash of what all of them hold, so browsers may keep it for ever: other
contents have another address. Modules import each other by relative names, below the same hash.
"""

from __future__ import annotations

from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import Final

from starlette.responses import Response

from longshore.gateway.operation import Call, Operation
from longshore.gateway.problems import NoRoute

MOST_BYTES: Final = 200_000
"""How many bytes all files together may have."""
_TYPES: Final = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
_KEEP: Final = "public, max-age=31536000, immutable"


@cache
def static_files() -> dict[str, bytes]:
    """All files, by their names."""
    folder = files(__package__) / "static"
    return {one.name: one.read_bytes() for one in folder.iterdir() if "." in one.name}


@cache
def _hash() -> str:
    named = sorted(static_files().items())
    return sha256(b"".join(name.encode() + data for name, data in named)).hexdigest()[:16]


def hashed(name: str) -> str:
    """Where a file is, seen from the root."""
    assert name in static_files(), f"there is no file {name}"
    return f"static/{_hash()}/{name}"


async def _show(call: Call) -> Response:
    """A file; also at the address that it had before, so that an open page can go on."""
    name = call.name("name")
    data = static_files().get(name)
    if data is None:
        raise NoRoute(f"there is no file {name!r}")
    tag = f'"{_hash()}"'
    is_current = call.name("hash") == _hash()
    headers = {"ETag": tag, "Cache-Control": _KEEP if is_current else "no-cache"}
    if tag in call.request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    return Response(data, headers=headers, media_type=_TYPES[name[name.rindex(".") :]])


STATIC: Final = Operation(
    method="GET",
    path="/static/{hash}/{name}",
    id="show_static",
    summary="Show a file of the dashboard.",
    needs=None,
    do=_show,
    answers={200: str},
)
