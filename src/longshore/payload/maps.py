"""Maps: a list that becomes one job for each of its elements.

A map is a node that no worker runs. Its arguments are a list, or a reference to one, and a job as
the pattern of all elements: the store makes the jobs once the list is known.
"""

from __future__ import annotations

from typing import Final, NamedTuple
from uuid import UUID

import msgspec
from msgspec import Struct, structs

from longshore.core.fairness import fair_key_for, needs_value
from longshore.core.key_limits import limits_for, with_some_values
from longshore.errors import InvalidArguments, InvalidInput
from longshore.model.ids import derive_id
from longshore.model.job import Submission
from longshore.model.limits import JobLimit
from longshore.payload.references import (
    Reference,
    Results,
    escaped,
    filled_value,
    references_in,
)
from longshore.payload.values import pack, unpack

_PER_ROUND: Final = 2**32
"""No job adds so many others."""
_SOME_RESULT: Final = Reference("element")


class MapPattern(Struct, frozen=True):
    """The job of every element: its `parameter` gets the element, the rest is as it stands here."""

    parameter: str
    job: Submission


class Element(NamedTuple):
    """One job of a map; its key in the group is `key` below that of the map."""

    key: str
    job: Submission


class Elements(NamedTuple):
    """Some jobs of a map, and of how many it has."""

    jobs: list[Element]
    total: int


def pack_map(over: object, pattern: MapPattern) -> bytes:
    """The arguments of a map; `over` is a list of builtins, or the value of a `Reference`."""
    inner = msgspec.to_builtins(pattern, builtin_types=(bytes,))
    return pack({"over": over, "pattern": inner}, f"the map of job '{pattern.job.kind}'")


def read_map(args: bytes) -> tuple[object, MapPattern]:
    """What a map goes over, maybe a reference to a result, and its pattern."""
    found = _converted(_unpacked(args))
    return found.over, found.pattern


def check_map(job: Submission) -> None:
    """Raises `InvalidInput` if a map is malformed, or its pattern cannot be of many jobs."""
    over, pattern = read_map(job.args)
    own = pattern.job
    if own.options.raw or not isinstance(_unpacked(own.args), dict):
        raise InvalidArguments(f"the elements of a map of '{own.kind}' take arguments by name")
    for name, value in (("unique_key", own.unique_key), ("run_at", own.run_at)):
        if value is not None:
            raise InvalidInput(f"{name} cannot be given to a map: all of its jobs would have it")
    if not isinstance(over, list) and not any(references_in(over)):
        raise InvalidArguments(_no_list(over))


def pattern_of(job: Submission) -> Submission:
    """The job of the elements of a map, as it can be checked before there are any."""
    own = read_map(job.args)[1].job
    if own.options.limits:
        own = _limited(own, with_some_values(own.options.limits))
    return _fair(own, f"{own.options.fair}=any") if needs_value(own.options.fair) else own


def samples(job: Submission, most: int) -> list[Submission]:
    """Jobs by which the first elements of a map can be checked before it has any."""
    over, pattern = read_map(job.args)
    if isinstance(over, list) and not any(references_in(over)):
        return [one.job for one in elements(job.args, {}, job.id, 1, 0, most).jobs]
    own = pattern_of(job)
    given = {**unpack(own.args), pattern.parameter: _SOME_RESULT.as_value()}
    options = structs.replace(own.options, references=True)
    packed = pack(given, f"the arguments of job '{own.kind}'")
    return [structs.replace(own, args=packed, options=options)]


def elements(
    args: bytes, results: Results, map_id: UUID, round: int, first: int, most: int
) -> Elements:
    """At most so many jobs of a map, from the `first` on.

    Raises a `LongshoreError` that says what is wrong with the list, or with an element.
    """
    over, pattern = _read(args, results)
    given = unpack(pattern.job.args)
    what = f"the arguments of job '{pattern.job.kind}'"
    jobs = []
    for index, element in enumerate(over[first : first + most], first):
        whole = {**given, pattern.parameter: _own(pattern, element)}
        id = grown_id(map_id, round, index)
        job = structs.replace(pattern.job, id=id, args=pack(whole, what))
        if job.options.limits:
            job = _limited(job, limits_for(job.options.limits, whole))
        if needs_value(job.options.fair):
            job = _fair(job, fair_key_for(job.options.fair, whole))
        jobs.append(Element(str(index), job))
    return Elements(jobs, len(over))


def grown_id(adder: UUID, round: int, index: int) -> UUID:
    """The id of the index-th job that a job adds to its group in this round.

    An attempt that is run again adds the same jobs, and a new round others.
    """
    return derive_id(adder, round * _PER_ROUND + index)


def _read(args: bytes, results: Results) -> tuple[list[object], MapPattern]:
    found = _converted(filled_value(args, results))
    if not isinstance(found.over, list):
        raise InvalidArguments(_no_list(found.over))
    return found.over, found.pattern


def _unpacked(args: bytes) -> object:
    try:
        return unpack(args)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidArguments(f"the map cannot be read: {error}") from None


def _converted(whole: object) -> _Map:
    try:
        return msgspec.convert(whole, _Map)
    except msgspec.ValidationError as error:
        raise InvalidArguments(f"the map cannot be read: {error}") from None


def _no_list(over: object) -> str:
    kind = "nothing (null)" if over is None else type(over).__name__
    return f"a map goes over a list, and this is {kind}"


def _limited(job: Submission, limits: tuple[JobLimit, ...]) -> Submission:
    return structs.replace(job, options=structs.replace(job.options, limits=limits))


def _fair(job: Submission, key: str) -> Submission:
    return structs.replace(job, options=structs.replace(job.options, fair=key))


class _Map(Struct, frozen=True):
    over: object
    pattern: MapPattern


def _own(pattern: MapPattern, element: object) -> object:
    """The element as it stands among arguments that may refer to results."""
    return escaped(element) if pattern.job.options.references else element
