"""`longshore completion`, and the kinds, queues and workers that a shell offers while you type.

A dispatcher is asked for them, for a moment only: while none answers, nothing is offered.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from functools import wraps
from typing import Any

import click
from click.shell_completion import CompletionItem, get_completion_class
from msgspec import structs

from longshore.cli.options import Connect, examples, json_option
from longshore.cli.view.show import print_answer
from longshore.client.connection import Connection
from longshore.config import load
from longshore.errors import LongshoreError

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
@click.argument("shell", type=click.Choice([*_WHERE]))
@json_option
@click.pass_context
def completion(context: click.Context, /, shell: str, as_json: bool) -> None:
    """Print the script that makes a shell complete what you type.

    It completes commands, options and job states. It asks a dispatcher for kinds, queues and
    workers, and completes those too.
    """
    script = _script(context.find_root().command, shell)
    document = {"shell": shell, "script": script, "goes_into": _WHERE[shell]}
    print_answer(as_json, document, script)


def _script(command: click.Command, shell: str) -> str:
    found = get_completion_class(shell)
    assert found is not None, f"click does not complete {shell}"
    completes = found(command, {}, "longshore", _VARIABLE)
    return completes.source_template % completes.source_vars()


# what there is to choose from

_Look = Callable[[Connection], Awaitable[Iterable[str]]]
_Completer = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


def _offered(look: _Look) -> _Completer:
    """Makes a completer of a question to a dispatcher."""

    @wraps(look)
    def offer(
        context: click.Context, parameter: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        try:
            names = asyncio.run(_asked(context, look))
        except (LongshoreError, TimeoutError):
            return []
        return [CompletionItem(name) for name in sorted(set(names)) if name.startswith(incomplete)]

    return offer


@_offered
async def kinds(connection: Connection) -> Iterable[str]:
    """The kinds that workers serve."""
    return [one.kind for one in (await connection.capacity()).kinds]


@_offered
async def queues(connection: Connection) -> Iterable[str]:
    """The names of the queues."""
    return [one.name for one in await connection.queues()]


@_offered
async def workers(connection: Connection) -> Iterable[str]:
    """The names of the live workers."""
    return [one.info.name for one in await connection.workers() if one.alive]


async def _asked(context: click.Context, look: _Look) -> Iterable[str]:
    given: dict[str, Any] = context.params
    overrides = given.get("overrides") or ()
    config = load({"connect": given.get("connect")}, overrides, file=given.get("config"))
    dial: Connect = context.obj
    quick = structs.replace(config, request_timeout_s=PATIENCE_S)
    async with asyncio.timeout(2 * PATIENCE_S), dial(quick) as connection:
        return await look(connection)
