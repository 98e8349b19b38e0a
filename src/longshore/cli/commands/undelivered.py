"""`longshore undelivered`: messages of applications' transactions that reached no actor."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import click

from longshore.cli.options import Whole, ask, client_options, examples
from longshore.cli.view.actors import undelivered_table
from longshore.cli.view.show import View, print_answer, print_json, print_view
from longshore.client.actor_json import undelivered_json
from longshore.client.connection import Connection
from longshore.errors import NotFound


@click.command(
    name="undelivered",
    epilog=examples(
        "longshore undelivered",
        "longshore undelivered 0192f0c1-7a52-7a9e-8c66-1b2a3c4d5e6f --again",
        "longshore undelivered 0192f0c1-7a52-7a9e-8c66-1b2a3c4d5e6f --drop",
    ),
)
@click.argument("ids", nargs=-1, type=click.UUID, metavar="[ID]…")
@click.option("--again", is_flag=True, help="Deliver these messages again.")
@click.option("--drop", is_flag=True, help="Remove these messages for good.")
@click.option(
    "--limit",
    type=Whole(1, 1_000),
    metavar="N",
    default=100,
    help="The most messages to list (100); up to 1000.",
)
@client_options
def undelivered(context: click.Context, /, ids: tuple[UUID, ...], **given: Any) -> None:
    """List messages to actors that were not there.

    An application sent them in its own transaction, so nobody could be told. Start the actor, then
    deliver them `--again`; or `--drop` them. Those that nobody asks for are kept for 7 days.

    Exits with 3 if there is no such message.
    """
    again, drop = given["again"], given["drop"]
    if (again and drop) or bool(ids) != (again or drop):
        raise click.UsageError("give IDs with either --again or --drop, or none at all", context)
    if ids:
        _sort(context, ids, again=again)
        return
    found = ask(context, lambda connection: connection.actors.undelivered(given["limit"]))
    if given["as_json"]:
        print_json([undelivered_json(one) for one in found])
    else:
        print_view(View([undelivered_table(found)], "every message was delivered"))


def _sort(context: click.Context, ids: tuple[UUID, ...], *, again: bool) -> None:
    async def sort(connection: Connection) -> list[UUID]:
        actors = connection.actors
        return [id for id in ids if not await actors.sort_undelivered(id, again=again)]

    missing = ask(context, sort)
    if missing:
        raise NotFound(
            f"no message {missing[0]} is undelivered; `longshore undelivered` lists them"
        )
    words = "delivered again" if again else "dropped"
    document = {"messages": [str(id) for id in ids], "again": again}
    print_answer(context.params["as_json"], document, f"{len(ids)} messages are {words}")
