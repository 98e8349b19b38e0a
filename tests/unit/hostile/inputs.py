"""What a stranger might send: values of every odd sort, and good documents with something wrong."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec
from hypothesis import strategies as st

from longshore.errors import LongshoreError

DEEP = 5_000
ODD_TEXTS = (
    "",
    "\x00",
    "a\x00b",
    "..",
    "../../etc/passwd",
    "\ud800",
    "²",
    "٣",
    "😀" * 50,
    "x" * 5_000,
    "${x}",
    "$result",
    "\u202e",
    "-1",
    "1e999",
)
ODD_NUMBERS = (-1, 0, 1, 2**31, 2**53, 2**63 - 1, 2**63, 2**64, -(2**63), 10**30, 0.5, -0.0, 1e308)

texts = st.sampled_from(ODD_TEXTS) | st.text(max_size=20)
numbers = st.sampled_from(ODD_NUMBERS) | st.integers() | st.floats(allow_nan=False)
leaves = st.none() | st.booleans() | numbers | texts
values = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=8,
)


def refusal(call: Callable[[], object], *errors: type[LongshoreError]) -> str | None:
    """What the error says with which it is refused; None if it is taken. Others are raised."""
    try:
        call()
    except errors as error:
        return str(error)
    return None


Path = tuple[str | int, ...]


def paths(value: Any, path: Path = ()) -> Iterator[Path]:
    """The way to each part of a document."""
    yield path
    if isinstance(value, dict):
        for key, one in value.items():
            yield from paths(one, (*path, key))
    elif isinstance(value, list):
        for place, one in enumerate(value):
            yield from paths(one, (*path, place))


def replaced(value: Any, path: Path, by: Any) -> Any:
    """The document with another value in this place."""
    if not path:
        return by
    first, *rest = path
    if isinstance(value, dict):
        return {k: replaced(v, tuple(rest), by) if k == first else v for k, v in value.items()}
    return [replaced(v, tuple(rest), by) if n == first else v for n, v in enumerate(value)]


def without(value: Any, path: Path) -> Any:
    """The document without what is in this place."""
    *way, last = path
    parent = value
    for step in way:
        parent = parent[step]
    if isinstance(parent, dict):
        return replaced(value, tuple(way), {k: v for k, v in parent.items() if k != last})
    return replaced(value, tuple(way), [v for n, v in enumerate(parent) if n != last])


@st.composite
def spoilt(draw: st.DrawFn, documents: Sequence[Any]) -> Any:
    """A good document, in which up to three places hold something else, or nothing."""
    value = draw(st.sampled_from(documents))
    for _ in range(draw(st.integers(1, 3))):
        path: Path = draw(st.sampled_from(list(paths(value))))
        is_removed: bool = draw(st.booleans())
        take = path and is_removed
        value = without(value, path) if take else replaced(value, path, draw(values))
    return value


@st.composite
def broken_bytes(draw: st.DrawFn, good: Sequence[bytes]) -> bytes:
    """Good bytes of which some are others, are missing, or are there twice."""
    data = bytearray(draw(st.sampled_from(good)))
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(data)))
        how = draw(st.sampled_from(("cut", "change", "add", "repeat")))
        if how == "cut":
            del data[at : at + draw(st.integers(1, 8))]
        elif how == "change":
            data[at : at + 1] = draw(st.binary(min_size=1, max_size=3))
        elif how == "add":
            data[at:at] = draw(st.binary(max_size=8))
        else:
            data[at:at] = data[at : at + 16]
    return bytes(data)


def as_json(value: Any) -> bytes:
    """JSON, even of what no JSON should hold."""
    return json.dumps(value).encode()


def deep_json(around: bytes = b"%s") -> bytes:
    """JSON that is nested so deep that a decoder which recurses gives up."""
    return around.replace(b"%s", b"[" * DEEP + b"]" * DEEP)


def deep_msgpack() -> bytes:
    """The same of msgpack."""
    return b"\x91" * DEEP + b"\xc0"


def packable(value: Any) -> bytes:
    """A value as msgpack; a number that is too large as the text of it, a lone half as it is."""
    return msgspec.msgpack.encode(_packable(value))


def _packable(value: Any) -> Any:
    match value:
        case dict():
            return {_packable(k): _packable(v) for k, v in value.items()}
        case list() | tuple():
            return [_packable(one) for one in value]
        case int() if not -(2**63) <= value < 2**64:
            return str(value)
        case str():
            return value.encode("utf-8", "replace").decode()
        case _:
            return value
