"""Files that describe jobs: their bytes, whether from a disk or from standard input."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

from longshore.errors import InvalidInput, TooLarge

MAX_FILE_BYTES: Final = 16 * 1024 * 1024
"""The largest file that describes a group."""


def file_name(file: str) -> str:
    """What messages call a file; `-` is standard input."""
    return "standard input" if file == "-" else file


def file_bytes(file: str) -> bytes:
    """What a file holds; raises if that cannot be read, or is too large."""
    try:
        with sys.stdin.buffer if file == "-" else Path(file).open("rb") as opened:
            data = opened.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise InvalidInput(f"cannot read {file}: {error.strerror}") from None
    if len(data) > MAX_FILE_BYTES:
        raise TooLarge(
            f"{file_name(file)} has more than the {MAX_FILE_BYTES:,} bytes that are allowed; "
            "submit large groups from Python, with app.group(…)"
        )
    return data
