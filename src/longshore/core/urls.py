"""URLs of stores without their passwords, for errors, logs and screens."""

from __future__ import annotations

import re
from typing import Final

HIDDEN: Final = "***"

_FILE: Final = "sqlite:///"
_PARAMETER: Final = re.compile(r"((?:ssl)?password=)[^&]*", re.IGNORECASE)
_BEFORE_HOST: Final = re.compile(
    r"(?P<scheme>[a-z][a-z0-9+.-]*://|postgres(?:ql)?:/*)?.*@", re.IGNORECASE | re.DOTALL
)
_USER: Final = re.compile(r"[a-z][a-z0-9+.-]*://[\w.+%-]+@", re.IGNORECASE)


def redacted(url: str) -> str:
    """The URL with everything before the last @ hidden, unless that is just a user's name.

    It does not parse the URL: a password that its user did not encode may hold any character.
    """
    if url.startswith(_FILE):
        return url
    shown = _PARAMETER.sub(rf"\1{HIDDEN}", url)
    found = _BEFORE_HOST.match(shown)
    if found is None or _USER.fullmatch(found[0]):
        return shown
    return f"{found['scheme'] or ''}{HIDDEN}@{shown[found.end() :]}"
