"""`--watch`: a command asks again and again on one connection.

On a terminal it redraws a screen of its own, and leaves its last answer there when it ends. A pipe
cannot be redrawn: there `--watch` needs `--json`, and prints one line for each answer.
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

from longshore.cli.options import Decorated, ask, connected, duration
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
from longshore.core.text import visible
from longshore.errors import InvalidInput, Unavailable
from longshore.run.ready import note

DEFAULT_EVERY_S = 2.0
SHORTEST_EVERY_S = 0.1

T = TypeVar("T")


class Shown(Struct, Generic[T], frozen=True):
    """What a command asks for, and how the answer looks as JSON and to a person.

    A watch ends with an answer that `is_last`: it will not change any more. `remark` is a line for
    the person beside the answer.
    """

    look: Callable[[Connection], Awaitable[T]]
    as_json: Callable[[T], Any]
    as_view: Callable[[T], View]
    is_last: Callable[[T], bool] = lambda found: False
    remark: Callable[[T], str] = lambda found: ""


def every_option(command: Decorated) -> Decorated:
    """Adds --every."""
    return click.option(
        "--every",
        metavar="SECONDS",
        type=lambda text: duration(text, SHORTEST_EVERY_S),
        help=f"Watch, and ask this often ({DEFAULT_EVERY_S:g}).",
    )(command)


def watch_options(command: Decorated) -> Decorated:
    """Adds --watch and --every."""
    return click.option("--watch", is_flag=True, help="Ask again and again, until Ctrl-C ends it.")(
        every_option(command)
    )


def refuse_watch(context: click.Context) -> None:
    """Raises if the user wants to watch a command that changes something."""
    if _is_watched(context):
        raise click.UsageError("--watch is for looking; leave it out to change something", context)


def _is_watched(context: click.Context) -> bool:
    return context.params["watch"] or context.params["every"] is not None


def show(context: click.Context, shown: Shown[T]) -> None:
    """Prints the answer once, or for as long as it is watched."""
    as_json: bool = context.params["as_json"]
    if _is_watched(context):
        _watch(context, shown, as_json)
        return
    found = ask(context, shown.look)
    if as_json:
        print_json(shown.as_json(found))
    else:
        print_view(shown.as_view(found))
    if remark := shown.remark(found):
        note(remark)


def _watch(context: click.Context, shown: Shown[T], as_json: bool) -> None:
    if not as_json and not sys.stdout.isatty():
        raise InvalidInput(
            "--watch needs a terminal to draw on; add --json for one line of JSON an answer"
        )
    every_s: float = context.params["every"] or DEFAULT_EVERY_S
    title = f"{context.command_path}: every {every_s:g} s, Ctrl-C ends it"
    screen = _Lines(shown) if as_json else _Screen(shown, title)
    # The screen closes after the loop: it shows the last answer before an interrupt.
    with screen, suppress(KeyboardInterrupt):
        asyncio.run(_keep_looking(context, shown, screen, every_s))


async def _keep_looking(
    context: click.Context, shown: Shown[T], screen: _Lines[T], every_s: float
) -> None:
    async with connected(context) as connection:
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
    """Prints one line of JSON for each answer, and nothing while no dispatcher answers."""

    def __init__(self, shown: Shown[T]) -> None:
        self._shown = shown

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing is open."""

    def draw(self, found: T) -> None:
        """Prints an answer."""
        print_json_line(self._shown.as_json(found))

    def trouble(self, message: str) -> None:
        """Prints nothing: the next line says that it is over."""


class _Screen(_Lines[T]):
    """Redraws a screen of its own, and prints the last answer when it closes."""

    def __init__(self, shown: Shown[T], title: str) -> None:
        super().__init__(shown)
        self._title = title
        self._view: View | None = None
        self._remark = ""
        self._live = Live(console=console(), screen=True, auto_refresh=False)

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
        """Says above the last answer why there is no newer one."""
        self._redraw(Text(visible(message), style="red"))

    def _redraw(self, heading: Text) -> None:
        self._live.start()
        width = self._live.console.width
        parts = rich_parts(self._view, width) if self._view is not None else []
        remark = [Text(self._remark, style="dim")] if self._remark else []
        self._live.update(Group(heading, *remark, Text(), *parts), refresh=True)
