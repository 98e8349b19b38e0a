"""Programs as templates: `{name}` in a text stands for an argument of the job.

One item of a command line stays one item, whatever the argument holds: there is no shell, and
nothing splits words. `{{` and `}}` are braces.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, Final, TypeVar

import msgspec
from msgspec import Struct, structs

from longshore.errors import InvalidInput
from longshore.model.program import Program

P = TypeVar("P", bound=Program)

_PIECE: Final = re.compile(r"(\{\{|\}\})|\{([^{}]*)\}|([{}])")
_FIXED: Final = frozenset({"limits", "rules", "secrets"})
"""What an app declares for all jobs of a kind: no argument changes it."""
_encode = msgspec.json.Encoder().encode


def placeholders(program: Program) -> tuple[str, ...]:
    """The names in a template, in the order in which they stand there.

    Raises `InvalidInput` that names a text with a brace that is no placeholder.
    """
    found: dict[str, None] = {}

    def look(text: str) -> str:
        found.update((name, None) for name in names_in(text))
        return text

    _changed(program, look)
    return tuple(found)


def filled(program: P, arguments: Mapping[str, object]) -> P:
    """The program that a template means with these arguments."""

    return _changed(program, lambda text: filled_text(text, arguments))


def filled_text(text: str, arguments: Mapping[str, object]) -> str:
    """What one text of a template means; raises `KeyError` if an argument is missing."""
    return _PIECE.sub(lambda one: one[1][0] if one[1] else as_text(arguments[one[2]]), text)


def as_text(value: object) -> str:
    """An argument as it stands in a text: lists and maps as JSON, None as nothing."""
    if isinstance(value, str):
        return value
    return "" if value is None else _encode(value).decode()


def names_in(text: str) -> list[str]:
    """The names of the placeholders in a text; raises `InvalidInput` if a brace is none."""
    names = []
    for piece in _PIECE.finditer(text):
        if piece[1]:
            continue
        name = piece[2]
        if name is None or not name.isidentifier():
            raise InvalidInput(
                f"{text!r:.200}: {piece[0]!r} is no placeholder; write {{name}} for an argument, "
                "and {{ or }} for a brace"
            )
        names.append(name)
    return names


def _changed(program: P, change: Callable[[str], str]) -> P:
    fields = {
        name: _deeply(getattr(program, name), change)
        for name in program.__struct_fields__
        if name not in _FIXED
    }
    return structs.replace(program, **fields)


def _deeply(value: Any, change: Callable[[str], str]) -> Any:
    """The value with each text in it changed, but for the names of variables."""
    match value:
        case Enum():
            return value
        case str():
            return change(value)
        case tuple():
            return tuple(_deeply(one, change) for one in value)
        case dict():
            return {name: _deeply(one, change) for name, one in value.items()}
        case Struct():
            fields = {name: getattr(value, name) for name in value.__struct_fields__}
            return structs.replace(
                value, **{name: _deeply(one, change) for name, one in fields.items()}
            )
        case _:
            return value
