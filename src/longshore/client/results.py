"""Results of jobs as arguments of others: what `GroupJob.result` is, and how it is packed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from longshore.errors import InvalidInput
from longshore.payload import values
from longshore.payload.pydantic_values import to_builtins
from longshore.payload.references import Reference

_MARK: Final = 1
"""Marks a reference while the arguments around it become builtins."""


class ResultReference:
    """Stands for the result of a job of a group, or for a part of it, in the arguments of others.

    `result["pages"][0]` stands for that part of it.
    """

    def __init__(self, group: object, reference: Reference, returns: Any = Any) -> None:
        self.group = group
        self.reference = reference
        self.returns = returns
        """What it is, by the annotation of the job's function; `Any` if that is not known."""

    # Python would take what can be indexed for a sequence without end.
    __iter__ = None

    def __repr__(self) -> str:
        path = "".join(f"[{step!r}]" for step in self.reference.path)
        return f"<the result of '{self.reference.job}'{path}>"

    def __getitem__(self, step: object) -> ResultReference:
        if isinstance(step, bool) or not isinstance(step, str | int):
            raise InvalidInput(f"{self!r} has no part {step!r}; give a name or an index")
        job, path, _ = self.reference
        return ResultReference(self.group, Reference(job, (*path, step)))


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
