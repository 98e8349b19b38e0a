"""Says in words why an actor does nothing now, or what it does, and what would change that."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final, assert_never

from longshore.model.actor import Actor, ActorStatus

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def why_actor(actor: Actor, of_turn: str = "") -> str:
    """One or two sentences; `of_turn` is what `why` says of the job of its next turn."""
    match actor.status:
        case ActorStatus.PAUSED:
            return f"it is paused, {_unread(actor)}; {_command(actor, 'resume')} lets it go on" + (
                f". Its turn: {of_turn}" if of_turn and not of_turn.startswith("its actor") else ""
            )
        case ActorStatus.STOPPING:
            return f"it is being removed, which its turn holds up: {of_turn or 'it has just ended'}"
        case ActorStatus.FAILED:
            return (
                f"its turn {of_turn or 'failed'}. Its state and its mailbox are as before. "
                f"{_command(actor, 'resume')} tries the turn again; `actor park` and `actor drop` "
                "take a message out of its way"
            )
        case ActorStatus.SLEEPING:
            return _sleeping(actor, of_turn)
        case ActorStatus.READY:
            return f"its turn is ready: {of_turn or 'it has just been taken'}"
        case ActorStatus.RUNNING:
            return f"its turn is {of_turn or 'being taken'}{_read_or_behind(actor)}"
        case _:
            assert_never(actor.status)


def _sleeping(actor: Actor, of_turn: str) -> str:
    if actor.next_at is None:
        return "it sleeps until a message comes"
    if actor.error is not None and of_turn:
        return f"its turn is {of_turn}"
    until = f"it sleeps until {actor.next_at:%Y-%m-%d %H:%M:%S} UTC"
    due = [
        one.name for one in actor.timers if one.at is not None and _time(one.at) == actor.next_at
    ]
    if due:
        return f"{until}, when timer '{due[0]}' is due, or until a message comes"
    return f"{until}, when a delayed message is due, or until another one comes"


def _time(micros: int) -> datetime:
    return _EPOCH + timedelta(microseconds=micros)


def _unread(actor: Actor) -> str:
    return f"with {actor.unread:,} unread message{'' if actor.unread == 1 else 's'}"


def _read_or_behind(actor: Actor) -> str:
    """The mail of an actor whose turn runs: until it ends, what it has read is unread, too."""
    if not actor.unread:
        return ""
    return f"; it has {actor.unread:,} unread, with what the turn handles"


def _command(actor: Actor, action: str) -> str:
    return f"`longshore actor {action} {actor.type} {actor.key}`"
