"""`longshore completion`, and what a shell is told of kinds, queues and workers while one types.

Those are asked of a dispatcher, and for a moment only: while none answers, nothing is offered.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import click
from click.shell_completion import CompletionItem, get_completion_class
from msgspec import structs

from longshore.cli.options import Shell, examples, json_option
from longshore.cli.view.show import print_json, print_text
from longshore.client.connection import Connection
from longshore.config import load
from longshore.errors import InvalidInput, LongshoreError

SHELLS = ("bash", "zsh", "fish")
PATIENCE_S = 0.5
_VARIABLE = "_LONGSHORE_COMPLETE"
_WHERE = {
    "bash": "~/.bashrc",
    "zsh": "~/.zshrc",
    "fish": "~/.config/fish/completions/longshore.fish",
}


@click.command(
    epilog=examples(
        'eval "$(longshore completion bash)"    (in ~/.bashrc)',
        'eval "$(longshore completion zsh)"     (in ~/.zshrc)',
        "longshore completion fish > ~/.config/fish/completions/longshore.fish",
    )
)
@click.argument("shell", type=click.Choice(SHELLS))
@json_option
@click.pass_context
def completion(context: click.Context, /, shell: str, as_json: bool) -> None:
    """Print the script by which a shell completes what one types.

    It completes commands, options, job states, and, asked of the dispatcher, kinds, queues and
    workers.
    """
    script = _script(context.find_root().command, shell)
    if as_json:
        print_json({"shell": shell, "script": script, "goes_into": _WHERE[shell]})
    else:
        print_text(script)


def _script(command: click.Command, shell: str) -> str:
    found = get_completion_class(shell)
    if found is None:
        raise InvalidInput(f"there is no completion for {shell}; there is for {', '.join(SHELLS)}")
    completes = found(command, {}, "longshore", _VARIABLE)
    return completes.source_template % completes.source_vars()


# what there is to choose from


def kinds(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """The kinds that workers serve."""

    async def look(connection: Connection) -> Iterable[str]:
        return [one.kind for one in (await connection.capacity()).kinds]

    return _offered(context, incomplete, look)


def queues(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """The queues that there are."""

    async def look(connection: Connection) -> Iterable[str]:
        return [one.name for one in await connection.queues()]

    return _offered(context, incomplete, look)


def workers(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """The workers that are there."""

    async def look(connection: Connection) -> Iterable[str]:
        return [one.info.name for one in await connection.workers() if one.alive]

    return _offered(context, incomplete, look)


def _offered(
    context: click.Context,
    incomplete: str,
    look: Callable[[Connection], Awaitable[Iterable[str]]],
) -> list[CompletionItem]:
    try:
        names = asyncio.run(_asked(context, look))
    except (LongshoreError, TimeoutError):
        return []
    return [CompletionItem(name) for name in sorted(set(names)) if name.startswith(incomplete)]


async def _asked(
    context: click.Context, look: Callable[[Connection], Awaitable[Iterable[str]]]
) -> Iterable[str]:
    given: dict[str, Any] = context.params
    overrides = given.get("overrides") or ()
    config = load({"connect": given.get("connect")}, overrides, file=given.get("config"))
    shell = context.ensure_object(Shell)
    quick = structs.replace(config, request_timeout_s=PATIENCE_S)
    async with asyncio.timeout(2 * PATIENCE_S), shell.connect(quick) as connection:
        return await look(connection)
