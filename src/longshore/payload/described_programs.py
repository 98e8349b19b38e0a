"""The programs that submitters describe, checked where they are submitted."""

from __future__ import annotations

from typing import Any, Final

from longshore.core.programs import described
from longshore.errors import InvalidArguments, InvalidInput
from longshore.model.job import Submission
from longshore.payload import values
from longshore.payload.references import RESULT, RESULTS

_STANDS_IN: Final = "result"
"""Stands for a result that is not known yet."""


def check_described(job: Submission) -> None:
    """Raises `InvalidArguments` unless the arguments of a job of a free kind describe a program."""
    if job.options.raw:
        raise InvalidArguments(f"job '{job.kind}' is described by names and values; it is not raw")
    given = values.unpack(job.args)
    check_program_fields(job.kind, without_results(given) if job.options.references else given)


def check_program_fields(kind: str, given: object) -> None:
    """Raises `InvalidArguments` unless these are the fields of a program."""
    try:
        described(kind, given)
    except InvalidInput as error:
        raise InvalidArguments(str(error)) from None


def without_results(given: Any) -> Any:
    """What users wrote, with a text for each result of another job in it."""
    if isinstance(given, dict):
        if {*given} <= {RESULT, RESULTS} and given:
            return _STANDS_IN
        return {name: without_results(one) for name, one in given.items()}
    return [without_results(one) for one in given] if isinstance(given, list) else given
