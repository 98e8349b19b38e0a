"""Inputs that another job of the group makes: `inputs: [{from: KEY}]` of a described program.

The store finds the version when an attempt asks for it: what the job with this key has made in its
last round. Here is what can be known at the submit. Of programs that an app declares it is known
only when they run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import msgspec

from longshore.core.programs import fileset_fields
from longshore.errors import InvalidInput
from longshore.model.group import GATE, MAP, SCOPE
from longshore.model.job import Submission
from longshore.model.program import FREE_KINDS
from longshore.payload.values import unpack

_FROM: Final = b"from"
_NO_FILES: Final = {
    MAP: "a map, which has no files of its own; name one of its elements, like '{key}/0', or let a "
    "job gather what they made",
    GATE: "a gate, which makes no files",
    SCOPE: "a sub-group, which makes no files; name one of its jobs",
}


class Maker(NamedTuple):
    """A job of the group whose files are an input, and which of its filesets, if that is said."""

    key: str
    fileset: str = ""


def makers(job: Submission) -> list[Maker]:
    """The jobs whose files are inputs of this one."""
    if job.kind not in FREE_KINDS or _FROM not in job.args:
        return []
    found = [one for one in _listed(job, "inputs") if isinstance(one.get("from"), str)]
    return [Maker(one["from"], str(one.get("fileset", ""))) for one in found if one["from"]]


def _outputs(job: Submission) -> list[str]:
    return [str(one.get("fileset")) for one in _listed(job, "outputs")]


def _listed(job: Submission, field: str) -> list[dict[str, Any]]:
    try:
        fields = unpack(job.args)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return []
    given = fields.get(field) if isinstance(fields, dict) else None
    found = fileset_fields(given)
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


def check_maker(wanted: Maker, maker: Submission) -> None:
    """Raises `InvalidInput` if a job of the group does not make what is wanted of it."""
    about = f"an input is from '{wanted.key:.200}', which"
    if (words := _NO_FILES.get(maker.kind)) is not None:
        raise InvalidInput(f"{about} is {words.format(key=wanted.key)}")
    if maker.kind not in FREE_KINDS:
        return
    made = _outputs(maker)
    names = ", ".join(f"'{name}'" for name in made)
    if not made:
        raise InvalidInput(f"{about} has no outputs; give it some, like `outputs: [NAME]`")
    if wanted.fileset and wanted.fileset not in made:
        raise InvalidInput(f"{about} does not make '{wanted.fileset}', but {names}")
    if not wanted.fileset and len(made) > 1:
        raise InvalidInput(f"{about} makes {names}; say which with `fileset`")


def check_makers(wanted: Sequence[Maker], known: dict[str, Submission]) -> None:
    """Raises `InvalidInput` if one of the jobs that are known does not make what is wanted."""
    for one in wanted:
        if one.key in known:
            check_maker(one, known[one.key])


def refuse_alone(job: Submission) -> None:
    """Raises `InvalidInput` if a job that is submitted by itself has inputs from another."""
    for one in makers(job):
        raise InvalidInput(
            f"job '{job.kind}' has an input from '{one.key:.200}', and only a job of a group can; "
            "add it to the group of that job, or name the fileset"
        )
