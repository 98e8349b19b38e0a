"""Values as they are stored: msgpack of builtins, so that a payload can never run code.

What a value may hold: None, bool, int (64 bits), float (no NaN or infinity), str, bytes, lists and
tuples, maps with string keys, types that msgspec turns into these (dataclasses, Structs, datetimes,
UUIDs, enums, sets, decimals), and pydantic models. Any other value raises an error that names its
place.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import isfinite
from typing import Any

import msgspec

from longshore.errors import NotSerialisable, TooLarge
from longshore.payload.pydantic_values import to_builtins

MAX_VALUE_BYTES = 1024 * 1024
MAX_DEPTH = 100

_encoder = msgspec.msgpack.Encoder(order=None, enc_hook=to_builtins)
NONE = _encoder.encode(None)
"""The bytes of None, the result of most jobs."""
_decoder = msgspec.msgpack.Decoder()
Hook = Callable[[Any], Any]
_ALWAYS_SOUND = frozenset({type(None), bool, str, bytes})
_INT64 = range(-(2**63), 2**63)


def pack(value: Any, what: str, limit: int = MAX_VALUE_BYTES, hook: Hook | None = None) -> bytes:
    """The bytes of a value; `what` names it in errors, like "the arguments of job 'fetch'".

    A hook says what stands for a value of an unknown type.
    """
    encoder = _encoder if hook is None else msgspec.msgpack.Encoder(order=None, enc_hook=hook)
    try:
        data = encoder.encode(value)
    except RecursionError:
        raise NotSerialisable(
            f"{what} cannot be stored: it is nested too deep, or holds itself; make it flatter"
        ) from None
    except OverflowError:
        raise NotSerialisable(
            f"{what} cannot be stored: it holds an integer past 64 bits; pass it as text"
        ) from None
    except (TypeError, ValueError) as error:
        raise NotSerialisable(
            f"{what} cannot be stored: {error}; use builtin types (numbers, text, bytes, lists, "
            "maps with text keys), dataclasses, msgspec Structs, pydantic models, datetimes, "
            "dates, times, timedeltas, UUIDs, enums, sets or Decimals"
        ) from None
    # The stored form is checked: in it dataclasses and the like are builtins too.
    if type(value) not in _ALWAYS_SOUND:
        check(_decoder.decode(data), what)
    return within(data, what, limit)


def pack_scalars(given: Mapping[str, Any]) -> bytes | None:
    """The bytes of arguments of which each is a scalar; None if `pack` must say what is wrong."""
    for value in given.values():
        if type(value) not in _ALWAYS_SOUND and not _is_sound_number(value):
            return None
    try:
        data = _encoder.encode(given)
    except ValueError:
        return None
    return data if len(data) <= MAX_VALUE_BYTES else None


def _is_sound_number(value: object) -> bool:
    return value in _INT64 if type(value) is int else type(value) is float and isfinite(value)


def pack_arguments(given: Mapping[str, Any], kind: str, hook: Hook | None = None) -> bytes:
    """The bytes of a job's arguments; an error names the one that cannot be stored."""
    try:
        return pack(given, f"the arguments of job '{kind}'", hook=hook)
    except NotSerialisable:
        for name, value in given.items():
            pack(value, f"job '{kind}': argument '{name}'", hook=hook)
        raise


def within(data: bytes, what: str, limit: int = MAX_VALUE_BYTES) -> bytes:
    """Returns the bytes, or raises if they are past the limit."""
    if len(data) > limit:
        raise TooLarge(
            f"{what}: {len(data):,} bytes, more than max_value_bytes ({limit:,}); keep large data "
            "in a file or an object store and pass its name"
        )
    return data


def check_packed(data: bytes, what: str) -> None:
    """Raises `NotSerialisable` unless these are the bytes of a value."""
    try:
        _decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise NotSerialisable(f"{what} is not msgpack: {error}") from None


def unpack(data: bytes) -> Any:
    """The builtins a value was stored as."""
    return _decoder.decode(data)


def are_same(one: bytes | None, other: bytes | None) -> bool:
    """Whether two stored values are the same, in whatever order their maps are written."""
    if one == other or one is None or other is None:
        return one == other
    return _in_order(one) == _in_order(other)


def _in_order(data: bytes) -> bytes:
    return msgspec.msgpack.encode(unpack(data), order="deterministic")


def check(value: Any, where: str, depth: int = 0) -> None:
    """Raises if a value holds anything that msgpack takes but other languages would not."""
    if depth > MAX_DEPTH:
        raise NotSerialisable(
            f"{where[:80]}… is nested more than {MAX_DEPTH} deep; make it flatter"
        )
    if isinstance(value, float):
        if not isfinite(value):
            raise NotSerialisable(f"{where} is {value}: NaN and infinity cannot be stored")
    elif isinstance(value, int):
        if not -(2**63) <= value < 2**63:
            raise NotSerialisable(f"{where} is an integer past 64 bits; pass it as text")
    elif isinstance(value, Mapping):
        for key, item in value.items():
            if not isinstance(key, str):
                raise NotSerialisable(
                    f"{where} has the key {key!r}, which is {type(key).__name__}, not text"
                )
            if type(item) not in _ALWAYS_SOUND:
                check(item, f"{where}[{key!r}]", depth + 1)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            if type(item) not in _ALWAYS_SOUND:
                check(item, f"{where}[{index}]", depth + 1)
