"""Makes text from outside safe to show: it cannot command a terminal, or forge a line of a log.

It escapes control characters (C0, DEL, C1), the line and paragraph separators, and the characters
that change the direction of writing.
"""

from __future__ import annotations

import re
from typing import Final

_CONTROL: Final = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]"
)
_INDENT: Final = "    "
_UNITS: Final = ("B", "kB", "MB", "GB", "TB", "PB")


def visible(text: str) -> str:
    """The text with control characters escaped, except tabs and line ends."""
    return _CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", text)


def visible_json(document: str) -> str:
    """A JSON document with the control characters of its strings as JSON escapes."""
    return _CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", document)


def visible_entry(text: str) -> str:
    """The text as one log entry. It indents further lines, so that none looks like an entry."""
    return visible(text).replace("\n", f"\n{_INDENT}")


def size_words(count: int) -> str:
    """A number of bytes, for people: 1.2 MB."""
    size = float(count)
    for unit in _UNITS[:-1]:
        if size < 999.95:
            return f"{count} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} {_UNITS[-1]}"
