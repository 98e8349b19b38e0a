"""Text of somebody else's, made safe to show: it commands no terminal, and forges no line of a log.

That is: control characters (C0, DEL, C1), the line and paragraph separators, and what turns the
direction of writing.
"""

from __future__ import annotations

import re
from typing import Final

_CONTROL: Final = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]"
)
_INDENT: Final = "    "


def visible(text: str) -> str:
    """The text with control characters, other than tabs and line ends, written out."""
    return _CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", text)


def visible_json(document: str) -> str:
    """A JSON document with control characters, which only texts in it can have, as JSON escapes."""
    return _CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", document)


def visible_entry(text: str) -> str:
    """The text as one entry of a log: further lines are indented, as no entry is."""
    return visible(text).replace("\n", f"\n{_INDENT}")
