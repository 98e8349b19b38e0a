"""The options that commands share, the values they take, and how a command asks a dispatcher."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

import click

from longshore.client.adapters import Dialler
from longshore.client.connection import Connection
from longshore.client.tokens import own_token
from longshore.config import Config, load, parse_seconds
from longshore.model.ids import parse_ref

Decorated = TypeVar("Decorated", bound=Callable[..., Any])
T = TypeVar("T")

Connect = Callable[[Config], Connection]
"""Makes a connection. It is the `obj` of every context, so that a test can give another."""


def connect(config: Config) -> Connection:
    """A connection to the dispatchers that the settings name."""
    return Connection(
        config.client_addresses(),
        timeout_s=config.request_timeout_s,
        dialler=Dialler.of(config),
        token=own_token,
    )


def settings(given: dict[str, Any], *keys: str) -> Config:
    """The settings, with the command's own flags for `keys`."""
    flags = {key: given[key] for key in keys}
    return load(flags, given["overrides"], file=given["config"])


def connected(context: click.Context) -> Connection:
    """A connection to the dispatchers that the command is to ask."""
    dial: Connect = context.obj
    return dial(settings(context.params, "connect"))


def ask(context: click.Context, talk: Callable[[Connection], Awaitable[T]]) -> T:
    """Connects, and returns what `talk` returns."""

    async def conversation() -> T:
        async with connected(context) as connection:
            return await talk(connection)

    return asyncio.run(conversation())


# values


class Whole(click.IntRange):
    """A whole number between bounds; the error for any other text names the bounds."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The number."""
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter:
            bounds = (
                f", {self.min} or more" if self.max is None else f" from {self.min} to {self.max}"
            )
            self.fail(f"'{value}' is not a whole number{bounds}", param, ctx)


def duration(text: str, least_s: float = 0.0) -> float:
    """The seconds in a text like 1.5, 500ms, 2s, 5m or 1h."""
    seconds = parse_seconds(text)
    if seconds is None or not least_s <= seconds < float("inf"):
        least = f" of at least {least_s:g} s" if least_s else ""
        raise click.BadParameter(f"'{text}' is not a duration{least}, like 1.5, 500ms, 5m or 1h")
    return seconds


def moment(text: str) -> datetime:
    """The time that a text names, which must name its zone too."""
    with suppress(ValueError, OverflowError):
        at = datetime.fromisoformat(text)
        if at.tzinfo is not None:
            return at.astimezone(UTC)
    raise click.BadParameter(f"'{text}' is not a time with its zone, like 2026-01-31T12:00:00Z")


# options and arguments


ref_argument = click.argument("ref", callback=lambda context, parameter, text: parse_ref(text))


def config_options(command: Decorated) -> Decorated:
    """Adds --config and --set."""
    command = click.option(
        "--set",
        "overrides",
        multiple=True,
        metavar="KEY=VALUE",
        help="Any setting by its name, like lease_s=30; repeatable.",
    )(command)
    return click.option(
        "--config", metavar="FILE", help="The file of settings (longshore.toml, if it exists)."
    )(command)


def json_option(command: Decorated) -> Decorated:
    """Adds --json."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")(
        command
    )


def since(text: str) -> datetime:
    """The time that a text names, or 2h ago for 2h."""
    seconds = parse_seconds(text)
    try:
        if seconds is None or seconds < 0:
            return moment(text)
        return datetime.now(UTC) - timedelta(seconds=seconds)
    except (OverflowError, click.BadParameter):
        raise click.BadParameter(
            f"'{text}' is neither a duration, like 30m or 2h, nor a time with its zone, like "
            "2026-01-31T12:00:00Z"
        ) from None


def client_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the options of every command that asks a dispatcher, and gives it the context."""
    return click.option(
        "--connect",
        metavar="ADDRESS[,…]",
        help="Dispatchers to ask, like tcp://127.0.0.1:7702, or a gateway, like "
        "http://127.0.0.1:7700; the first that answers.",
    )(json_option(config_options(click.pass_context(command))))


EXIT_CODES = """\b
Exit codes of every command:
  0    done; with submit --wait, the job succeeded
  1    the job did not succeed, doctor found something, or an unexpected error
  2    what you gave cannot be accepted: arguments, settings, state, port
  3    there is no such job, worker or actor
  4    no dispatcher, or no store, answers: try again
  5    the job did not end, or the actor did not reply, within --within
  130  interrupted (Ctrl-C)
  141  the output was closed: nothing reads it any more"""


def format_option(help: str) -> Callable[[Decorated], Decorated]:
    """Adds --format, whose help is this, for documents of other systems."""
    return click.option(
        "--format", type=click.Choice(["etcdq"]), help=f"etcdq, the Etcd Job Queue: {help}"
    )


def examples(*lines: str) -> str:
    """The last part of a command's help."""
    shown = "\n".join(f"  {line}" for line in lines)
    return f"\b\nExamples:\n{shown}"
