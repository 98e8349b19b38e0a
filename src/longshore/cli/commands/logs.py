"""`longshore logs`: shows what a job printed and logged."""

from __future__ import annotations

from typing import Any

import click

from longshore.cli.options import Whole, ask, client_options, examples, ref_argument
from longshore.cli.view import jsonable
from longshore.cli.view.show import print_json, print_json_line, print_text, time
from longshore.client.connection import Connection, Ref
from longshore.client.logs import read_logs
from longshore.model.log import LOGGED, LogLine
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
        count += 1
        if as_json:
            print_json_line(jsonable.plain(line))
        else:
            print_text(telling.in_words(line))
    return count


class Telling:
    """A job's log as a person reads it, with a heading where the next attempt begins."""

    def __init__(self) -> None:
        self._token: int | None = None

    def in_words(self, line: LogLine) -> str:
        """The next line of the log, under a heading if it needs one."""
        is_new = line.token != self._token
        heading = is_new and (self._token is not None or (line.attempt or 1) > 1)
        self._token = line.token
        words = in_words(line)
        return f"--- attempt {line.attempt or 'unknown'}\n{words}" if heading else words


def in_words(line: LogLine) -> str:
    """A line of the log as a person reads it; further lines of its text are indented."""
    label = line.level.lower() if line.stream == LOGGED else line.stream
    head = f"{time(line.at, 'milliseconds')} {label:<8} "
    logger = f"{line.logger}: " if line.logger else ""
    return (head + logger + line.text.replace("\n", "\n" + " " * len(head))).rstrip(" ")
