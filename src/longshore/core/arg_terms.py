"""Whether a job was given the arguments that a search names."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final

import msgspec

from longshore.model.job import ArgTerm, JobError

_INTEGER: Final = re.compile(r"-?\d{1,20}")
_INT64: Final = range(-(1 << 63), 1 << 64)
_NOTHING: Final = object()


def has_args(args: bytes, terms: Iterable[ArgTerm]) -> bool:
    """Whether packed arguments have all these values. Arguments that are raw bytes have none."""
    try:
        given = msgspec.msgpack.decode(args)
    except msgspec.DecodeError:
        return False
    return all(_text(_at(given, term.path)) == term.value for term in terms)


def has_text(error: JobError | None, text: str) -> bool:
    """Whether a text occurs in what went wrong."""
    if error is None:
        return False
    return any(text in one for one in (error.message, error.type, error.traceback))


def packed_forms(term: ArgTerm) -> tuple[list[bytes], list[bytes]]:
    """What the bytes of matching arguments contain: each of the first, and one of the second.

    A database can look for these. They are no proof: `has_args` looks closely.
    """
    keys = [part for part in term.path.split(".") if not part.isdecimal()]
    texts: list[Any] = [term.value]
    if _INTEGER.fullmatch(term.value) and int(term.value) in _INT64:
        texts.append(int(term.value))
    elif term.value in ("true", "false", "null") or _is_float(term.value):
        return [_packed(key) for key in keys], []
    return [_packed(key) for key in keys], [_packed(text) for text in texts]


def _is_float(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _packed(value: object) -> bytes:
    return msgspec.msgpack.encode(value)


def _at(given: Any, path: str) -> Any:
    """The value at a path; `_NOTHING` if there is none."""
    found = given
    for part in path.split("."):
        if isinstance(found, dict) and part in found:
            found = found[part]
        elif isinstance(found, list) and part.isdecimal() and int(part) < len(found):
            found = found[int(part)]
        else:
            return _NOTHING
    return found


def _text(value: Any) -> str | None:
    if isinstance(value, str):
        return value
    if value is None or isinstance(value, bool | int | float):
        return msgspec.json.encode(value).decode()
    return None
