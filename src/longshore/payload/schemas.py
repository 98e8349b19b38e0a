"""Checking a submit against what workers advertise of its kind.

One typed decoder, made once for each list of parameters, checks names and types. It is a little
stricter than the worker that would run the job. So arguments that it refuses are checked again one
by one, which also tells what is wrong. Nothing that the worker would accept is refused here.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from difflib import get_close_matches
from functools import lru_cache
from typing import Any, Final

import msgspec

from longshore.errors import InvalidArguments
from longshore.model.job import Submission
from longshore.model.worker import KindInfo, Parameter
from longshore.payload import values
from longshore.payload.jsonschema import record, type_of

MAX_CHECKED_BYTES: Final = 64 * 1024
"""Of larger arguments only the names are checked, so that the check stays fast."""

_names = msgspec.msgpack.Decoder(dict[str, msgspec.Raw])
_UNREADABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_PATH: Final = re.compile(r" - at `(?:key in )?\$(.*)`$")


def check_arguments(job: Submission, info: KindInfo) -> None:
    """Raises `InvalidArguments`, naming the parameter, unless a job's arguments fit its kind."""
    if job.options.raw or info.parameters is None:
        return
    if len(job.args) <= MAX_CHECKED_BYTES:
        try:
            _decoder(info.parameters).decode(job.args)
            return
        except _UNREADABLE:
            pass
    given = argument_names(job)
    _check_names(job, info.parameters, given)
    if len(job.args) <= MAX_CHECKED_BYTES:
        _check_types(job, info.parameters, given)


def check_value(what: str, value: object, parameter: Parameter) -> None:
    """Raises `InvalidArguments` if a value is not what a parameter takes."""
    try:
        msgspec.convert(value, type_of(parameter.schema))
    except msgspec.ValidationError as error:
        raise InvalidArguments(f"{what} {explain(error)}") from None


@lru_cache(maxsize=4_096)
def _decoder(parameters: tuple[Parameter, ...]) -> msgspec.msgpack.Decoder[Any]:
    """Decodes the arguments that are certain to fit."""
    fields = {one.name: (_wanted(one), one.required) for one in parameters}
    try:
        return msgspec.msgpack.Decoder(record(fields, closed=True))
    except (TypeError, ValueError):  # a name that msgspec cannot have: look closely every time
        return msgspec.msgpack.Decoder(None)


def _wanted(parameter: Parameter) -> Any:
    wanted = type_of(parameter.schema)
    return msgspec.Raw if wanted is Any else wanted


def _check_names(
    job: Submission, parameters: tuple[Parameter, ...], given: Mapping[str, object]
) -> None:
    known = {parameter.name for parameter in parameters}
    for name in given:
        if name not in known:
            raise InvalidArguments(
                f"job '{job.kind}' has no parameter '{name}'{nearest(name, known)}; "
                f"it takes {_listed(parameters)}"
            )
    for parameter in parameters:
        if parameter.required and parameter.name not in given:
            raise InvalidArguments(
                f"job '{job.kind}' needs argument '{parameter.name}'; "
                f"it takes {_listed(parameters)}"
            )


def _check_types(
    job: Submission, parameters: tuple[Parameter, ...], given: Mapping[str, msgspec.Raw]
) -> None:
    wanted = {parameter.name: type_of(parameter.schema) for parameter in parameters}
    for name, packed in given.items():
        if job.options.references and b"$" in bytes(packed):
            continue  # it may stand for a result, which only the worker sees
        try:
            msgspec.convert(values.unpack(packed), wanted[name])
        except msgspec.ValidationError as error:
            raise InvalidArguments(
                f"job '{job.kind}': argument '{name}' {explain(error)}"
            ) from None
        except _UNREADABLE as error:
            raise _not_a_map(job, error) from None


def argument_names(job: Submission) -> Mapping[str, msgspec.Raw]:
    """The arguments of a job by name, their values left as they are."""
    try:
        return _names.decode(job.args)
    except _UNREADABLE as error:
        raise _not_a_map(job, error) from None


def _not_a_map(job: Submission, error: Exception) -> InvalidArguments:
    return InvalidArguments(
        f"the arguments of job '{job.kind}' are not a map by parameter name: {error}"
    )


def explain(error: msgspec.ValidationError) -> str:
    """A message of msgspec as the rest of a sentence."""
    text = str(error)
    path = _PATH.search(text)
    where = f" (at {path[1]})" if path and path[1] else ""
    text = _PATH.sub("", text).replace("`", "")
    return text[:1].lower() + text[1:] + where


def nearest(name: str, known: Collection[str]) -> str:
    """A hint in brackets with the most similar name, if there is one."""
    near = get_close_matches(name, known, n=1)
    return f" (nearest: '{near[0]}')" if near else ""


def _listed(parameters: tuple[Parameter, ...]) -> str:
    names = [
        f"'{parameter.name}'" + ("" if parameter.required else " (optional)")
        for parameter in parameters
    ]
    return ", ".join(names) or "no arguments"
