"""`longshore queues`: which there are; pause one, let it go on."""

from __future__ import annotations

from typing import Any

import click

from longshore.cli import completing
from longshore.cli.options import ask, client_options, examples
from longshore.cli.view import jsonable
from longshore.cli.view.show import View, print_json, print_text, queues_table
from longshore.cli.view.watching import Shown, refuse_watch, show, watch_options
from longshore.client.connection import Connection
from longshore.model.worker import QueueView
from longshore.payload.schemas import nearest
from longshore.run.ready import note


@click.command(
    name="queues",
    options_metavar="[OPTIONS]",
    epilog=examples(
        "longshore queues",
        "longshore queues --watch",
        "longshore queues pause reports",
        "longshore queues resume reports",
    ),
)
@click.argument(
    "action",
    type=click.Choice(["list", "pause", "resume"]),
    metavar="[pause|resume]",
    default="list",
)
@click.argument("names", nargs=-1, metavar="[NAME…]", shell_complete=completing.queues)
@watch_options
@client_options
@click.pass_context
def list_queues(
    context: click.Context, /, action: str, names: tuple[str, ...], **given: Any
) -> None:
    """List the queues, or pause or resume some.

    A paused queue takes jobs and gives none; what runs goes on.
    """
    if action == "list":
        _list(context, given, names)
    else:
        _set_paused(context, given, names, action == "pause")


def _list(context: click.Context, given: dict[str, Any], names: tuple[str, ...]) -> None:
    async def look(connection: Connection) -> list[QueueView]:
        queues = await connection.queues()
        return [queue for queue in queues if not names or queue.name in names]

    def view(found: list[QueueView]) -> View:
        empty = "no such queue" if names else "no queues yet: a queue is there once a job was in it"
        return View([queues_table(found)], empty)

    show(context, given, Shown(look, lambda found: [*map(jsonable.queue, found)], view))


def _set_paused(
    context: click.Context, given: dict[str, Any], names: tuple[str, ...], paused: bool
) -> None:
    if not names:
        raise click.UsageError("name the queue", context)
    refuse_watch(context, given)

    async def set_all(connection: Connection) -> set[str]:
        known = {queue.name for queue in await connection.queues()}
        for name in names:
            await connection.pause(name, paused)
        return known

    known = ask(context, given, set_all)
    for name in names:
        if name not in known:
            note(f"no job was ever in queue '{name}'{nearest(name, known)}")
    if given["as_json"]:
        print_json([{"name": name, "paused": paused} for name in names])
    else:
        for name in names:
            print_text(f"queue {name} is paused" if paused else f"queue {name} goes on")
