"""Text that came from a job, made safe to send and to keep."""

from __future__ import annotations

_CUT = "\n… cut …\n"


def bounded(text: str, limit_bytes: int) -> str:
    """The beginning of a text, in valid UTF-8 and within a number of bytes."""
    data = str(text).encode("utf-8", "backslashreplace")
    if len(data) <= limit_bytes:
        return data.decode()
    return data[: limit_bytes - len("…".encode())].decode("utf-8", "ignore") + "…"


def bounded_middle(text: str, limit_bytes: int) -> str:
    """The text, without its middle if it is too long; the end gets the most room."""
    data = text.encode("utf-8", "backslashreplace")
    if len(data) <= limit_bytes:
        return data.decode()
    room = limit_bytes - len(_CUT.encode())
    head, tail = data[: room // 4], data[-(room - room // 4) :]
    return head.decode("utf-8", "ignore") + _CUT + tail.decode("utf-8", "ignore")
