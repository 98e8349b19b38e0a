"""What a process logs on standard error: lines for people, or JSON for programs."""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from longshore.core.text import visible_entry
from longshore.run.ready import note

ABOUT: Final = ("job", "attempt", "group", "worker", "trace")
"""What an entry may be about, as a `LogRecord` has it from `extra`: ids in text."""


class TextEntries(logging.Formatter):
    """Formats entries so that text from outside cannot forge a line of the log."""

    def __init__(self) -> None:
        super().__init__(
            "%(asctime)s.%(msecs)03dZ %(levelname)s %(name)s: %(message)s", "%Y-%m-%dT%H:%M:%S"
        )
        self.converter = time.gmtime

    def formatMessage(self, record: logging.LogRecord) -> str:
        record.message = visible_entry(record.message)
        return super().formatMessage(record)

    def formatException(self, ei: Any) -> str:
        return visible_entry(super().formatException(ei))


class JsonEntries(logging.Formatter):
    """Formats each entry as a JSON object on a line of its own."""

    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, UTC)
        entry: dict[str, object] = {
            "time": at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            "process": os.getpid(),
        }
        about = {name: getattr(record, name, None) for name in ABOUT}
        entry |= {name: str(value) for name, value in about.items() if value}
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        # Lone surrogates, of names that are not UTF-8, are no text: JSON has them escaped.
        text = msgspec.json.encode(_encodable(entry)).decode()
        return text.replace("\x7f", "\\u007f").replace("\x9b", "\\u009b")


def _encodable(entry: dict[str, object]) -> dict[str, object]:
    return {
        name: value.encode("utf-8", "backslashreplace").decode()
        if isinstance(value, str)
        else value
        for name, value in entry.items()
    }


def sayer(form: str) -> Callable[[str], None]:
    """How a process says that it is ready: in a line, or as an entry of a log in JSON."""
    return logging.getLogger("longshore").info if form == "json" else note


def log_to_stderr(level: str, form: str = "text") -> None:
    """Sends the log to standard error, a line for each entry, with times in UTC."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonEntries() if form == "json" else TextEntries())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
