"""The `longshore` command: its list of commands, and how each of them ends.

An error is one line on standard error, `error: what happened; what to do`, and the exit code that
`longshore.errors` gives it. If an app cannot be loaded, the lines of the app that led there follow.
A traceback means a bug in Longshore.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from difflib import get_close_matches
from importlib import import_module
from typing import Final

import click

from longshore._version import __version__
from longshore.cli.options import EXIT_CODES, Connect, connect
from longshore.cli.view.show import OutputClosed
from longshore.errors import AppError, InvalidInput, LongshoreError
from longshore.run.ready import note

INTERRUPTED = 130
BROKEN_PIPE = 141


_COMMANDS: Final = {
    "init": "starting:init",
    "up": "commands.run:up",
    "dispatcher": "commands.run:dispatcher",
    "gateway": "commands.run:gateway",
    "worker": "commands.run:worker",
    "submit": "commands.submit:submit",
    "run": "commands.run_group:run",
    "exec": "commands.execute:exec_command",
    "container": "commands.execute:container",
    "jobs": "commands.jobs:list_jobs",
    "job": "commands.jobs:show_job",
    "cancel": "commands.jobs:cancel",
    "retry": "commands.jobs:retry",
    "bulk": "commands.bulk:bulk",
    "why": "commands.jobs:why",
    "groups": "commands.groups:list_groups",
    "group": "commands.groups:group",
    "actors": "commands.actors:list_actors",
    "actor": "commands.actors:actor",
    "undelivered": "commands.undelivered:undelivered",
    "logs": "commands.logs:logs",
    "workers": "commands.workers:list_workers",
    "dispatchers": "commands.workers:list_dispatchers",
    "capacity": "commands.workers:show_capacity",
    "queues": "commands.queues:list_queues",
    "schedules": "commands.schedules:schedules",
    "limits": "commands.limits:limits",
    "prune": "commands.prune:prune",
    "filesets": "commands.filesets:filesets",
    "callbacks": "commands.callbacks:callbacks",
    "keys": "commands.keys:keys",
    "token": "commands.tokens:token",
    "audit": "commands.tokens:audit",
    "migrate": "commands.store:migrate",
    "doctor": "commands.doctor:doctor",
    "simulate": "commands.simulate:simulate",
    "chaos": "commands.chaos:chaos",
    "completion": "completing:completion",
    "version": "commands.version:version",
}
"""Each command, in the order of the help, and where it is."""


class Commands(MutableMapping[str, click.Command]):
    """The commands by name. The module of one is imported when it is asked for."""

    def __init__(self, places: Mapping[str, str]) -> None:
        self._places = dict(places)

    def __getitem__(self, name: str) -> click.Command:
        module, _, attribute = self._places[name].partition(":")
        found = getattr(import_module(f"longshore.cli.{module}"), attribute)
        assert isinstance(found, click.Command)
        return found

    def __setitem__(self, name: str, command: click.Command) -> None:
        raise TypeError("commands are listed in a table")

    def __delitem__(self, name: str) -> None:
        del self._places[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)

    def __contains__(self, name: object) -> bool:
        return name in self._places


class InOrder(click.Group):
    """Lists its commands in the order of their table."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names of the commands."""
        return list(self.commands)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command of this name; the error for an unknown one names the nearest."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            near = get_close_matches(args[0], self.commands, n=1)
            if not near:
                raise
            said = error.message.rstrip(".")
            raise click.UsageError(f"{said} (nearest: '{near[0]}')", ctx) from None


@click.group(
    cls=InOrder,
    commands=Commands(_COMMANDS),
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog=EXIT_CODES,
)
@click.version_option(__version__, message="longshore %(version)s")
def cli() -> None:
    """Longshore runs jobs: a job accepted is a job finished, its outcome recorded once.

    \b
    Start here:
      longshore init                      write a small app to begin with
      longshore up --app myapp:app        run everything on this machine
      longshore submit add a=1 b=2 --wait run a job and see its result
      longshore jobs                      see what became of it
    """


def execute(arguments: Sequence[str], connect: Connect = connect) -> int:
    """Runs one command and returns its exit code; an error is one line on standard error."""
    if list(arguments[:1]) in ([], ["help"]):
        arguments = [*arguments[1:], "--help"]
    try:
        code = cli.main(list(arguments), prog_name="longshore", standalone_mode=False, obj=connect)
    except click.ClickException as error:
        note(f"error: {_usage(error, arguments)}")
        return InvalidInput.exit_code
    except AppError as error:
        note(f"error: {error}")
        return error.exit_code
    except LongshoreError as error:
        note(f"error: {' '.join(str(error).split())}")
        return error.exit_code
    except (KeyboardInterrupt, click.Abort, asyncio.CancelledError):
        return INTERRUPTED
    except OutputClosed:
        # So that the interpreter does not complain of the closed output when it ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE
    return code if isinstance(code, int) else 0


def _usage(error: click.ClickException, arguments: Sequence[str]) -> str:
    """Says what is wrong with a command line, and which help to read."""
    said = " ".join(error.format_message().split()).rstrip(".")
    context = error.ctx if isinstance(error, click.UsageError) else None
    if isinstance(error, click.NoSuchOption) and (meant := _begun(error) or error.possibilities):
        said = f"{error.message.rstrip('.')} (nearest: {', '.join(map(repr, meant))})"
    if context is not None:
        path = context.command_path
    else:  # an option without its value: the error does not name the command
        path = " ".join(["longshore", *(word for word in arguments[:1] if word in cli.commands)])
    return f"{said}; see `{path} --help`"


def _begun(error: click.NoSuchOption) -> list[str]:
    """The options of the command that begin with the unknown one."""
    parameters = error.ctx.command.params if error.ctx else []
    names = [name for parameter in parameters for name in parameter.opts]
    return [name for name in names if name.startswith(error.option_name)]


def main() -> None:
    """The `longshore` command."""
    sys.exit(execute(sys.argv[1:]))
