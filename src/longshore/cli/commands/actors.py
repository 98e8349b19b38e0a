"""`longshore actors` and `longshore actor`: look at actors, write to them, and change them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final, NamedTuple

import click

from longshore.cli.options import Whole, ask, client_options, duration, examples
from longshore.cli.view.actors import (
    actor_view,
    actors_table,
    mail_table,
    turns_table,
)
from longshore.cli.view.show import View, print_answer, print_json, print_text, print_view
from longshore.cli.view.watching import Shown, show, watch_options
from longshore.client import jsonable
from longshore.client.actor import ASK_S, check_done, check_turn, explained
from longshore.client.actor_by_name import KnownHandlers, check_fields, new_actor, newest, told_of
from longshore.client.actor_json import actor_json, mail_json, turns_json
from longshore.client.connection import Connection
from longshore.client.ids import fresh_id
from longshore.client.pairs import value_of, values_of
from longshore.errors import AskFailed, InvalidArguments, InvalidInput, NotFinished, from_code
from longshore.model.actor import (
    Actor,
    ActorFilter,
    ActorStatus,
    ActorVerdict,
    MailAction,
    Message,
    Reply,
    ReplyTo,
)
from longshore.model.worker import WorkerView
from longshore.payload.listed import listed_value, listed_values
from longshore.payload.schemas import nearest
from longshore.payload.values import pack, pack_arguments, unpack

_ACTIONS: Final = (
    "start",
    "send",
    "ask",
    "read",
    "show",
    "why",
    "turns",
    "mail",
    "pause",
    "resume",
    "stop",
    "edit",
    "restart",
    "park",
    "put-back",
    "drop",
    "resolve",
)
MOST_TURNS: Final = 2**63 - 1
_SORTS: Final = {
    "park": (MailAction.PARK, "is parked"),
    "put-back": (MailAction.PUT_BACK, "is back in the mailbox"),
    "drop": (MailAction.DROP, "is gone"),
}
_WORDS: Final = {
    "pause": "is paused: messages and timers wait",
    "resume": "goes on",
    "stop": "is stopped",
}


class _Call(NamedTuple):
    """What the command line asks for."""

    context: click.Context
    type: str
    key: str
    rest: tuple[str, ...]

    @property
    def called(self) -> str:
        return f"actor {self.type} '{self.key}'"

    @property
    def as_json(self) -> bool:
        as_json: bool = self.context.params["as_json"]
        return as_json

    @property
    def turn(self) -> int | None:
        turn: int | None = self.context.params["turn"]
        return turn


@click.command(
    name="actors",
    epilog=examples(
        "longshore actors",
        "longshore actors Subscription plan=pro",
        "longshore actors Subscription --status failed",
        "longshore actors --watch",
    ),
)
@click.argument("given_type", metavar="[TYPE]", required=False)
@click.argument("fields", nargs=-1, metavar="[FIELD=VALUE]…")
@click.option("--type", metavar="TYPE", help="Only actors of this type, as TYPE.")
@click.option(
    "--status",
    type=click.Choice([status.value for status in ActorStatus]),
    metavar="STATUS",
    help=f"Only actors with this status: {', '.join(ActorStatus)}.",
)
@click.option(
    "--limit",
    type=Whole(1, 10_000),
    metavar="N",
    default=50,
    help="The most actors to list (50); up to 10000.",
)
@watch_options
@client_options
def list_actors(context: click.Context, /, **given: Any) -> None:
    """List actors by type and key.

    With fields, only those with these values. The type's class says which fields it is listed by:
    @app.actor(listed=("plan",)).
    """
    type, fields = _wanted(context, given)
    status = None if given["status"] is None else ActorStatus(given["status"])
    most = given["limit"]

    async def look(connection: Connection) -> list[Actor]:
        if fields:
            _check_listed(await connection.workers(), type or "", fields)
        found: list[Actor] = []
        wanted = ActorFilter(type, status, limit=most, fields=fields)
        async for actor in connection.actors.all(wanted):
            found.append(actor)
            if len(found) == most:
                break
        return found

    def view(found: list[Actor]) -> View:
        return View([actors_table(found, datetime.now(UTC))], "no such actors")

    show(context, Shown(look, lambda found: [actor_json(one) for one in found], view))


def _wanted(context: click.Context, given: dict[str, Any]) -> tuple[str | None, dict[str, str]]:
    """The type and the fields to list by; a type may come as an option too."""
    words = [one for one in (given["given_type"], *given["fields"]) if one is not None]
    type = given["type"]
    if words and "=" not in words[0]:
        if type is not None and type != words[0]:
            raise click.UsageError(f"TYPE is '{words[0]}', and --type '{type}'", context)
        type, *words = words
    if words and type is None:
        raise click.UsageError("to list by fields, give the TYPE first", context)
    fields = values_of(words)
    return type, {name: listed_value(f"'{name}'", value) for name, value in fields.items()}


def _check_listed(workers: Sequence[WorkerView], type: str, fields: Collection[str]) -> None:
    """Raises if live workers serve the type, and it is not listed by one of these fields."""
    try:
        _, info = newest(workers, type)
    except InvalidInput:
        return
    for name in fields:
        if name not in info.listed:
            raise InvalidInput(
                f"actor '{type}' is not listed by '{name}'{nearest(name, info.listed)}; it is "
                f"listed by: {', '.join(info.listed) or 'no field'}"
            )


@click.command(
    name="actor",
    options_metavar="[OPTIONS]",
    epilog=examples(
        "longshore actor start Subscription ann customer=Ann",
        "longshore actor send Subscription ann upgrade plan=pro",
        "longshore actor ask Subscription ann upgrade plan=pro --within 5s",
        "longshore actor read Subscription ann summary",
        "longshore actor show Subscription ann",
        "longshore actor why Subscription ann",
        "longshore actor turns Subscription ann",
        "longshore actor mail Subscription ann",
        "longshore actor pause Subscription ann",
        "longshore actor edit Subscription ann plan=gift",
        "longshore actor edit Subscription ann plan=gift --turn 7",
        "longshore actor restart Subscription ann customer=Ann",
        "longshore actor park Subscription ann 7",
        "longshore actor resolve hx1QnT…3w true",
    ),
)
@click.argument("action", type=click.Choice(_ACTIONS), metavar="|".join(_ACTIONS))
@click.argument("type", metavar="TYPE|TOKEN")
@click.argument("key", required=False, metavar="KEY|VALUE")
@click.argument("rest", nargs=-1, metavar="[NAME|NUMBER] [KEY=VALUE]…")
@click.option(
    "--within",
    metavar="DURATION",
    default=f"{ASK_S:g}",
    callback=lambda context, parameter, text: duration(text),
    help=f"With ask and read: how long to wait for the reply ({ASK_S:g} s).",
)
@click.option(
    "--delay",
    metavar="DURATION",
    callback=lambda context, parameter, text: None if text is None else duration(text),
    help="With send: after how long the message arrives.",
)
@click.option(
    "--turn",
    type=Whole(0, MOST_TURNS),
    metavar="N",
    help="With edit and restart: only if its last turn is still N (see `show`).",
)
@client_options
def actor(
    context: click.Context,
    /,
    action: str,
    type: str,
    key: str | None,
    rest: tuple[str, ...],
    **given: Any,
) -> None:
    """Look at one actor, write to it, or change it.

    `start` starts one with these fields; `send` sends the message NAME with these arguments; `ask`
    does so and prints the reply; `read` calls the handler NAME, which is marked with
    @longshore.reads, and prints what it answers; `show` shows its state, timers and status; `why`
    says in words what it waits for; `turns` shows its last turns, `mail` what it has not read;
    `pause` lets it do nothing until `resume`, which also tries a failed turn again; `stop` removes
    it; `edit` changes fields of its state; `restart` starts it anew with these fields, without its
    timers: its mail stays; `park` puts the message NUMBER aside, `put-back` undoes that, `drop`
    removes it for good. `resolve` gives the callback with this TOKEN its VALUE, which is JSON or
    plain text; only the first one counts.

    Exits with 3 if there is no such actor, with 5 if no reply came in time, with 2 if it is in a
    state in which that cannot be done.
    """
    if action == "resolve":
        _resolve(context, type, (*(() if key is None else (key,)), *rest))
        return
    if key is None:
        raise click.UsageError(f"`actor {action}` needs the KEY of an actor", context)
    call = _Call(context, type, key, rest)
    _check_rest(call, action)
    if action in _SORTS:
        _sort(call, *_SORTS[action])
    elif action in _WORDS:
        _change(call, action)
    else:
        _DO[action](call)


def _check_rest(call: _Call, action: str) -> None:
    """Raises if an action lacks what it needs, or has what it does not take."""
    if action in ("send", "ask", "read") and (not call.rest or "=" in call.rest[0]):
        raise click.UsageError(f"`actor {action}` needs the NAME of a handler", call.context)
    if action in _SORTS and (len(call.rest) != 1 or not call.rest[0].isdigit()):
        raise click.UsageError(f"`actor {action}` needs the NUMBER of a message", call.context)
    if action == "edit" and not call.rest:
        raise click.UsageError("`actor edit` needs fields, like plan=pro", call.context)
    takes = ("send", "ask", "read", "start", "edit", "restart", *_SORTS)
    if call.rest and action not in takes:
        raise click.UsageError(f"`actor {action}` takes no '{call.rest[0]}'", call.context)
    if call.context.params["delay"] is not None and action != "send":
        raise click.UsageError("--delay is for `actor send`", call.context)
    if call.turn is not None and action not in ("edit", "restart"):
        raise click.UsageError("--turn is for `actor edit` and `actor restart`", call.context)


# starting


def _start(call: _Call) -> None:
    fields = values_of(call.rest)

    async def start(connection: Connection) -> Any:
        new = await new_actor(connection, fresh_id(), call.type, call.key, fields)
        [answer] = await connection.actors.start((new,))
        return answer

    answer = ask(call.context, start)
    if answer.code:
        raise from_code(answer.code, answer.message)
    print_answer(call.as_json, {"id": str(answer.id)}, f"{call.called} is started")


# messages


def _message(call: _Call, *, asks: bool = False) -> Message:
    name, *arguments = call.rest
    args = pack_arguments(values_of(arguments), f"{call.type}.{name}")
    delay_s, to = call.context.params["delay"], ReplyTo() if asks else None
    return Message(fresh_id(), call.type, call.key, name, args, delay_s, to)


async def _sent(connection: Connection, message: Message) -> None:
    await KnownHandlers(connection).check(message)
    [answer] = await connection.actors.send((message,))
    if answer.code:
        raise from_code(answer.code, answer.message)


def _send(call: _Call) -> None:
    message = _message(call)
    ask(call.context, lambda connection: _sent(connection, message))
    words = f"message '{message.name}' is in the mailbox of {call.called}"
    print_answer(call.as_json, {"id": str(message.id)}, words)


def _ask(call: _Call) -> None:
    message, within_s = _message(call, asks=True), call.context.params["within"]

    async def wait(connection: Connection) -> Reply | None:
        await KnownHandlers(connection).check(message)
        return await connection.actors.ask(message, within_s)

    reply = ask(call.context, wait)
    if reply is None:
        raise NotFinished(
            f"{call.called} has not replied within {within_s:g} s; the message stays in its "
            f"mailbox. `longshore actor why {call.type} {call.key}` says what it waits for"
        )
    _print_reply(call, reply)


def _read(call: _Call) -> None:
    name, *arguments = call.rest
    args = pack_arguments(values_of(arguments), f"{call.type}.{name}")
    within_s = call.context.params["within"]

    async def read(connection: Connection) -> Reply | None:
        return await connection.actors.read(call.type, call.key, name, args, within_s)

    reply = ask(call.context, read)
    if reply is None:
        raise NotFinished(
            f"{call.called} was not read by '{name}' within {within_s:g} s; `longshore capacity` "
            "says whether a worker is free for it"
        )
    _print_reply(call, reply)


def _print_reply(call: _Call, reply: Reply) -> None:
    if reply.error is not None:
        raise AskFailed(f"{call.called} answered with an error: {reply.error.message}")
    print_json(jsonable.payload(reply.result))


# looking


def _show(call: _Call) -> None:
    found = ask(call.context, lambda connection: connection.actors.show(call.type, call.key))
    _print(call, actor_json(found, whole=True), actor_view(found, datetime.now(UTC)))


def _why(call: _Call) -> None:
    found, why = ask(call.context, lambda one: explained(one, call.type, call.key))
    if call.as_json:
        print_json({**actor_json(found), "why": why})
    else:
        print_text(f"{call.called} is {found.status}: {why}")


def _turns(call: _Call) -> None:
    found = ask(call.context, lambda connection: connection.actors.turns(call.type, call.key))
    _print(call, turns_json(found), View([turns_table(found)]))


def _mail(call: _Call) -> None:
    found = ask(call.context, lambda connection: connection.actors.mail(call.type, call.key))
    _print(call, mail_json(found), View([mail_table(found)], "it has read all its messages"))


def _print(call: _Call, document: Any, view: View) -> None:
    if call.as_json:
        print_json(document)
    else:
        print_view(view)


# changing


def _change(call: _Call, action: str) -> None:
    async def change(connection: Connection) -> ActorVerdict:
        if action == "stop":
            return await connection.actors.stop(call.type, call.key)
        return await connection.actors.pause(call.type, call.key, action == "pause")

    _done(call, ask(call.context, change), f"{call.called} {_WORDS[action]}")


def _edit(call: _Call) -> None:
    fields = values_of(call.rest)

    async def edit(connection: Connection) -> ActorVerdict:
        found = await connection.actors.show(call.type, call.key)
        check_turn(call.called, found, call.turn)
        state = unpack(found.state)
        info = await told_of(connection, call.type, found.version)
        if info is None:
            _check_known(call, fields, state)
        else:
            check_fields(call.type, state | fields, info)
        packed = pack(state | fields, f"the state of {call.called}")
        names = (call.type, call.key, packed, found.version)
        listed = listed_values(call.type, packed, found.listed)
        return await connection.actors.edit(*names, turn=found.turn, listed=listed)

    _done(call, ask(call.context, edit), f"{call.called} is changed")


def _restart(call: _Call) -> None:
    fields = values_of(call.rest)

    async def restart(connection: Connection) -> ActorVerdict:
        if call.turn is not None:
            found = await connection.actors.show(call.type, call.key)
            check_turn(call.called, found, call.turn)
        new = await new_actor(connection, fresh_id(), call.type, call.key, fields)
        names = (call.type, call.key, new.state, new.version)
        edit = connection.actors.edit
        return await edit(*names, turn=call.turn, restart=True, listed=new.listed)

    _done(call, ask(call.context, restart), f"{call.called} starts anew")


def _check_known(call: _Call, fields: dict[str, Any], state: dict[str, Any]) -> None:
    """Raises if a field is not in the state: no live worker tells which fields there are."""
    for name in fields:
        if name not in state:
            raise InvalidArguments(
                f"{call.called} has no field '{name}'{nearest(name, state)}; it has: "
                f"{', '.join(state)}"
            )


def _sort(call: _Call, action: MailAction, words: str) -> None:
    number = int(call.rest[0])
    sort = partial(_sorted, call, number, action)
    missing = f"there is no message {number}, or no {call.called}"
    _done(call, ask(call.context, sort), f"message {number} {words}", missing)


async def _sorted(
    call: _Call, number: int, action: MailAction, connection: Connection
) -> ActorVerdict:
    return await connection.actors.sort_mail(call.type, call.key, number, action)


def _resolve(context: click.Context, token: str, given: tuple[str, ...]) -> None:
    if len(given) > 1:
        raise click.UsageError(f"`actor resolve` takes one value, not '{given[1]}' too", context)
    value = value_of("the value", given[0]) if given else None
    packed = pack(value, "the value of a callback")
    verdict = ask(context, lambda connection: connection.actors.resolve(token, packed))
    missing = "the actor that waits for this callback is gone"
    check_done("such actor", verdict, missing)
    words = "is resolved" if verdict is ActorVerdict.DONE else "was resolved before: that counts"
    print_answer(context.params["as_json"], {"verdict": verdict.value}, f"the callback {words}")


def _done(call: _Call, verdict: ActorVerdict, words: str, missing: str = "") -> None:
    check_done(call.called, verdict, missing)
    document = {"type": call.type, "key": call.key, "verdict": verdict.value}
    print_answer(call.as_json, document, words)


_DO: Final[dict[str, Callable[[_Call], None]]] = {
    "start": _start,
    "send": _send,
    "ask": _ask,
    "read": _read,
    "show": _show,
    "why": _why,
    "turns": _turns,
    "mail": _mail,
    "edit": _edit,
    "restart": _restart,
}
