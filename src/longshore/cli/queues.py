"""`longshore queues`: which there are; pause one, let it go on."""

from __future__ import annotations

from typing import Any

import click

from longshore.cli import jsonable
from longshore.cli.options import ask, client_options, examples
from longshore.cli.show import note, print_json, print_table, print_text, queues_table
from longshore.client.connection import Connection
from longshore.core.schemas import nearest


@click.command(
    name="queues",
    options_metavar="[OPTIONS]",
    epilog=examples(
        "longshore queues", "longshore queues pause reports", "longshore queues resume reports"
    ),
)
@click.argument(
    "action",
    type=click.Choice(["list", "pause", "resume"]),
    metavar="[pause|resume]",
    default="list",
)
@click.argument("names", nargs=-1, metavar="[NAME…]")
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
    queues = ask(context, given, Connection.queues)
    found = [queue for queue in queues if not names or queue.name in names]
    if given["as_json"]:
        print_json([jsonable.queue(queue) for queue in found])
    else:
        print_table(queues_table(found), "no queues yet: a queue is there once a job was in it")


def _set_paused(
    context: click.Context, given: dict[str, Any], names: tuple[str, ...], paused: bool
) -> None:
    if not names:
        raise click.UsageError("name the queue", context)

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
