"""What docs/protocol.md must say of each message, taken from the messages themselves."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, get_args

import msgspec
from msgspec import inspect

from longshore.wire import messages as m

PAGE = Path(__file__).resolve().parents[3] / "docs" / "protocol.md"

Row = tuple[str, str, str]
"""A field's name, type and default."""

_PLAIN_NAMES: dict[type, str] = {
    inspect.IntType: "int",
    inspect.FloatType: "float",
    inspect.StrType: "text",
    inspect.BytesType: "bytes",
    inspect.BoolType: "bool",
    inspect.UUIDType: "id",
    inspect.DateTimeType: "time",
    inspect.RawType: "any",
    inspect.NoneType: "nil",
}
_MESSAGES = [
    *get_args(m.WorkerMessage),
    *get_args(m.DispatcherMessage),
    *get_args(m.Request),
    *get_args(m.Answer),
]


def title_of(kind: type) -> str:
    """The heading under which a message, a struct or an enumeration is described."""
    return kind.__name__.upper() if kind in _MESSAGES else kind.__name__


def described() -> dict[str, type]:
    """Everything that crosses the wire, by the heading it must have on the page."""
    found: dict[str, type] = {}
    for kind in _MESSAGES:
        _collect(inspect.type_info(kind), found)
    for answer in m.ANSWERS.values():
        _collect(inspect.type_info(answer), found)
    return found


def _collect(info: inspect.Type, found: dict[str, type]) -> None:
    match info:
        case inspect.StructType(cls=cls) if title_of(cls) not in found:
            found[title_of(cls)] = cls
            for field in info.fields:
                _collect(field.type, found)
        case inspect.EnumType(cls=cls):
            found[title_of(cls)] = cls
        case inspect.VarTupleType(item_type=item):
            _collect(item, found)
        case inspect.DictType(value_type=value):
            _collect(value, found)
        case inspect.UnionType(types=types):
            for one in types:
                _collect(one, found)


def rows_of(kind: type) -> list[Row]:
    """The rows of a message's table, apart from the last column."""
    info = inspect.type_info(kind)
    assert isinstance(info, inspect.StructType)
    tag = [(info.tag_field, "text", f'always `"{info.tag}"`')] if info.tag_field else []
    return tag + [(field.name, type_name(field.type), _default(field)) for field in info.fields]


def type_name(info: inspect.Type) -> str:
    """A type in the words of the page."""
    match info:
        case inspect.StructType(cls=cls) | inspect.EnumType(cls=cls):
            return f"[{cls.__name__}](#{title_of(cls).lower()})"
        case inspect.VarTupleType(item_type=item):
            return f"list of {type_name(item)}"
        case inspect.TupleType():
            return "attempt"
        case inspect.DictType(value_type=value):
            return f"map of {type_name(value)}"
        case inspect.UnionType(types=types) if _is_report(types):
            return "[report](#reports)"
        case inspect.UnionType(types=types):
            return " or ".join(type_name(one) for one in types)
        case _:
            return _PLAIN_NAMES[type(info)]


def _is_report(types: Iterable[inspect.Type]) -> bool:
    return {one.cls for one in types if isinstance(one, inspect.StructType)} == {
        *get_args(m.Report)
    }


def _default(field: inspect.Field) -> str:
    value: Any = field.default
    if field.default_factory is not msgspec.NODEFAULT:
        value = field.default_factory()
    if value is msgspec.NODEFAULT:
        return "required"
    if isinstance(value, msgspec.Raw):
        return "`nil`"
    if isinstance(value, msgspec.Struct) and value == _made_of_nothing(type(value)):
        return "`{}`"
    return "`nil`" if value is None else f"`{msgspec.json.encode(value).decode()}`"


def _made_of_nothing(kind: type[msgspec.Struct]) -> msgspec.Struct | None:
    try:
        return kind()
    except TypeError:
        return None


# the page


def sections(text: str) -> dict[str, str]:
    """The text under each heading of the third and fourth level, by the heading."""
    parts = re.split(r"^#{3,4} (.+)\n", text, flags=re.MULTILINE)
    return {title.strip("`"): body for title, body in zip(parts[1::2], parts[2::2], strict=True)}


def table(section: str) -> list[list[str]]:
    """The cells of the first table in a section, without its head."""
    lines = re.search(r"(?:^\|.*\n)+", section, re.MULTILINE)
    if lines is None:
        return []
    cells = [re.split(r"\s*\|\s*", line.strip("| ")) for line in lines[0].splitlines()]
    return cells[2:]


def examples(text: str) -> Iterator[tuple[str, list[bytes], Any]]:
    """The worked examples: a name, frames in hexadecimal, and the last frame as JSON."""
    pattern = r"^Example: (\S+)\n\n```\n(.+?)```\n\n```json\n(.+?)```$"
    for name, frames, meaning in re.findall(pattern, text, re.MULTILINE | re.DOTALL):
        whole = re.split(r"\n(?! )", frames.rstrip())
        yield name, [_frame(digits) for digits in whole], msgspec.json.decode(meaning)


def _frame(digits: str) -> bytes:
    return b"" if digits == "-" else bytes.fromhex(digits)


def readable(value: Any) -> Any:
    """A value as the page shows it: bytes in hexadecimal."""
    match value:
        case bytes():
            return f"0x{value.hex()}"
        case list():
            return [readable(item) for item in value]
        case dict():
            return {key: readable(item) for key, item in value.items()}
        case _:
            return value
