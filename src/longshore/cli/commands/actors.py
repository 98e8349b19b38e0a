"""`longshore actors` and `longshore actor`: look at actors, write to them, and change them."""

from __future__ import annotations

from collections.abc import Callable
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
from longshore.client.actor import ASK_S, check_done, resting
from longshore.client.actor_by_name import check_fields, newest
from longshore.client.actor_decorator import actor_terms
from longshore.client.actor_json import actor_json, mail_json, turns_json
from longshore.client.connection import Connection
from longshore.client.ids import fresh_id
from longshore.client.kind import Terms
from longshore.client.pairs import value_of, values_of
from longshore.errors import AskFailed, InvalidArguments, NotFinished, from_code
from longshore.model.actor import (
    Actor,
    ActorFilter,
    ActorStatus,
    ActorVerdict,
    MailAction,
    Message,
    NewActor,
    Reply,
    ReplyTo,
)
from longshore.payload.schemas import nearest
from longshore.payload.values import pack, pack_arguments, unpack

_ACTIONS: Final = (
    "start",
    "send",
    "ask",
    "show",
    "why",
    "turns",
    "mail",
    "pause",
    "resume",
    "stop",
    "edit",
    "park",
    "put-back",
    "drop",
    "resolve",
)
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


@click.command(
    name="actors",
    epilog=examples(
        "longshore actors",
        "longshore actors --type Subscription --status failed",
        "longshore actors --watch",
    ),
)
@click.option("--type", metavar="TYPE", help="Only actors of this type.")
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
    """List actors by type and key."""
    status = None if given["status"] is None else ActorStatus(given["status"])
    most = given["limit"]

    async def look(connection: Connection) -> list[Actor]:
        found: list[Actor] = []
        async for actor in connection.actors.all(ActorFilter(given["type"], status, limit=most)):
            found.append(actor)
            if len(found) == most:
                break
        return found

    def view(found: list[Actor]) -> View:
        return View([actors_table(found, datetime.now(UTC))], "no such actors")

    show(context, Shown(look, lambda found: [actor_json(one) for one in found], view))


@click.command(
    name="actor",
    options_metavar="[OPTIONS]",
    epilog=examples(
        "longshore actor start Subscription ann customer=Ann",
        "longshore actor send Subscription ann upgrade plan=pro",
        "longshore actor ask Subscription ann upgrade plan=pro --within 5s",
        "longshore actor show Subscription ann",
        "longshore actor why Subscription ann",
        "longshore actor turns Subscription ann",
        "longshore actor mail Subscription ann",
        "longshore actor pause Subscription ann",
        "longshore actor edit Subscription ann plan=gift",
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
    help=f"With ask: how long to wait for the reply ({ASK_S:g} s).",
)
@click.option(
    "--delay",
    metavar="DURATION",
    callback=lambda context, parameter, text: None if text is None else duration(text),
    help="With send: after how long the message arrives.",
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
    does so and prints the reply; `show` shows its state, timers and status; `why` says in words
    what it waits for; `turns` shows its last turns, `mail` what it has not read; `pause` lets it do
    nothing until `resume`, which also tries a failed turn again; `stop` removes it; `edit` changes
    fields of its state; `park` puts the message NUMBER aside, `put-back` undoes that, `drop`
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
    if action in ("send", "ask") and (not call.rest or "=" in call.rest[0]):
        raise click.UsageError(f"`actor {action}` needs the NAME of a message", call.context)
    if action in _SORTS and (len(call.rest) != 1 or not call.rest[0].isdigit()):
        raise click.UsageError(f"`actor {action}` needs the NUMBER of a message", call.context)
    if action == "edit" and not call.rest:
        raise click.UsageError("`actor edit` needs fields, like plan=pro", call.context)
    takes = ("send", "ask", "start", "edit", *_SORTS)
    if call.rest and action not in takes:
        raise click.UsageError(f"`actor {action}` takes no '{call.rest[0]}'", call.context)
    if call.context.params["delay"] is not None and action != "send":
        raise click.UsageError("--delay is for `actor send`", call.context)


# starting


def _start(call: _Call) -> None:
    fields = values_of(call.rest)

    async def start(connection: Connection) -> Any:
        version, info = newest(await connection.workers(), call.type)
        check_fields(call.type, fields, info)
        state = pack(fields, f"the state of {call.called}")
        terms = actor_terms(Terms.of_kind(info))
        new = NewActor(fresh_id(), call.type, call.key, state, version, terms)
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
        await _sent(connection, message)
        return await connection.actors.reply(message.id, within_s)

    reply = ask(call.context, wait)
    if reply is None:
        raise NotFinished(
            f"{call.called} has not replied within {within_s:g} s; the message stays in its "
            f"mailbox. `longshore actor why {call.type} {call.key}` says what it waits for"
        )
    if reply.error is not None:
        raise AskFailed(f"{call.called} answered with an error: {reply.error.message}")
    print_json(jsonable.payload(reply.result))


# looking


def _show(call: _Call) -> None:
    found = ask(call.context, lambda connection: connection.actors.show(call.type, call.key))
    _print(call, actor_json(found, whole=True), actor_view(found, datetime.now(UTC)))


def _why(call: _Call) -> None:
    async def look(connection: Connection) -> tuple[Actor, str]:
        found = await connection.actors.show(call.type, call.key)
        if found.job is None:
            return found, resting(found)
        return found, (await connection.why(found.job)).why

    found, why = ask(call.context, look)
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
        state = unpack(found.state)
        for name in fields:
            if name not in state:
                raise InvalidArguments(
                    f"{call.called} has no field '{name}'{nearest(name, state)}; it has: "
                    f"{', '.join(state)}"
                )
        packed = pack(state | fields, f"the state of {call.called}")
        names = (call.type, call.key, packed, found.version)
        return await connection.actors.edit(*names, turn=found.turn)

    _done(call, ask(call.context, edit), f"{call.called} is changed")


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
    "show": _show,
    "why": _why,
    "turns": _turns,
    "mail": _mail,
    "edit": _edit,
}
