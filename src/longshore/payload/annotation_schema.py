"""Turns a parameter's annotation into the JSON schema that a worker advertises: types only.

A schema describes values as they are stored, in msgpack: text of the format `date-time` may also be
a timestamp, and text in base64 is bytes.
"""

from __future__ import annotations

import enum
from typing import Any, Final

import msgspec
from msgspec import inspect

from longshore.payload.jsonschema import MAX_SCHEMA_BYTES

Schema = dict[str, Any]

_BYTES: Final = {"type": "string", "contentEncoding": "base64"}
_PLAIN: Final[dict[type, Schema]] = {
    inspect.NoneType: {"type": "null"},
    inspect.BoolType: {"type": "boolean"},
    inspect.IntType: {"type": "integer"},
    inspect.FloatType: {"type": "number"},
    inspect.StrType: {"type": "string"},
    inspect.BytesType: _BYTES,
    inspect.ByteArrayType: _BYTES,
    inspect.MemoryViewType: _BYTES,
    inspect.DateTimeType: {"type": "string", "format": "date-time"},
    inspect.TimeType: {"type": "string", "format": "time"},
    inspect.DateType: {"type": "string", "format": "date"},
    inspect.TimeDeltaType: {"type": "string", "format": "duration"},
    inspect.UUIDType: {"type": "string", "format": "uuid"},
    inspect.DecimalType: {"type": "string", "format": "decimal"},
    inspect.TupleType: {"type": "array"},
    inspect.NamedTupleType: {"type": "array"},
}


def schema_of(annotation: Any) -> str:
    """The schema of an annotation that msgspec knows; empty if it says nothing, or too much."""
    try:
        described = _described(inspect.type_info(annotation), ())
        text = msgspec.json.encode(described).decode()
    except (TypeError, ValueError, RecursionError):
        return ""
    return text if described and len(text) <= MAX_SCHEMA_BYTES else ""


def _described(info: inspect.Type, within: tuple[type, ...]) -> Schema:
    """A type's schema; empty for a type that holds itself, or that JSON does not know."""
    match info:
        case inspect.Metadata(type=inner):
            return _described(inner, within)
        case inspect.CollectionType(item_type=item):
            return {"type": "array", **_if_any("items", _described(item, within))}
        case inspect.DictType(value_type=value):
            return {"type": "object", **_if_any("additionalProperties", _described(value, within))}
        case inspect.UnionType(types=types):
            options = [_described(one, within) for one in types]
            return {"anyOf": options} if all(options) else {}
        case inspect.LiteralType(values=values):
            return {"enum": list(values)}
        case inspect.EnumType(cls=cls):
            return _enumeration(cls)
        case inspect.StructType(array_like=True):
            return {"type": "array"}
        case inspect.StructType() | inspect.DataclassType() | inspect.TypedDictType():
            return {} if info.cls in within else _fields(info, (*within, info.cls))
        case _:
            return _PLAIN.get(type(info), {})


def _if_any(key: str, schema: Schema) -> Schema:
    return {key: schema} if schema else {}


def _enumeration(cls: type[enum.Enum]) -> Schema:
    # With a `_missing_` of its own, an enumeration takes values that are none of its members'.
    takes_more = cls._missing_.__func__ is not enum.Enum._missing_.__func__  # type: ignore[attr-defined]
    return {} if takes_more else {"enum": [member.value for member in cls]}


def _fields(
    info: inspect.StructType | inspect.DataclassType | inspect.TypedDictType,
    within: tuple[type, ...],
) -> Schema:
    properties = {one.encode_name: _described(one.type, within) for one in info.fields}
    required = [one.encode_name for one in info.fields if one.required]
    return {"type": "object", "properties": properties, "required": required}
