"""Which actors a list asks for, in the words of an app."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from longshore.client.actor import ActorType
from longshore.errors import InvalidInput
from longshore.model.actor import ActorFilter, ActorStatus
from longshore.payload.listed import listed_value

LISTED_AT_ONCE: Final = 500
"""How many actors one request of a list asks for."""


def actor_filter(
    known: Mapping[str, ActorType[Any]],
    type: str | ActorType[Any] | None,
    status: ActorStatus | str | None,
    fields: Mapping[str, object],
) -> ActorFilter:
    """The filter; raises `InvalidInput` for what cannot be listed, if the class is `known`."""
    name = type.type if isinstance(type, ActorType) else type
    if fields and name is None:
        raise InvalidInput("actors are listed by the fields of one type; give the type first")
    if name is not None and name in known:
        known[name].actor_class.check_listed(fields)
    texts = {field: listed_value(f"'{field}'", value) for field, value in fields.items()}
    return ActorFilter(name, _status(status), limit=LISTED_AT_ONCE, fields=texts)


def _status(status: ActorStatus | str | None) -> ActorStatus | None:
    try:
        return None if status is None else ActorStatus(status)
    except ValueError:
        known = ", ".join(ActorStatus)
        raise InvalidInput(f"status is {status!r}; an actor is one of: {known}") from None
