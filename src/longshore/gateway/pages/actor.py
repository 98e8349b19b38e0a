"""The page of one actor: what it waits for, its state, mailbox, timers and turns; and messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final
from urllib.parse import quote

import msgspec
from msgspec import Struct

from longshore.client import jsonable
from longshore.client.actor import explained
from longshore.client.actor_by_name import newest
from longshore.client.actor_json import moment
from longshore.client.connection import all_of
from longshore.core.access import Right
from longshore.core.timing import span
from longshore.errors import LongshoreError
from longshore.gateway.actors import tag_of
from longshore.gateway.operation import Call
from longshore.gateway.pages import parts
from longshore.gateway.pages.actors import actors_url
from longshore.gateway.pages.forms import Dialog, Field, button, fields_of
from longshore.gateway.pages.html import NOTHING, Html, h, joined
from longshore.gateway.pages.page import Page, Regions, View
from longshore.gateway.pages.tree import tree
from longshore.model.actor import (
    UNDELIVERED,
    Actor,
    ActorStatus,
    MailAction,
    MailView,
    Timer,
    TurnView,
)
from longshore.model.worker import KindInfo, Parameter, WorkerView
from longshore.payload.values import unpack

MOST_MAIL: Final = 50
MOST_STATE_BYTES: Final = 64 * 1024
"""The turns of an actor whose state is larger are not shown: each has a whole state."""


class Seen(Struct, frozen=True):
    """What the page shows."""

    actor: Actor
    why: str
    mail: Sequence[MailView]
    turns: Sequence[TurnView]
    info: KindInfo | None
    """What a live worker tells of the newest version of its type; None if none does."""
    version: int
    names: Mapping[str, str]
    """The names of workers by their ids."""


async def look(call: Call) -> Seen:
    """Asks for an actor, its mailbox and its last turns."""
    type, key = call.name("type"), call.name()
    actors = call.connection.actors
    (actor, why), workers = await all_of(
        [explained(call.connection, type, key), call.connection.workers()]
    )
    mail = await actors.mail(type, key, MOST_MAIL)
    turns = await _last_turns(call, actor)
    version, info = _told(workers, type)
    names = {str(one.info.id): one.info.name for one in workers if one.info.name}
    return Seen(actor, why, mail, turns, info, version, _had(actor, turns, names))


async def _last_turns(call: Call, actor: Actor) -> Sequence[TurnView]:
    """Its last turns; none before the first, or if its state is large."""
    if len(actor.state) > MOST_STATE_BYTES or not actor.turn:
        return ()
    return await call.connection.actors.turns(actor.type, actor.key)


def _told(workers: Sequence[WorkerView], type: str) -> tuple[int, KindInfo | None]:
    try:
        return newest(workers, type)
    except LongshoreError:
        return 0, None


def _had(actor: Actor, turns: Sequence[TurnView], names: Mapping[str, str]) -> dict[str, str]:
    ids = {str(actor.worker), *(str(one.worker) for one in turns)}
    return {id: name for id, name in names.items() if id in ids}


def show(seen: Seen, view: View) -> Regions:
    """The regions of the page."""
    return {
        "head": _head(seen, view),
        "error": _error(seen.actor),
        "facts": _facts(seen, view),
        "state": _state(seen, view),
        "messages": _messages(seen, view),
        "mail": _mail(seen, view),
        "timers": _timers(seen.actor, view),
        "turns": _turns(seen, view),
    }


def _path(actor: Actor) -> str:
    return f"dispatcher/actors/{quote(actor.type, safe='')}/{quote(actor.key, safe='')}"


def _called(actor: Actor) -> str:
    return f"{actor.type} “{actor.key}”"


# the head


def _head(seen: Seen, view: View) -> Html:
    actor = seen.actor
    title = joined(f"{actor.key} ", h("span", actor.type, class_="kind"))
    heading = parts.heading(title, parts.state(actor.status), _actions(seen, view))
    return joined(heading, h("p", h("strong", "Why: "), seen.why, class_="why"))


def _actions(seen: Seen, view: View) -> list[Html]:
    actor = seen.actor
    if not view.may(Right.ADMIN) or actor.status is ActorStatus.STOPPING:
        return []
    path, name = _path(actor), _called(actor)
    if actor.status in (ActorStatus.PAUSED, ActorStatus.FAILED):
        words = "Resume" if actor.status is ActorStatus.PAUSED else "Try again"
        buttons = [parts.action(words, "POST", f"{path}/resume", done="It goes on.")]
    else:
        words = f"Pause {name}? Its messages queue up and its timers wait until it is resumed."
        buttons = [parts.action("Pause", "POST", f"{path}/pause", confirm=words)]
    buttons.append(_restart(seen))
    words = f"Remove {name}, with its state, mailbox and timers? That cannot be undone."
    stop = parts.action("Stop", "DELETE", path, confirm=words, danger=True, done="It is removed.")
    return [*buttons, stop]


def _restart(seen: Seen) -> Html:
    """Starts it anew with the fields of its class. Its mail stays."""
    body: dict[str, object] = {"restart": True}
    info = seen.info
    if info is None or info.parameters is None:
        fields, into = [Field(name="state", label="state", kind="json", required=True)], ""
    else:
        fields, into = fields_of(info.parameters), "state"
        body |= {"version": seen.version} | ({} if fields else {"state": {}})
    dialog = Dialog(
        title=f"Restart {_called(seen.actor)}",
        words="It starts anew with these fields. Its timers and its state go; its mail stays.",
        fields=fields,
        into=into if fields else "",
        body=msgspec.json.encode(body).decode(),
        match=tag_of(seen.actor),
        done="It starts anew.",
        danger=True,
    )
    return button("Restart", "PUT", f"{_path(seen.actor)}/state", dialog)


def _error(actor: Actor) -> Html:
    error = actor.error
    if error is None:
        return NOTHING
    trace = h("details", h("summary", "Traceback"), h("pre", error.traceback))
    message = h("p", h("code", error.type) if error.type else None, " ", error.message)
    title = "Why its turn failed" if actor.status is ActorStatus.FAILED else "Its last error"
    return h(
        "section", h("h2", title), message, trace if error.traceback else None, class_="card bad"
    )


def _facts(seen: Seen, view: View) -> Html:
    actor, terms = seen.actor, seen.actor.terms
    worker = None if actor.worker is None else _worker(seen, str(actor.worker), view)
    turn = None
    if actor.job is not None:
        turn = h("a", "the job of its turn", href=parts.url(view.root, "jobs", actor.job))
    return parts.section(
        "Facts",
        parts.facts(
            [
                ("type", h("a", actor.type, href=actors_url(view.root, actor.type))),
                ("turns", parts.number(actor.turn)),
                ("last turn", parts.when(actor.turned_at)),
                ("next turn", parts.when(actor.next_at)),
                ("turn", turn),
                ("worker", worker),
                ("unread", parts.number(actor.unread)),
                ("version", str(actor.version)),
                ("queue", terms.queue),
                ("target", terms.target),
                ("priority", str(terms.priority) if terms.priority else None),
                ("started", parts.when(actor.created_at)),
                ("id", h("code", str(actor.id))),
            ]
        ),
    )


def _worker(seen: Seen, id: str, view: View) -> Html:
    return h("a", seen.names.get(id, id[:13]), href=parts.url(view.root, "workers", id))


# its state


def _state(seen: Seen, view: View) -> Html:
    if not view.sees_payloads:
        return parts.section("State", h("p", "States are hidden from you.", class_="muted"))
    value = jsonable.payload(seen.actor.state)
    body = tree(value)
    may_edit = view.may(Right.ADMIN) and seen.actor.status is not ActorStatus.STOPPING
    edit: Html | None = None
    if may_edit and _is_json(seen.actor.state):
        edit = h("p", _edit(seen.actor, value))
    elif may_edit:
        words = "It holds what JSON cannot say; `longshore actor edit` changes single fields."
        edit = h("p", words, class_="muted")
    return parts.section("State", body, edit)


def _is_json(state: bytes) -> bool:
    """Whether a state comes back as it was, if it is sent as JSON."""
    value = unpack(state)
    shown = jsonable.payload(state)
    try:
        return bool(msgspec.json.decode(msgspec.json.encode(shown)) == value)
    except (msgspec.DecodeError, TypeError, ValueError):
        return False


def _edit(actor: Actor, value: object) -> Html:
    text = msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
    dialog = Dialog(
        title=f"The state of {_called(actor)}",
        words="It is replaced if the actor has taken no turn meanwhile.",
        fields=[Field(name="state", label="state", kind="json", value=text, required=True)],
        match=tag_of(actor),
        done="Its state is changed.",
    )
    return button("Edit", "PUT", f"{_path(actor)}/state", dialog, label="Edit the state")


# messages


def _messages(seen: Seen, view: View) -> Html:
    """What it takes, by what workers tell; without a worker any message may be sent."""
    actor = seen.actor
    if not view.may(Right.SUBMIT) or actor.status is ActorStatus.STOPPING:
        return NOTHING
    takes = None if seen.info is None else seen.info.messages
    if takes is None:
        return parts.section("Send a message", _untold(actor))
    rows = [
        [
            h("code", name),
            _parameters(given),
            h("span", _send(actor, name, given), " ", _ask(actor, name, given), class_="buttons"),
        ]
        for name, given in takes.items()
        if name != UNDELIVERED
    ]
    heads = ("message", "arguments", " ")
    body = parts.table(heads, rows, "Messages it takes", empty="it takes no messages")
    return parts.section("Messages it takes", body)


def _parameters(given: Sequence[Parameter] | None) -> str:
    if given is None:
        return "any"
    named = [f"{one.name}{'' if one.required else '?'}: {one.type or 'any'}" for one in given]
    return ", ".join(named)


def _send(actor: Actor, name: str, given: Sequence[Parameter] | None) -> Html:
    delay = Field(name="delay_s", label="delay", kind="number", hint="seconds", whole=True)
    dialog = Dialog(
        title=f"Send {name} to {_called(actor)}",
        fields=[*_arguments(given), delay],
        into=_into(given),
        body=_named(name),
        done=f"{name} is in its mailbox.",
    )
    return button("Send", "POST", f"{_path(actor)}/messages", dialog, label=f"Send {name}")


def _ask(actor: Actor, name: str, given: Sequence[Parameter] | None) -> Html:
    dialog = Dialog(
        title=f"Ask {_called(actor)}: {name}",
        words="The message is sent, and its reply is waited for.",
        fields=_arguments(given),
        into=_into(given),
        body=_named(name),
        shows="result",
        done=f"{_called(actor)} replied",
    )
    return button("Ask", "POST", f"{_path(actor)}/ask", dialog, label=f"Ask {name}")


def _arguments(given: Sequence[Parameter] | None) -> list[Field]:
    if given is None:
        return [Field(name="args", label="arguments", kind="json", hint="an object")]
    return fields_of(given)


def _into(given: Sequence[Parameter] | None) -> str:
    return "args" if given else ""


def _named(name: str) -> str:
    return msgspec.json.encode({"name": name}).decode()


def _untold(actor: Actor) -> Html:
    fields = [
        Field(name="name", label="message", required=True),
        Field(name="args", label="arguments", kind="json", hint="an object"),
    ]
    dialog = Dialog(title=f"Send to {_called(actor)}", fields=fields, done="It is in its mailbox.")
    words = h("p", "No live worker tells which messages it takes.", class_="muted")
    return joined(words, button("Send", "POST", f"{_path(actor)}/messages", dialog))


# its mailbox, timers and turns


def _mail(seen: Seen, view: View) -> Html:
    may = view.may(Right.ADMIN) and seen.actor.status is not ActorStatus.STOPPING
    rows = [
        [
            parts.number(one.number),
            h("code", one.name),
            _args(one.args, view),
            parts.when(one.at),
            parts.when(one.due_at),
            parts.state("parked") if one.parked else None,
            _sorting(seen.actor, one) if may else None,
        ]
        for one in seen.mail
    ]
    heads = ("message#", "name", "arguments", "came", "due", "", " ")
    body = parts.table(heads, rows, "Messages not read", empty="it has read all its messages")
    more = len(rows) == MOST_MAIL
    note = h("p", f"These are the first {MOST_MAIL}.", class_="muted") if more else None
    return parts.section("Mailbox", body, note, id="mail")


def _args(packed: bytes, view: View) -> Html | None:
    if not packed or not view.sees_payloads:
        return None
    return tree(jsonable.payload(packed))


def _sorting(actor: Actor, one: MailView) -> Html:
    def sort(words: str, action: MailAction, confirm: str = "", done: str = "") -> Html:
        body = msgspec.json.encode({"action": action}).decode()
        where = f"{_path(actor)}/mail/{one.number}"
        danger = action is MailAction.DROP
        return parts.action(
            words, "POST", where, confirm=confirm, body=body, danger=danger, done=done
        )

    aside = (
        sort("Put back", MailAction.PUT_BACK, done="It is back in the mailbox.")
        if one.parked
        else sort("Park", MailAction.PARK, done="It is put aside.")
    )
    words = f"Drop message {one.number} ({one.name})? Nobody will read it."
    drop = sort("Drop", MailAction.DROP, confirm=words, done="It is gone.")
    return h("span", aside, " ", drop, class_="buttons")


def _timers(actor: Actor, view: View) -> Html:
    rows = [
        [
            h("code", one.name),
            parts.when(moment(one.at)) if one.at is not None else None,
            _every(one),
            _args(one.args, view),
        ]
        for one in actor.timers
    ]
    heads = ("timer", "rings", "every", "arguments")
    return parts.section("Timers", parts.table(heads, rows, "Timers", empty="it has set none"))


def _every(timer: Timer) -> str | None:
    return span(timer.every_s) if timer.every_s else None


def _turns(seen: Seen, view: View) -> Html:
    if len(seen.actor.state) > MOST_STATE_BYTES:
        words = "Its state is large; `longshore actor turns` shows its turns, each with one."
        return parts.section("Turns", h("p", words, class_="muted"))
    rows = [
        [
            parts.number(one.turn),
            parts.clock(one.at),
            _taker(seen, one, view),
            parts.number(one.read),
            str(one.version),
            _left(one) if view.sees_payloads else None,
        ]
        for one in seen.turns
    ]
    heads = ("turn#", "at", "worker", "read#", "version#", "the state it left")
    return parts.section("Turns", parts.table(heads, rows, "Its last turns, newest first"))


def _taker(seen: Seen, one: TurnView, view: View) -> Html | str:
    if one.worker is not None:
        return _worker(seen, str(one.worker), view)
    return "an edit" if one.turn else "its start"


def _left(one: TurnView) -> Html:
    value = jsonable.payload(one.state)
    text = msgspec.json.encode(value).decode()
    short = h("code", text if len(text) <= 40 else f"{text[:40]}…")
    return h("details", h("summary", short), tree(value))


ACTOR: Final = Page(
    path="/actors/{type}/{key}",
    id="page_actor",
    title=lambda seen: f"{seen.actor.type} {seen.actor.key}",
    look=look,
    show=show,
)
