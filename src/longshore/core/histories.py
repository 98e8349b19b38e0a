"""The job that hears of every commit of an actor, if its type has one.

It is submitted in the transaction of that commit, under an id that follows from the actor and the
turn: so there is one for each commit, whatever is repeated.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final
from uuid import UUID

from msgspec import Raw, msgpack

from longshore.model.actor import ActorTerms
from longshore.model.ids import derive_id
from longshore.model.job import Submission

_packer: Final = msgpack.Encoder()
_BASE: Final = 0
"""No turn has this number, so no job's id follows from it."""
_REMOVAL: Final = 1 << 62

PARAMETERS: Final = ("type", "key", "turn", "what", "state")
"""What the job gets."""


class What(StrEnum):
    """What happened to an actor."""

    CREATED = "created"
    UPDATED = "updated"
    """It took a turn, or was edited."""
    REMOVED = "removed"


def history_job(
    terms: ActorTerms, actor: UUID, name: tuple[str, str], turn: int, what: What, state: bytes
) -> Submission | None:
    """The job that hears of this commit, which left this state; None if the type has none."""
    how = terms.history
    if how is None:
        return None
    type, key = name
    given = (type, key, turn, what.value, Raw(state))
    number = _REMOVAL if what is What.REMOVED else turn
    return Submission(
        derive_id(derive_id(actor, _BASE), number),
        how.kind,
        _packer.encode(dict(zip(PARAMETERS, given, strict=True))),
        how.queue,
        how.target,
        how.priority,
        options=how.options,
    )
