"""Actors as tables and in words: lists, one actor, its turns, its mailbox."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final

import msgspec
from rich.text import Text

from longshore.cli.view.lists import age, brief_error
from longshore.cli.view.show import Table, View, time
from longshore.client import jsonable
from longshore.client.actor_json import moment
from longshore.core.text import visible, visible_json
from longshore.model.actor import Actor, MailView, Timer, TurnView, UndeliveredSend

_STATUS_STYLES: Final = {"failed": "red", "paused": "yellow", "running": "blue", "ready": "cyan"}


def actors_table(actors: Sequence[Actor], now: datetime) -> Table:
    """A list of actors."""
    columns = ("type", "key", "status", "turn", "unread", "last turn", "next", "error")
    rows = [
        (
            visible(one.type),
            visible(one.key),
            one.status.value,
            f"{one.turn:,}",
            f"{one.unread:,}",
            age(one.turned_at, now) if one.turned_at else "",
            time(one.next_at) if one.next_at else "",
            brief_error(one.error) if one.error else "",
        )
        for one in actors
    ]
    return Table(columns, rows, frozenset({"turn", "unread"}), ("last turn", "next", "error"))


def undelivered_table(messages: Sequence[UndeliveredSend]) -> Table:
    """Messages of applications that reached nobody."""
    columns = ("id", "type", "key", "name", "sent", "refused", "why")
    rows = [
        (
            str(one.id),
            visible(one.type),
            visible(one.key),
            visible(one.name),
            time(one.at),
            time(one.refused_at),
            visible(one.why),
        )
        for one in messages
    ]
    return Table(columns, rows, frozenset(), ("why", "sent"))


def actor_view(actor: Actor, now: datetime) -> View:
    """One actor, whole."""
    lines = Text()
    lines.append(f"actor {visible(actor.type)} '{visible(actor.key)}' is ")
    lines.append(actor.status.value, style=_STATUS_STYLES.get(actor.status.value, ""))
    facts = [
        ("state", _value(actor.state)),
        ("version", str(actor.version)),
        ("turn", f"{actor.turn:,}" + _ago(actor.turned_at, now)),
        ("unread", f"{actor.unread:,}"),
        ("timers", ", ".join(map(_timer, actor.timers))),
        ("next turn", time(actor.next_at) if actor.next_at else ""),
        ("queue", visible(actor.terms.queue)),
        ("started", time(actor.created_at)),
        ("error", visible(actor.error.message) if actor.error else ""),
    ]
    for name, value in facts:
        if value:
            lines.append(f"\n  {name:<10} {value}")
    return View([lines])


def turns_table(turns: Sequence[TurnView]) -> Table:
    """The last turns of an actor."""
    rows = [
        (f"{one.turn:,}", time(one.at), f"{one.read:,}", str(one.version), _value(one.state))
        for one in turns
    ]
    columns = ("turn", "at", "read up to", "version", "state")
    return Table(columns, rows, frozenset({"turn", "read up to", "version"}), ("version",))


def mail_table(mail: Sequence[MailView]) -> Table:
    """What an actor has not read."""
    rows = [
        (
            f"{one.number:,}",
            visible(one.name),
            _value(one.args),
            time(one.at),
            "parked" if one.parked else time(one.due_at) if one.due_at else "",
        )
        for one in mail
    ]
    return Table(("number", "name", "arguments", "sent", "due"), rows, frozenset({"number"}))


def _timer(timer: Timer) -> str:
    every = f", every {timer.every_s:g} s" if timer.every_s else ""
    return f"{visible(timer.name)} at {time(moment(timer.at))}{every}" if timer.at else timer.name


def _ago(at: datetime | None, now: datetime) -> str:
    return f", {age(at, now)} ago" if at else ""


def _value(data: bytes) -> str:
    """A stored value in one line."""
    if not data:
        return ""
    return visible_json(msgspec.json.encode(jsonable.payload(data)).decode())
