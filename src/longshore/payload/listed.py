"""The values that actors are listed by: short, and as JSON, so that text and numbers differ."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from longshore.core.actor_limits import MAX_LISTED_CHARS
from longshore.errors import InvalidInput
from longshore.payload import values

_SCALARS: Final = (str, int, bool, type(None))


def listed_value(what: str, value: Any) -> str:
    """A value as the store keeps it; raises `InvalidInput` if nothing can be listed by it."""
    plain = values.unpack(values.pack(value, what))
    if not isinstance(plain, _SCALARS):
        raise InvalidInput(
            f"{what} is {value!r:.100}; actors are listed by text, whole numbers, true, false and "
            "None"
        )
    text = msgspec.json.encode(plain).decode()
    if len(text) > MAX_LISTED_CHARS:
        raise InvalidInput(
            f"{what} has {len(text):,} characters as JSON; actors are listed by at most "
            f"{MAX_LISTED_CHARS}"
        )
    return text


def listed_values(type: str, state: bytes, fields: Iterable[str]) -> dict[str, str]:
    """The values of these fields of a state, as far as it has them."""
    raw = values.unpack(state)
    found = raw if isinstance(raw, Mapping) else {}
    return {
        name: listed_value(f"the field '{name}' of actor '{type}'", found[name])
        for name in fields
        if name in found
    }
