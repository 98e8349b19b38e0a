"""Results of other jobs as arguments: `{"$result": {"job": key, "path": [...]}}`.

An argument may stand for the result of another job of the same group, or for a part of it. The
store keeps arguments as they were submitted, and fills in the results whenever it gives an attempt
to a worker. A user's own key that begins with `$` is written with one `$` more; filling takes it
away again. All of this concerns only jobs that say so (`Options.references`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from longshore.errors import InvalidArguments
from longshore.model.job import JobState
from longshore.payload.values import pack, unpack

RESULT: Final = "$result"
MAX_REFERENCED_BYTES: Final = 16 * 1024 * 1024
"""How many bytes the results may take that one job refers to."""
MAX_DEPTH: Final = 100

Path = tuple[str | int, ...]


class NodeResult(NamedTuple):
    """What a referenced job has come to."""

    state: JobState
    size: int
    result: bytes | None


class Reference(NamedTuple):
    """A result that an argument stands for: of which job, and which part of it."""

    job: str
    path: Path = ()

    def as_value(self) -> dict[str, object]:
        """The reference as it stands among the arguments."""
        return {RESULT: {"job": self.job, "path": list(self.path)}}


def references(args: bytes) -> list[Reference]:
    """The references in packed arguments; raises `InvalidArguments` if one is malformed."""
    return list(_found(unpack(args)))


def _found(value: object, depth: int = 0) -> Iterator[Reference]:
    if depth > MAX_DEPTH:
        raise InvalidArguments(f"the arguments are nested more than {MAX_DEPTH} levels deep")
    if isinstance(value, dict):
        if RESULT in value:
            yield _read(value)
            return
        for part in value.values():
            yield from _found(part, depth + 1)
    elif isinstance(value, list):
        for part in value:
            yield from _found(part, depth + 1)


def _read(value: dict[str, Any]) -> Reference:
    inner = value[RESULT]
    is_sound = len(value) == 1 and isinstance(inner, dict) and inner.keys() <= {"job", "path"}
    if is_sound:
        job, path = inner.get("job"), inner.get("path", [])
        if isinstance(job, str) and isinstance(path, list) and all(map(_is_step, path)):
            return Reference(job, tuple(path))
    raise InvalidArguments(
        f'{value!r:.200} is not a reference to a result; write {{"{RESULT}": {{"job": KEY, '
        f'"path": [NAME OR INDEX, …]}}}}, or "${RESULT}" for a key of your own'
    )


def _is_step(step: object) -> bool:
    return isinstance(step, str | int) and not isinstance(step, bool)


def escaped(value: object) -> object:
    """The value with one `$` more before each key of its own that begins with `$`."""
    if isinstance(value, dict):
        return {
            f"${key}" if isinstance(key, str) and key.startswith("$") else key: escaped(part)
            for key, part in value.items()
        }
    if isinstance(value, list | tuple):
        return [escaped(part) for part in value]
    return value


def filled(args: bytes, results: Mapping[str, NodeResult]) -> bytes:
    """Packed arguments with the results that they refer to, by the keys of their jobs.

    Raises `InvalidArguments` if there is no such result, naming the reference.
    """
    return pack(_fill(unpack(args), results), "the arguments")


def _fill(value: object, results: Mapping[str, NodeResult]) -> object:
    if isinstance(value, dict):
        if RESULT in value:
            return _part(_read(value), results)
        return {
            key[1:] if key.startswith("$$") else key: _fill(part, results)
            for key, part in value.items()
        }
    if isinstance(value, list):
        return [_fill(part, results) for part in value]
    return value


def _part(wanted: Reference, results: Mapping[str, NodeResult]) -> object:
    found = results.get(wanted.job)
    if found is None:
        raise InvalidArguments(f"the group has no job '{wanted.job}' whose result this job needs")
    if found.state is not JobState.SUCCEEDED:
        raise InvalidArguments(
            f"this job needs the result of '{wanted.job}', which has none: it is {found.state}"
        )
    value: object = None if found.result is None else unpack(found.result)
    for at, step in enumerate(wanted.path):
        value = _step(value, step, wanted, at)
    return value


def _step(value: object, step: str | int, wanted: Reference, at: int) -> object:
    if isinstance(value, dict) and step in value:
        return value[step]
    if isinstance(value, list) and isinstance(step, int) and -len(value) <= step < len(value):
        return value[step]
    where = "".join(f"[{one!r}]" for one in wanted.path[:at])
    raise InvalidArguments(
        f"the result of '{wanted.job}'{where} has no {step!r}: it is {_shape(value)}"
    )


def _shape(value: object) -> str:
    if isinstance(value, dict):
        names = ", ".join(repr(key) for key in list(value)[:5])
        return f"a map with {names or 'nothing'}" + (", …" if len(value) > 5 else "")
    if isinstance(value, list):
        return f"a list of {len(value):,}"
    return "nothing (null)" if value is None else type(value).__name__
