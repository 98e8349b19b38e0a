"""`longshore logs`: shows what a job printed and logged."""

from __future__ import annotations

from typing import Any

import click

from longshore.cli.options import Whole, ask, client_options, examples, ref_argument
from longshore.cli.view.show import Telling, print_json, print_json_line, print_text
from longshore.client import jsonable
from longshore.client.connection import Connection, Ref
from longshore.client.logs import read_logs
from longshore.model.log import ENGINE
from longshore.run.ready import note


@click.command(
    epilog=examples(
        "longshore logs 42",
        "longshore logs 42 --follow",
        "longshore logs 42 --attempt 1",
        "longshore logs 42 --json | jq -r '.[].text'",
    )
)
@ref_argument
@click.option("--follow", "-f", is_flag=True, help="Show new lines until the job has ended.")
@click.option("--attempt", type=Whole(min=1), metavar="N", help="Only the lines of this attempt.")
@client_options
def logs(
    context: click.Context, /, ref: Ref, follow: bool, attempt: int | None, **given: Any
) -> None:
    """Show what a job printed and logged.

    Without --attempt, in all its attempts. With --follow the exit code is 0 however the job ends,
    and with --json each line is a JSON document of its own.

    REF is the job's number or its id.
    """
    as_json: bool = given["as_json"]

    async def read(connection: Connection) -> None:
        if as_json and not follow:
            lines = [line async for line in read_logs(connection, ref, attempt)]
            print_json([jsonable.plain(line) for line in lines])
        elif not await _print(connection, ref, attempt, follow=follow, as_json=as_json):
            note(await _why_nothing(connection, ref, attempt))

    ask(context, read)


async def _why_nothing(connection: Connection, ref: Ref, attempt: int | None) -> str:
    """Says why a job, or one of its attempts, has no log."""
    if attempt is None:
        return f"job {ref} has no log: it said nothing that was kept"
    last = (await connection.job(ref)).attempt
    if attempt <= last:
        return f"job {ref} has no log: attempt {attempt} said nothing that was kept"
    had = f"it had {last:,} attempt{'' if last == 1 else 's'}" if last else "it did not run yet"
    return f"job {ref} has no attempt {attempt}: {had}"


async def _print(
    connection: Connection, ref: Ref, attempt: int | None, *, follow: bool, as_json: bool
) -> int:
    """Prints lines as they come, and counts them."""
    count = 0
    telling = Telling()
    async for line in read_logs(connection, ref, attempt, follow=follow):
        if line.stream == ENGINE and not as_json:
            continue
        count += 1
        if as_json:
            print_json_line(jsonable.plain(line))
        else:
            print_text(telling.in_words(line))
    return count
