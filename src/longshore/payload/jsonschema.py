"""Turns the JSON schemas of parameters, as workers advertise them, into types to check values by.

Only types count. Bounds, patterns and the like let any value pass: the worker that runs the job
checks again.
"""

from __future__ import annotations

from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Final, Literal, Union
from uuid import UUID

import msgspec

MAX_SCHEMA_BYTES: Final = 1024
"""Workers do not advertise a larger schema, and dispatchers ignore it."""

_PLAIN: Final[dict[str, Any]] = {
    "integer": int,
    "number": float,
    "boolean": bool,
    "null": None,
}
_FORMATS: Final[dict[str, Any]] = {
    "date-time": datetime,
    "date": date,
    "time": time,
    "duration": timedelta,
    "uuid": UUID,
    "decimal": Decimal,
}


def type_of(schema: str) -> Any:
    """The type that a schema describes, as far as it is understood; `Any` where it is not."""
    if not schema or len(schema) > MAX_SCHEMA_BYTES:
        return Any
    try:
        found = _type(msgspec.json.decode(schema))
        msgspec.msgpack.Decoder(found)
    except Exception:  # a worker may send anything, and msgspec may not know the type it makes
        return Any
    return found


def _type(schema: Any) -> Any:
    if not isinstance(schema, dict):
        return Any
    if "enum" in schema:
        return Literal.__getitem__(tuple(schema["enum"]))
    if "anyOf" in schema:
        options = [_type(option) for option in schema["anyOf"]]
        return Any if Any in options else Union[tuple(options)]  # noqa: UP007
    kind = schema.get("type")
    if kind == "string":
        return _text(schema)
    if kind == "array":
        return list[_type(schema.get("items"))]  # type: ignore[misc]
    if kind == "object":
        return _object(schema)
    return _PLAIN.get(kind, Any) if isinstance(kind, str) else Any


def _text(schema: dict[str, Any]) -> Any:
    if schema.get("contentEncoding") == "base64":
        return bytes
    return _FORMATS.get(schema.get("format", ""), str)


def _object(schema: dict[str, Any]) -> Any:
    """A map of any keys, or one with named keys, required or not."""
    if "properties" not in schema:
        return dict[Any, _type(schema.get("additionalProperties"))]  # type: ignore[misc]
    required = schema.get("required", ())
    properties = {name: (_type(of), name in required) for name, of in schema["properties"].items()}
    return record(properties)


def record(fields: dict[str, tuple[Any, bool]], *, closed: bool = False) -> type[msgspec.Struct]:
    """A type for maps with these keys, of these types, required or not; no others if `closed`."""
    names = {f"field{place}": name for place, name in enumerate(fields)}
    return msgspec.defstruct(
        "Map",
        [
            (field, fields[name][0]) if fields[name][1] else (field, fields[name][0], None)
            for field, name in names.items()
        ],
        rename=names,
        kw_only=True,
        forbid_unknown_fields=closed,
        gc=False,
    )
