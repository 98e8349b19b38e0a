"""Results of jobs as arguments of others: how what stands for them is packed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from longshore.payload import values
from longshore.payload.pydantic_values import to_builtins
from longshore.payload.references import Reference
from longshore.payload.result_reference import ResultReference

_MARK: Final = 1
"""Marks a reference while the arguments around it become builtins."""


def to_builtin_arguments(
    given: Mapping[str, object], kind: str
) -> tuple[dict[str, object], list[ResultReference]]:
    """The arguments as builtins with a `Reference` for each result, and what these stand for."""
    found: list[ResultReference] = []

    def mark(value: object) -> object:
        if not isinstance(value, ResultReference):
            return to_builtins(value)
        found.append(value)
        return msgspec.msgpack.Ext(_MARK, str(len(found) - 1).encode())

    def marked(code: int, data: memoryview) -> Reference:
        return found[int(bytes(data))].reference

    packed = values.pack_arguments(given, kind, mark)
    whole: dict[str, object] = msgspec.msgpack.decode(packed, ext_hook=marked)
    return whole, found
