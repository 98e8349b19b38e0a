"""What actors and messages to them may hold. Clients check it early, dispatchers again."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final
from uuid import UUID

from msgspec import structs

from longshore.core.histories import What, history_job
from longshore.core.limits import (
    MAX_ABOUT_BYTES,
    MAX_DURATION_S,
    MAX_FINGERPRINT_CHARS,
    MAX_KEY_CHARS,
    MAX_NAME_CHARS,
    check_length,
    check_name,
    check_submission,
    check_text,
)
from longshore.core.turns import REPLY_PREFIX, turn_job
from longshore.errors import InvalidInput
from longshore.model.actor import UNDELIVERED, ActorTerms, Message, NewActor, ReplyTo
from longshore.model.history import HistoryJob

NIL: Final = b"\xc0"
MAX_VERSION: Final = 1_000
MAX_LISTED_FIELDS: Final = 10
MAX_LISTED_CHARS: Final = 200
"""How long a value may be that actors are listed by, as JSON."""
MAX_ASKS: Final = 1_000
"""How many replies one request may wait for."""


def check_actor_type(type: object) -> None:
    """Raises `InvalidInput` unless this can name a type of actors."""
    check_name("the type of an actor", type)
    if "@" in str(type):
        raise InvalidInput(f"the type of an actor is {type!r}; it may not have an @")


def check_actor_name(type: object, key: object) -> None:
    """Raises `InvalidInput` unless these can name an actor."""
    check_actor_type(type)
    check_text("the key of an actor", key, MAX_KEY_CHARS)


def check_new_actor(actor: NewActor, most_bytes: int) -> None:
    """Raises `InvalidInput` if an actor cannot be started so."""
    check_actor_name(actor.type, actor.key)
    if not 1 <= actor.version <= MAX_VERSION:
        raise InvalidInput(f"version is {actor.version}; it must be from 1 to {MAX_VERSION:,}")
    check_state(actor.state, most_bytes)
    check_listed(f"actor '{actor.type}'", actor.listed)
    check_history(actor.terms.history)
    if actor.terms.request:
        check_text("request", actor.terms.request, MAX_FINGERPRINT_CHARS)
    turn = turn_job(actor.id, actor.type, actor.terms, actor.version, 1)
    check_submission(structs.replace(turn, options=actor.terms.options))
    if actor.terms.options.watchers:
        raise InvalidInput("the turns of an actor have no watchers; leave them out of its terms")


def check_state(state: bytes, most_bytes: int) -> None:
    """Raises `InvalidInput` if a state is too large."""
    if len(state) > most_bytes:
        raise InvalidInput(
            f"the state takes {len(state):,} bytes, more than max_value_bytes ({most_bytes:,}); "
            "keep large things elsewhere"
        )


def check_history(history: HistoryJob | None) -> None:
    """Raises `InvalidInput` if the job that hears of an actor's commits cannot be submitted."""
    sample = history_job(ActorTerms(history=history), UUID(int=0), ("", ""), 0, What.CREATED, NIL)
    if sample is not None:
        check_submission(sample)


def check_listed_names(what: str, names: Collection[str]) -> None:
    """Raises `InvalidInput` if actors cannot be listed by these fields."""
    if len(names) > MAX_LISTED_FIELDS:
        raise InvalidInput(
            f"{what} is listed by {len(names)} fields; at most {MAX_LISTED_FIELDS} are possible"
        )
    for name in names:
        check_length(f"{what}: the name of a field", name, MAX_NAME_CHARS)


def check_listed(what: str, listed: Mapping[str, str]) -> None:
    """Raises `InvalidInput` if an actor cannot be listed by these values."""
    check_listed_names(what, listed)
    for name, value in listed.items():
        check_length(f"{what}: the listed field '{name}'", value, MAX_LISTED_CHARS)


def check_message(message: Message, most_bytes: int) -> None:
    """Raises `InvalidInput` if a message cannot be sent."""
    check_actor_name(message.type, message.key)
    name = message.name
    if not name.isidentifier() or name == UNDELIVERED:
        raise InvalidInput(f"a message is called {name!r}; give it the name of a handler")
    check_length("the name of a message", name, MAX_NAME_CHARS)
    if message.actor is not None:
        raise InvalidInput(f"message '{name}' names an actor by id; only a resolve does that")
    if len(message.args) > most_bytes:
        raise InvalidInput(
            f"message '{name}' takes {len(message.args):,} bytes, more than max_value_bytes "
            f"({most_bytes:,}); keep large things elsewhere"
        )
    if message.delay_s is not None and not 0 <= message.delay_s <= MAX_DURATION_S:
        raise InvalidInput(f"message '{name}': delay_s is {message.delay_s!r}; give seconds")
    if message.reply_to is not None:
        _check_reply_to(name, message.reply_to)


def _check_reply_to(name: str, to: ReplyTo) -> None:
    if to == ReplyTo():
        return
    check_actor_name(to.type, to.key)
    if not to.name.startswith(REPLY_PREFIX):
        raise InvalidInput(f"message '{name}': its reply is called {to.name!r}, not 'reply:…'")
    check_length("the name of a reply", to.name, MAX_NAME_CHARS)
    if len(to.about) > MAX_ABOUT_BYTES:
        raise InvalidInput(f"message '{name}': about takes more than {MAX_ABOUT_BYTES:,} bytes")
