"""`fair_by`: the key of a job that shares the workers with others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from longshore.client.limit import KeyGiven, check_key, key_of, needs_key
from longshore.core.fairness import why_not_fair
from longshore.core.key_limits import BY_FUNCTION, is_whole
from longshore.errors import AppError, InvalidInput
from longshore.payload.references import references_in
from longshore.payload.values import unpack


def fair_by_given(given: object) -> KeyGiven | None:
    """What an app gives as `fair_by`: a parameter, a whole key, a function, or nothing."""
    if given is None or given == "":
        return None
    if isinstance(given, str):
        try:
            check_key(given)
        except AppError as error:
            raise InvalidInput(f"fair_by: {error}") from None
        return given
    if callable(given):
        return given
    if isinstance(given, list | tuple):
        raise InvalidInput(
            f"fair_by is {given!r:.100}; a job shares by one key: give one, or a function that "
            "makes one of several arguments"
        )
    raise InvalidInput(f"fair_by is {given!r:.100}; give a parameter's name, like fair_by='tenant'")


def fair_key_of(fair_by: KeyGiven, kind: str, args: bytes, *, references: bool = False) -> str:
    """The fair key of a job with these arguments."""
    if fair_by == BY_FUNCTION:
        raise needs_key(kind, "fair_by", "a fair_by")
    arguments: Mapping[str, Any] = unpack(args)
    if references:
        arguments = {name: one for name, one in arguments.items() if not any(references_in(one))}
    if isinstance(fair_by, str) and not is_whole(fair_by) and fair_by not in arguments:
        raise InvalidInput(
            f"job '{kind}' shares by its parameter '{fair_by}' (fair_by), which this job was not "
            f"given, or only as a result to come; give it, or declare a key like {fair_by}=any"
        )
    key = key_of(fair_by, kind, arguments)
    if why := why_not_fair(key):
        raise InvalidInput(f"job '{kind}': {why}")
    return key


def fair_key_of_elements(fair_by: KeyGiven, kind: str, args: bytes, parameter: str) -> str:
    """The fair key of the jobs of a map; that of its own `parameter` each element completes."""
    if fair_by == parameter:
        return parameter
    if callable(fair_by) or fair_by == BY_FUNCTION:
        raise InvalidInput(
            f"job '{kind}' has a function as fair_by, which nothing can ask for the elements of a "
            f"map; name a parameter, like fair_by='{parameter}', or a whole key"
        )
    return fair_key_of(fair_by, kind, args, references=True)
