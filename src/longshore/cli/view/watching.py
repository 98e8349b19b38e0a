"""`--watch`: a command's answer, looked at again and again on one connection.

On a terminal it is redrawn on a screen of its own, and what it showed last stays when it ends. In a
pipe there is nothing to redraw: there `--watch` needs `--json`, and prints one line a look.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Generic, Self, TypeVar

import click
from msgspec import Struct
from rich.console import Group
from rich.live import Live
from rich.text import Text

from longshore.cli.options import Decorated, Shell, ask, settings
from longshore.cli.view.show import (
    View,
    console,
    print_json,
    print_json_line,
    print_view,
    rich_parts,
    time,
)
from longshore.client.connection import Connection
from longshore.config import parse_seconds
from longshore.core.text import visible
from longshore.errors import InvalidInput, Unavailable
from longshore.run.ready import note

DEFAULT_EVERY_S = 2.0
SHORTEST_EVERY_S = 0.1

T = TypeVar("T")


class Shown(Struct, Generic[T], frozen=True):
    """What a command asks for, and how the answer looks as JSON and to a person.

    `is_last` says that an answer will not change any more, which ends a watch. `remark` is what a
    person should know of it, beside the answer itself.
    """

    look: Callable[[Connection], Awaitable[T]]
    as_json: Callable[[T], Any]
    as_view: Callable[[T], View]
    is_last: Callable[[T], bool] = lambda found: False
    remark: Callable[[T], str] = lambda found: ""


def _interval(context: click.Context, parameter: click.Parameter, text: str | None) -> float | None:
    seconds = parse_seconds(text) if text is not None else None
    if text is not None and (seconds is None or not SHORTEST_EVERY_S <= seconds < float("inf")):
        raise click.BadParameter(
            f"'{text}' is not a duration of at least {SHORTEST_EVERY_S:g} s, like 1.5, 500ms or 1m",
            context,
            parameter,
        )
    return seconds


def watch_options(command: Decorated) -> Decorated:
    """Adds --watch and --every."""
    command = click.option(
        "--every",
        metavar="SECONDS",
        callback=_interval,
        help=f"Watch, and look so often ({DEFAULT_EVERY_S:g}).",
    )(command)
    return click.option(
        "--watch", is_flag=True, help="Look again and again, until Ctrl-C ends it."
    )(command)


def refuse_watch(context: click.Context, given: dict[str, Any]) -> None:
    """Raises if somebody wants to watch what is done only once."""
    if _is_watched(given):
        raise click.UsageError("--watch is for looking; leave it out to change something", context)


def _is_watched(given: dict[str, Any]) -> bool:
    return given["watch"] or given["every"] is not None


def show(context: click.Context, given: dict[str, Any], shown: Shown[T]) -> None:
    """Prints the answer once, or for as long as it is watched."""
    if _is_watched(given):
        _watch(context, given, shown)
        return
    found = ask(context, given, shown.look)
    if given["as_json"]:
        print_json(shown.as_json(found))
    else:
        print_view(shown.as_view(found))
    if remark := shown.remark(found):
        note(remark)


def _watch(context: click.Context, given: dict[str, Any], shown: Shown[T]) -> None:
    if not given["as_json"] and not sys.stdout.isatty():
        raise InvalidInput(
            "--watch draws on a terminal, and this is none; add --json for one line of JSON a look"
        )
    every_s: float = given["every"] or DEFAULT_EVERY_S
    title = f"{context.command_path}: every {every_s:g} s, Ctrl-C ends it"
    screen = _Lines(shown) if given["as_json"] else _Screen(shown, title)
    # The screen's last act is after the loop's: it shows where an interrupt left things.
    with screen, suppress(KeyboardInterrupt):
        asyncio.run(_keep_looking(context, given, shown, screen, every_s))


async def _keep_looking(
    context: click.Context,
    given: dict[str, Any],
    shown: Shown[T],
    screen: _Lines[T] | _Screen[T],
    every_s: float,
) -> None:
    shell = context.ensure_object(Shell)
    async with shell.connect(settings(given, "connect")) as connection:
        found = await shown.look(connection)
        screen.draw(found)
        while not shown.is_last(found):
            await asyncio.sleep(every_s)
            try:
                found = await shown.look(connection)
            except Unavailable as error:
                screen.trouble(str(error))
            else:
                screen.draw(found)


class _Lines(Generic[T]):
    """One line of JSON a look. Dispatchers that are out of reach are waited for in silence."""

    def __init__(self, shown: Shown[T]) -> None:
        self._shown = shown

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing is open."""

    def draw(self, found: T) -> None:
        """Prints what was found."""
        print_json_line(self._shown.as_json(found))

    def trouble(self, message: str) -> None:
        """Says nothing: the next line says that it is over."""


class _Screen(Generic[T]):
    """A screen of its own, redrawn at every look; what it showed last is printed at its end."""

    def __init__(self, shown: Shown[T], title: str) -> None:
        self._shown = shown
        self._title = title
        self._view: View | None = None
        self._remark = ""
        self._live = Live(console=console(), screen=True, auto_refresh=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()
        if self._view is not None:
            print_view(self._view)

    def draw(self, found: T) -> None:
        """Redraws the screen."""
        self._view = self._shown.as_view(found)
        self._remark = self._shown.remark(found)
        self._redraw(Text(f"{self._title}, {time(datetime.now(UTC))}", style="dim"))

    def trouble(self, message: str) -> None:
        """Says on top of what was found last that nothing newer is known."""
        self._redraw(Text(visible(message), style="red"))

    def _redraw(self, heading: Text) -> None:
        self._live.start()
        parts = rich_parts(self._view) if self._view is not None else []
        remark = [Text(self._remark, style="dim")] if self._remark else []
        self._live.update(Group(heading, *remark, Text(), *parts), refresh=True)
