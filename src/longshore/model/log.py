"""Log entries, as a store keeps them and as commands show them.

An entry of kind TEXT or STEP holds UTF-8 text or a `Line`. A `Line` is a msgpack array, and no
UTF-8 text starts with the first byte of one, so a reader can tell them apart.
"""

from __future__ import annotations

from datetime import datetime

import msgspec
from msgspec import Struct

from longshore.model.job import JobState, LogKind
from longshore.model.log_archive import LogPart

STDOUT = "stdout"
STDERR = "stderr"
LOGGED = "log"
STEP = "step"
NOTE = "note"
"""Longshore's own notes in a job's log: which entries were not kept or got lost."""
ENGINE = "engine"
"""A container as its engine describes it when it has ended, as JSON. Commands do not print it."""


class Line(Struct, frozen=True, array_like=True):
    """A line that an attempt printed, or a record it logged; `said_at` is its machine's time."""

    text: str
    stream: str = ""
    level: str = ""
    logger: str = ""
    said_at: float = 0.0
    attempt: int = 0


class KeptEntry(Struct, frozen=True):
    """A log entry in a store; `at` is when the store wrote it, by the store's clock."""

    token: int
    seq: int
    kind: LogKind
    at: datetime
    data: bytes


class LogLine(Struct, frozen=True, kw_only=True):
    """One line of a job's log, as commands show it. `attempt` is None if it is not known."""

    token: int
    seq: int
    attempt: int | None
    at: datetime
    stream: str
    level: str = ""
    logger: str = ""
    text: str


class LogPage(Struct, frozen=True, kw_only=True):
    """Some of a job's log, in order. Ask for the next page with this page's `after`.

    `state` and `attempt` are the job's, read before its log. So if the job had ended and there is
    no `more`, the log is complete. `archived` are the parts in the file store that end after the
    place that was asked for. They come before `lines`.
    """

    lines: tuple[LogLine, ...]
    after: tuple[int, int]
    more: bool
    state: JobState
    attempt: int
    archived: tuple[LogPart, ...] = ()


class LogLimits(Struct, frozen=True, kw_only=True):
    """How much of an attempt's output its worker keeps, and whether it prints the output too."""

    line_bytes: int = 16 * 1024
    entries: int = 10_000
    bytes: int = 4 * 1024 * 1024
    echo: bool = True


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Line)


def as_text(data: bytes) -> str:
    """The bytes as UTF-8 text. Bytes that are no UTF-8 become escapes, like \\xff.

    To decode a million such bytes with "backslashreplace" takes a second. To encode them does not.
    """
    try:
        return data.decode()
    except UnicodeDecodeError:
        text = data.decode("utf-8", "surrogateescape")
        return text.encode("utf-8", "backslashreplace").decode().replace("\\udc", "\\x")


def pack_line(line: Line) -> bytes:
    """The data of a TEXT or STEP entry."""
    return _encoder.encode(line)


def unpack_line(data: bytes) -> Line:
    """The line in a TEXT or STEP entry. Data that is no line is text."""
    try:
        return _decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return Line(as_text(data))
