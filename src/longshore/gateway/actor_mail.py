"""What an actor has not read, its last turns, and what it waits for, over HTTP."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Final
from uuid import UUID

from msgspec import Meta, Struct
from starlette.responses import Response

from longshore.client.actor import check_done, explained
from longshore.client.actor_json import mail_json, turns_json
from longshore.core.access import Right
from longshore.errors import InvalidInput
from longshore.gateway.models import ActorChanged, ShownTimer
from longshore.gateway.operation import Call, Operation, answer
from longshore.model.actor import ActorStatus, MailAction

_ACTOR: Final = "/dispatcher/actors/{type}/{key}"


class MailQuery(Struct, frozen=True):
    """How much of a mailbox to show."""

    limit: Annotated[int, Meta(ge=1, le=1000)] = 100


class SortBody(Struct, frozen=True, forbid_unknown_fields=True):
    """What to do with a message: `park` it, `put_back` a parked one, or `drop` it."""

    action: MailAction


class ShownMail(Struct, frozen=True):
    """A message that was not read."""

    number: int
    name: str
    args: Any
    at: datetime
    due_at: datetime | None
    parked: bool


class MailList(Struct, frozen=True):
    """The first messages that an actor has not read, parked ones too."""

    mail: list[ShownMail]


class ShownTurn(Struct, frozen=True):
    """A turn that was taken, and the state that it left."""

    turn: int
    at: datetime
    worker: UUID | None
    read: int
    version: int
    state: Any
    timers: list[ShownTimer]  # type: ignore[valid-type]


class TurnList(Struct, frozen=True):
    """The last turns of an actor, the newest first."""

    turns: list[ShownTurn]


class ActorWhy(Struct, frozen=True):
    """Why an actor is where it is."""

    type: str
    key: str
    status: ActorStatus
    why: str


async def list_mail(call: Call) -> Response:
    """Lists the first messages that an actor has not read."""
    names, limit = (call.name("type"), call.name()), call.query(MailQuery).limit
    return answer({"mail": mail_json(await call.connection.actors.mail(*names, limit))})


async def sort_mail(call: Call) -> Response:
    """Parks a message, puts it back or drops it."""
    type, key, number = call.name("type"), call.name(), _number(call.name("number"))
    action = (await call.body(SortBody)).action
    verdict = await call.connection.actors.sort_mail(type, key, number, action)
    called = f"actor {type} '{key}'"
    check_done(called, verdict, f"there is no message {number}, or no {called}")
    return answer({"type": type, "key": key, "verdict": verdict.value})


def _number(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        raise InvalidInput(f"{text[:80]!r} is no message; give its number")
    return int(text)


async def list_turns(call: Call) -> Response:
    """Lists the last turns of an actor."""
    turns = await call.connection.actors.turns(call.name("type"), call.name())
    return answer({"turns": turns_json(turns)})


async def explain_actor(call: Call) -> Response:
    """Says in words what an actor waits for."""
    actor, why = await explained(call.connection, call.name("type"), call.name())
    return answer({"type": actor.type, "key": actor.key, "status": actor.status, "why": why})


ACTOR_MAIL_OPERATIONS: Final = (
    Operation(
        method="GET",
        path=f"{_ACTOR}/why",
        id="explain_actor",
        needs=Right.READ,
        summary="Say in words what an actor waits for.",
        do=explain_actor,
        answers={200: ActorWhy},
    ),
    Operation(
        method="GET",
        path=f"{_ACTOR}/turns",
        id="list_turns",
        needs=Right.READ,
        summary="List the last turns of an actor, the newest first.",
        do=list_turns,
        answers={200: TurnList},
    ),
    Operation(
        method="GET",
        path=f"{_ACTOR}/mail",
        id="list_mail",
        needs=Right.READ,
        summary="List the first messages that an actor has not read, parked ones too.",
        do=list_mail,
        query=MailQuery,
        answers={200: MailList},
    ),
    Operation(
        method="POST",
        path=f"{_ACTOR}/mail/{{number}}",
        id="sort_mail",
        needs=Right.ADMIN,
        summary="Park a message of an actor, put it back, or drop it.",
        do=sort_mail,
        body=SortBody,
        answers={200: ActorChanged},
    ),
)
