"""Actors over HTTP: start, list, show, write to, change, stop."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, Any, Final

import msgspec
from msgspec import UNSET, Meta, Struct, structs
from starlette.responses import Response

from longshore.client.actor import ASK_S, check_done
from longshore.client.actor_by_name import check_fields, new_actor, told_of
from longshore.client.actor_json import actor_json
from longshore.client.jsonable import payload
from longshore.client.pairs import values_of
from longshore.core.actor_limits import MAX_LISTED_CHARS, MAX_LISTED_FIELDS
from longshore.errors import (
    AskFailed,
    Conflict,
    InvalidInput,
    LongshoreError,
    NotFinished,
    NotFound,
    from_code,
)
from longshore.gateway.batches import fingerprint
from longshore.gateway.ids import has_key, new_id
from longshore.gateway.models import NewActorBody, NewAsk, NewMessage, NewState, Seconds
from longshore.gateway.operation import Call, answer
from longshore.gateway.problems import KeyReused, PreconditionFailed, PreconditionRequired
from longshore.model.actor import (
    Actor,
    ActorFilter,
    ActorStatus,
    ActorVerdict,
    Message,
    NewActor,
    ReplyTo,
)
from longshore.payload.listed import listed_value, listed_values
from longshore.payload.values import pack, pack_arguments
from longshore.wire.actor_messages import StartAnswer

_TAG: Final = re.compile(r'"turn-(\d{1,18})"')


ListedBy = Annotated[str, Meta(pattern="^[^=]+=", max_length=2 * MAX_LISTED_CHARS)]


class ActorsQuery(Struct, frozen=True):
    """Which actors to list."""

    type: str | None = None
    status: ActorStatus | None = None
    field: Annotated[tuple[ListedBy, ...], Meta(max_length=MAX_LISTED_FIELDS)] = ()
    """Only actors of `type` that are listed by this value, as `plan=pro`; several: by all."""
    after: str | None = None
    """The cursor: the `next` of the page before."""
    limit: Annotated[int, Meta(ge=1)] = 50


class AskQuery(Struct, frozen=True):
    """How long to wait for the reply."""

    wait_s: Seconds | None = None


def _called(call: Call) -> str:
    return f"actor {call.name('type')} '{call.name()}'"


def tag_of(actor: Actor) -> str:
    """The version of an actor's state: the turn that left it."""
    return f'"turn-{actor.turn}"'


async def start(call: Call) -> Response:
    """Starts an actor with these fields of its class."""
    wanted = await call.body(NewActorBody)
    names = (wanted.type, wanted.key, wanted.fields)
    new = await new_actor(call.connection, new_id(), *names)
    if has_key():
        request = fingerprint(wanted)
        new = structs.replace(new, terms=structs.replace(new.terms, request=request))
    is_repeat = await _is_there(call, new)
    [done] = await call.connection.actors.start((new,), reuse=wanted.reuse)
    if done.code:
        raise await _not_started(call, new, done)
    await _is_there(call, new)
    document = {"id": str(done.id), "type": wanted.type, "key": wanted.key}
    is_new = not (is_repeat or done.existing)
    return answer({**document, "existing": done.existing}, 201 if is_new else 200)


async def _is_there(call: Call, new: NewActor) -> bool:
    """Whether a request with the same key has started the actor; raises if its body was another."""
    if not has_key():
        return False
    try:
        found = await call.connection.actors.show(new.type, new.key)
    except NotFound:
        return False
    if found.id == new.id and found.terms.request != new.terms.request:
        raise _key_reused(f"actor {new.type} '{new.key}'")
    return found.id == new.id


async def _not_started(call: Call, new: NewActor, refused: StartAnswer) -> LongshoreError:
    """Why an actor was not started: its key is taken, or the request's key was used before."""
    if has_key() and refused.code == Conflict.code:
        try:
            await call.connection.actors.show(new.type, new.key)
        except NotFound:
            return _key_reused("another actor")
    return from_code(refused.code, refused.message)


def _key_reused(what: str) -> KeyReused:
    return KeyReused(
        f"this Idempotency-Key started {what} before, with another body; give a new request a new "
        "key"
    )


async def list_actors(call: Call) -> Response:
    """Lists actors by type and key."""
    query = call.query(ActorsQuery)
    limit = min(query.limit, call.settings.max_page)
    after = None if query.after is None else cursor_of(query.after)
    wanted = ActorFilter(query.type, query.status, after, limit, listed_by(query.type, query.field))
    page = await call.connection.actors.page(wanted)
    cursor = None if page.after is None else msgspec.json.encode(page.after).decode()
    headers = None if cursor is None else call.next_link(after=cursor)
    actors = [actor_json(one) for one in page.actors]
    return answer({"actors": actors, "next": cursor}, headers=headers)


def listed_by(type: str | None, terms: Sequence[str]) -> dict[str, str]:
    """The values that actors are to be listed by, of terms like `plan=pro`."""
    if terms and type is None:
        raise InvalidInput("to list by fields, name the type of the actors")
    return {name: listed_value(f"'{name}'", value) for name, value in values_of(terms).items()}


def cursor_of(text: str) -> tuple[str, str]:
    """The type and the key after which a page begins."""
    try:
        return msgspec.json.decode(text, type=tuple[str, str])
    except (msgspec.DecodeError, UnicodeError):
        raise InvalidInput(f"after is {text[:80]!r}; give the `next` of a page") from None


async def show_actor(call: Call) -> Response:
    """Shows an actor as its last turn left it."""
    found = await call.connection.actors.show(call.name("type"), call.name())
    return answer(actor_json(found, whole=True), headers={"ETag": tag_of(found)})


# messages


async def send(call: Call) -> Response:
    """Puts a message into the mailbox of an actor."""
    wanted = await call.body(NewMessage)
    delay_s = None if wanted.delay_s is UNSET else wanted.delay_s
    message = _message(call, wanted, delay_s=delay_s)
    await call.gateway.handlers.check(message)
    [done] = await call.connection.actors.send((message,))
    if done.code:
        raise from_code(done.code, done.message)
    return answer({"id": str(message.id)}, 202)


async def ask(call: Call) -> Response:
    """Sends a message to an actor, and waits for its reply."""
    wanted = await call.body(NewAsk)
    given = call.wait_s(call.query(AskQuery).wait_s)
    wait_s = given or min(ASK_S, call.settings.max_long_poll_s)
    message = _message(call, wanted, reply_to=ReplyTo())
    await call.gateway.handlers.check(message)
    reply = await call.unless_gone(call.connection.actors.ask(message, wait_s))
    if reply is None:
        raise NotFinished(
            f"{_called(call)} has not replied within {wait_s:g} s; the message stays in its "
            "mailbox. Ask again with the same id, or the same Idempotency-Key, to go on waiting"
        )
    if reply.error is not None:
        raise AskFailed(f"{_called(call)} answered with an error: {reply.error.message}")
    document = {"id": str(message.id), "result": payload(reply.result)}
    return answer(document, headers=call.applied(wait_s))


def _message(call: Call, wanted: NewMessage | NewAsk, **more: Any) -> Message:
    type, key = call.name("type"), call.name()
    args = pack_arguments(wanted.args, f"{type}.{wanted.name}")
    id = new_id() if wanted.id is UNSET else wanted.id
    return Message(id, type, key, wanted.name, args, **more)


# changing


async def pause(call: Call) -> Response:
    """Pauses an actor after the turn that runs."""
    actors = call.connection.actors
    return _changed(call, await actors.pause(call.name("type"), call.name(), True))


async def resume(call: Call) -> Response:
    """Lets an actor go on; one that failed tries its turn again."""
    actors = call.connection.actors
    return _changed(call, await actors.pause(call.name("type"), call.name(), False))


async def stop(call: Call) -> Response:
    """Removes an actor, with its mailbox and timers."""
    return _changed(call, await call.connection.actors.stop(call.name("type"), call.name()))


async def edit(call: Call) -> Response:
    """Replaces the state of an actor, if it is still the one that its sender has seen."""
    given = call.request.headers.get("if-match")
    if given is None:
        raise PreconditionRequired(
            f"a new state for {_called(call)} needs If-Match, with the ETag of the one it replaces"
        )
    tag = _TAG.fullmatch(given.strip())
    wanted = await call.body(NewState)
    found = await call.connection.actors.show(call.name("type"), call.name())
    if tag is None or int(tag[1]) != found.turn:
        raise _has_changed(call, found)
    state = pack(wanted.state, f"the state of {_called(call)}")
    version = found.version if wanted.version is UNSET else wanted.version
    if (info := await told_of(call.connection, found.type, version)) is not None:
        check_fields(found.type, wanted.state, info)
    listed = listed_values(found.type, state, found.listed)
    names = (found.type, found.key, state, version)
    verdict = await call.connection.actors.edit(
        *names, turn=found.turn, restart=wanted.restart, listed=listed
    )
    if verdict is ActorVerdict.CHANGED:
        raise _has_changed(call, found)
    return _changed(call, verdict)


def _has_changed(call: Call, found: Actor) -> PreconditionFailed:
    return PreconditionFailed(
        f"{_called(call)} has taken another turn meanwhile; look at it and try again",
        {"ETag": tag_of(found)},
    )


def _changed(call: Call, verdict: ActorVerdict) -> Response:
    check_done(_called(call), verdict)
    names = {"type": call.name("type"), "key": call.name()}
    return answer({**names, "verdict": verdict.value})
