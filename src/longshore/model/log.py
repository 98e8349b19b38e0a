"""What attempts say, as it is kept and as it is shown.

An entry of kind TEXT holds UTF-8 text, or a `Line`: msgpack of an array, whose first byte no UTF-8
text can begin with. So one can always be told from the other.
"""

from __future__ import annotations

from datetime import datetime

import msgspec
from msgspec import Struct

from longshore.model.job import JobState, LogKind

STDOUT = "stdout"
STDERR = "stderr"
LOGGED = "log"
STEP = "step"
NOTE = "note"
"""Longshore's own words between a job's: what was not kept, what was lost."""


class Line(Struct, frozen=True, array_like=True):
    """One line an attempt printed, or one record it logged; `said_at` is by its machine's clock."""

    text: str
    stream: str = ""
    level: str = ""
    logger: str = ""
    said_at: float = 0.0
    attempt: int = 0


class KeptEntry(Struct, frozen=True):
    """A log entry as a store keeps it; `at` is when it was written, by the store's clock."""

    token: int
    seq: int
    kind: LogKind
    at: datetime
    data: bytes


class LogLine(Struct, frozen=True, kw_only=True):
    """One line of a job's log, as it is shown. `attempt` is None where it is not known."""

    token: int
    seq: int
    attempt: int | None
    at: datetime
    stream: str
    level: str = ""
    logger: str = ""
    text: str


class LogPage(Struct, frozen=True, kw_only=True):
    """Some of a job's log, in order. The next page is the one `after` this one's end.

    `state` and `attempt` are the job's, read before its log was: a page of a job that had ended,
    without `more` after it, is the last for good.
    """

    lines: tuple[LogLine, ...]
    after: tuple[int, int]
    more: bool
    state: JobState
    attempt: int


class LogLimits(Struct, frozen=True, kw_only=True):
    """How much of what an attempt says is kept, and whether its worker prints it too."""

    line_bytes: int = 16 * 1024
    entries: int = 10_000
    bytes: int = 4 * 1024 * 1024
    echo: bool = True


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Line)


def as_text(data: bytes) -> str:
    """What a worker sent as UTF-8; bytes that are none show as escapes, like \\xff.

    To decode with "backslashreplace" takes a second for a million such bytes. To encode does not.
    """
    try:
        return data.decode()
    except UnicodeDecodeError:
        text = data.decode("utf-8", "surrogateescape")
        return text.encode("utf-8", "backslashreplace").decode().replace("\\udc", "\\x")


def pack_line(line: Line) -> bytes:
    """The data of a TEXT entry."""
    return _encoder.encode(line)


def unpack_line(data: bytes) -> Line:
    """What a TEXT entry says; whatever is no line is text."""
    try:
        return _decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return Line(as_text(data))
