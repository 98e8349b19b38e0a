"""Checking a submit against what workers advertise of its kind."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from difflib import get_close_matches

import msgspec

from longshore.errors import InvalidArguments
from longshore.model.job import Submission
from longshore.model.worker import KindInfo

_names = msgspec.msgpack.Decoder(dict[str, msgspec.Raw])


def check_arguments(job: Submission, info: KindInfo) -> None:
    """Raises `InvalidArguments`, naming the parameter, unless a job's arguments fit its kind."""
    if job.options.raw or info.parameters is None:
        return
    given = argument_names(job)
    known = {parameter.name for parameter in info.parameters}
    for name in given:
        if name not in known:
            raise InvalidArguments(
                f"job '{job.kind}' has no parameter '{name}'{nearest(name, known)}; "
                f"it takes {_listed(info)}"
            )
    for parameter in info.parameters:
        if parameter.required and parameter.name not in given:
            raise InvalidArguments(
                f"job '{job.kind}' needs argument '{parameter.name}'; it takes {_listed(info)}"
            )


def argument_names(job: Submission) -> Mapping[str, object]:
    """The arguments of a job by name, their values left as they are."""
    try:
        return _names.decode(job.args)
    except msgspec.DecodeError as error:
        raise InvalidArguments(
            f"the arguments of job '{job.kind}' are not a map by parameter name: {error}"
        ) from None


def nearest(name: str, known: Collection[str]) -> str:
    """A hint in brackets at the name that was probably meant, if there is one."""
    near = get_close_matches(name, known, n=1)
    return f" (nearest: '{near[0]}')" if near else ""


def _listed(info: KindInfo) -> str:
    names = [
        f"'{parameter.name}'" + ("" if parameter.required else " (optional)")
        for parameter in info.parameters or ()
    ]
    return ", ".join(names) or "no arguments"
