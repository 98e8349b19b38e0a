"""Results of other jobs as arguments: `{"$result": {"job": key, "path": [...]}}`.

An argument may stand for the result of another job of the same group, or for a part of it.
`{"$results": {"map": key}}` stands for the results of all elements of a map, in order. A job that
another added names those that were added with it by `./key`.

The store keeps arguments as they were submitted, and fills in the results whenever it gives an
attempt to a worker. A user's own key that begins with `$` is written with one `$` more; filling
takes it away again. All of this concerns only jobs that say so (`Options.references`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from longshore.errors import InvalidArguments, InvalidInput
from longshore.model.job import JobState, Submission
from longshore.payload.file_references import refuse_alone
from longshore.payload.values import pack, unpack

RESULT: Final = "$result"
RESULTS: Final = "$results"
EVERY: Final = "/*"
"""Ends the key by which a store finds all elements of a map."""
BESIDE: Final = "./"
"""Begins the key of a job that was added with the one that refers to it."""
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
    """A result that an argument stands for: of which job, and which part of it.

    With `is_map` it stands for the results of all elements of a map.
    """

    job: str
    path: Path = ()
    is_map: bool = False

    @property
    def wanted(self) -> str:
        """The key by which a store finds what it stands for."""
        return f"{self.job}{EVERY}" if self.is_map else self.job

    def as_value(self) -> dict[str, object]:
        """The reference as it stands among the arguments."""
        if self.is_map:
            return {RESULTS: {"map": self.job}}
        return {RESULT: {"job": self.job, "path": list(self.path)}}


Results = Mapping[str, Sequence[NodeResult]]
"""What was found, by the keys that are `wanted`: one result, or those of all elements of a map."""


def references(args: bytes) -> list[Reference]:
    """The references in packed arguments; raises `InvalidArguments` if one is malformed."""
    return list(references_in(_unpacked(args, "the arguments are")))


def _unpacked(data: bytes, what: str) -> object:
    """The value in bytes that others than our own processes may have made."""
    try:
        return unpack(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidArguments(f"{what} not msgpack: {error}") from None


def references_in(value: object, depth: int = 0) -> Iterator[Reference]:
    """The references in a value; raises `InvalidArguments` if one is malformed."""
    if depth > MAX_DEPTH:
        raise InvalidArguments(f"the arguments are nested more than {MAX_DEPTH} levels deep")
    if isinstance(value, dict):
        if RESULT in value or RESULTS in value:
            yield _read(value)
            return
        for part in value.values():
            yield from references_in(part, depth + 1)
    elif isinstance(value, list):
        for part in value:
            yield from references_in(part, depth + 1)


def _read(value: dict[str, Any]) -> Reference:
    if RESULTS in value:
        return _read_map(value)
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


def _read_map(value: dict[str, Any]) -> Reference:
    inner = value[RESULTS]
    if len(value) == 1 and isinstance(inner, dict) and inner.keys() == {"map"}:
        key = inner["map"]
        if isinstance(key, str):
            return Reference(key, is_map=True)
    raise InvalidArguments(
        f'{value!r:.200} is not a reference to the results of a map; write {{"{RESULTS}": '
        f'{{"map": KEY}}}}, or "${RESULTS}" for a key of your own'
    )


def _is_step(step: object) -> bool:
    return isinstance(step, str | int) and not isinstance(step, bool)


def escaped(value: object) -> object:
    """The value with one `$` more before each key of its own that begins with `$`.

    Each `Reference` in it is written out.
    """
    if isinstance(value, Reference):
        return value.as_value()
    if isinstance(value, dict):
        return {
            f"${key}" if isinstance(key, str) and key.startswith("$") else key: escaped(part)
            for key, part in value.items()
        }
    if isinstance(value, list | tuple):
        return [escaped(part) for part in value]
    return value


def filled(args: bytes, results: Results) -> bytes:
    """Packed arguments with the results that they refer to, by the keys of their jobs.

    Raises `InvalidArguments` if there is no such result, naming the reference.
    """
    return pack(filled_value(args, results), "the arguments")


def filled_value(args: bytes, results: Results) -> object:
    """The arguments themselves, with the results that they refer to."""
    try:
        return _fill(_unpacked(args, "the arguments are"), results)
    except RecursionError:
        raise InvalidArguments("the arguments are nested too deep") from None


def _fill(value: object, results: Results) -> object:
    if isinstance(value, dict):
        if RESULT in value or RESULTS in value:
            return _part(_read(value), results)
        return {
            key[1:] if isinstance(key, str) and key.startswith("$$") else key: _fill(part, results)
            for key, part in value.items()
        }
    if isinstance(value, list):
        return [_fill(part, results) for part in value]
    return value


def _part(wanted: Reference, results: Results) -> object:
    found = results.get(wanted.wanted, ())
    if wanted.is_map:
        return [_value(one, f"'{wanted.job}/{at}'") for at, one in enumerate(found)]
    if not found:
        raise InvalidArguments(
            f"the group has no job '{wanted.job:.200}' whose result this job needs"
        )
    value = _value(found[0], f"'{wanted.job}'")
    for at, step in enumerate(wanted.path):
        value = _step(value, step, wanted, at)
    return value


def _value(found: NodeResult, job: str) -> object:
    if found.state is not JobState.SUCCEEDED:
        raise InvalidArguments(
            f"this job needs the result of {job}, which has none: it is {found.state}"
        )
    return None if found.result is None else _unpacked(found.result, f"the result of {job} is")


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


def escaped_arguments(job: Submission) -> bytes:
    """The arguments of a job that has no references, as a job that may have some stores them."""
    return pack(escaped(_unpacked(job.args, "the arguments are")), f"the arguments of '{job.kind}'")


# where jobs are submitted


def refuse_outside_a_group(job: Submission) -> None:
    """Raises `InvalidInput` if a job that is submitted by itself refers to others of a group."""
    refuse_alone(job)
    if job.options.references:
        raise InvalidInput(
            f"job '{job.kind}' refers to the result of another job, and only a job of a group can; "
            "add it to the group of that job: group.add(…)"
        )
