"""Actors as the JSON that `--json` prints and the HTTP API answers."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from msgspec import structs

from longshore.client import jsonable
from longshore.model.actor import Actor, MailView, Timer, TurnView, UndeliveredSend

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def actor_json(actor: Actor, *, whole: bool = False) -> dict[str, Any]:
    """An actor; a list has no states."""
    fields = {**structs.asdict(actor), "timers": [timer_json(one) for one in actor.timers]}
    state = fields.pop("state")
    shown: dict[str, Any] = jsonable.plain(fields)
    return {**shown, "state": jsonable.payload(state)} if whole else shown


def turns_json(turns: Sequence[TurnView]) -> list[dict[str, Any]]:
    """The last turns of an actor."""
    return [
        {
            **jsonable.plain(one),
            "state": jsonable.payload(one.state),
            "timers": [timer_json(timer) for timer in one.timers],
        }
        for one in turns
    ]


def mail_json(mail: Sequence[MailView]) -> list[dict[str, Any]]:
    """What an actor has not read."""
    return [{**jsonable.plain(one), "args": jsonable.payload(one.args or None)} for one in mail]


def timer_json(timer: Timer) -> dict[str, Any]:
    """A timer with its time as people write it."""
    at = None if timer.at is None else jsonable.time_text(moment(timer.at))
    args = jsonable.payload(timer.args or None)
    return {"name": timer.name, "at": at, "every_s": timer.every_s, "args": args}


def moment(micros: int) -> datetime:
    """The time that so many microseconds since 1970 are."""
    return _EPOCH + timedelta(microseconds=micros)


def undelivered_json(message: UndeliveredSend) -> dict[str, Any]:
    """A message of an application that reached nobody."""
    document = structs.asdict(message)
    return {**document, "id": str(message.id), "args": jsonable.payload(message.args or None)}
