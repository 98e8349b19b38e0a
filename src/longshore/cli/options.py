"""Flags that several commands share, and how a command talks to a dispatcher."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

import click
from msgspec import Struct

from longshore.client.adapters import Dialler
from longshore.client.connection import Connection
from longshore.config import Config, load

Decorated = TypeVar("Decorated", bound=Callable[..., Any])
T = TypeVar("T")


def connect(config: Config) -> Connection:
    """A connection to the dispatchers that the settings name."""
    return Connection(
        config.client_addresses(),
        timeout_s=config.request_timeout_s,
        dialler=Dialler.of(config),
    )


class Shell(Struct, frozen=True):
    """What commands need of the world around them; a test gives another."""

    connect: Callable[[Config], Connection] = connect


def settings(given: dict[str, Any], *keys: str) -> Config:
    """The settings, as the command's flags named by `keys` and everything else say."""
    overrides: Sequence[str] = given["overrides"]
    return load({key: given[key] for key in keys}, overrides, file=given["config"])


def ask(
    context: click.Context, given: dict[str, Any], talk: Callable[[Connection], Awaitable[T]]
) -> T:
    """The answer that `talk` gets out of a connection."""
    shell = context.ensure_object(Shell)

    async def conversation() -> T:
        async with shell.connect(settings(given, "connect")) as connection:
            return await talk(connection)

    return asyncio.run(conversation())


class Whole(click.IntRange):
    """A whole number between bounds; any other text is told what they are."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The number."""
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter:
            bounds = (
                f", {self.min} or more" if self.max is None else f" from {self.min} to {self.max}"
            )
            self.fail(f"'{value}' is not a whole number{bounds}", param, ctx)


def config_options(command: Decorated) -> Decorated:
    """Adds --config and --set."""
    command = click.option(
        "--set",
        "overrides",
        multiple=True,
        metavar="KEY=VALUE",
        help="Any setting by its name, like lease_s=30; may be repeated.",
    )(command)
    return click.option(
        "--config", metavar="FILE", help="Settings; without it longshore.toml, if there is one."
    )(command)


def json_option(command: Decorated) -> Decorated:
    """Adds --json."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")(
        command
    )


def client_options(command: Decorated) -> Decorated:
    """Adds what every command has that asks a dispatcher."""
    command = json_option(config_options(command))
    return click.option(
        "--connect",
        metavar="ADDRESS[,…]",
        help="Dispatchers to ask, like tcp://127.0.0.1:7702; the first that answers.",
    )(command)


EXIT_CODES = """\b
Exit codes of every command:
  0    done; with submit --wait, the job succeeded
  1    the job did not succeed, or something unexpected went wrong
  2    what was given cannot be accepted: arguments, settings, state, port
  3    there is no such job or worker
  4    no dispatcher, or no store, answers: try again
  5    the outcome did not come within --within
  130  interrupted (Ctrl-C)
  141  nobody reads the output any more"""


def examples(*lines: str) -> str:
    """The last part of a command's help."""
    shown = "\n".join(f"  {line}" for line in lines)
    return f"\b\nExamples:\n{shown}"
