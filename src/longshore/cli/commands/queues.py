"""`longshore queues`: lists the queues, pauses and resumes them."""

from __future__ import annotations

from typing import Any

import click

from longshore.cli import completing
from longshore.cli.options import ask, client_options, examples
from longshore.cli.view.lists import queues_table
from longshore.cli.view.show import View, print_answer
from longshore.cli.view.watching import Shown, refuse_watch, show, watch_options
from longshore.client import jsonable
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
def list_queues(
    context: click.Context, /, action: str, names: tuple[str, ...], **given: Any
) -> None:
    """List the queues, or pause or resume some.

    A paused queue takes new jobs, and none of them starts. Jobs that run go on.
    """
    if action == "list":
        _list(context, names)
    else:
        _set_paused(context, names, action == "pause")


def _list(context: click.Context, names: tuple[str, ...]) -> None:
    async def look(connection: Connection) -> list[QueueView]:
        queues = await connection.queues()
        return [queue for queue in queues if not names or queue.name in names]

    def view(found: list[QueueView]) -> View:
        empty = "no such queue" if names else "no queues yet: the first job of a queue makes it"
        return View([queues_table(found)], empty)

    show(context, Shown(look, lambda found: [*map(jsonable.queue, found)], view))


def _set_paused(context: click.Context, names: tuple[str, ...], paused: bool) -> None:
    if not names:
        raise click.UsageError("name the queue", context)
    refuse_watch(context)

    async def set_all(connection: Connection) -> set[str]:
        known = {queue.name for queue in await connection.queues()}
        for name in names:
            await connection.pause(name, paused)
        return known

    known = ask(context, set_all)
    for name in names:
        if name not in known:
            note(f"no job was ever in queue '{name}'{nearest(name, known)}")
    words = "\n".join(f"queue {name} {'is paused' if paused else 'goes on'}" for name in names)
    document = [{"name": name, "paused": paused} for name in names]
    print_answer(context.params["as_json"], document, words)
