"""`longshore bulk`, and `longshore jobs SEARCH --all ACTION`: one action for all that match."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from typing import Any, Final

import click
from msgspec import structs

from longshore.cli.options import Decorated, Whole, ask, client_options, examples
from longshore.cli.view.bulks import bulk_view, bulks_view, wait_for_bulk
from longshore.cli.view.show import print_answer, print_json, print_view
from longshore.client.bulk_json import bulk_json, plan_json
from longshore.client.connection import Connection, Ref
from longshore.client.ids import fresh_id
from longshore.core.bulk_words import jobs_words, plan_lines, progress_words, refusal_lines
from longshore.core.bulks import MAX_LISTED_BULKS, action_words, check_bulk
from longshore.errors import InvalidInput, WrongState
from longshore.model.bulk import BulkAction, BulkPlan, BulkRun, BulkState, NewBulk
from longshore.model.ids import parse_ref
from longshore.model.job import JobFilter
from longshore.run.ready import note

Wanted = Callable[[Connection], Awaitable[JobFilter]]

ACTIONS: Final = tuple(action.value for action in BulkAction)
_bulk_argument = click.argument(
    "ref", metavar="BULK", callback=lambda context, parameter, text: parse_ref(text, "bulk")
)


def bulk_options(command: Decorated) -> Decorated:
    """Adds what `longshore jobs` takes to act on all that match."""
    for option in (
        click.option("--wait", is_flag=True, help="With --all: wait until it is done."),
        click.option("--yes", is_flag=True, help="With --all: do not ask."),
        click.option("--plan", is_flag=True, help="With --all: only count what it would do."),
        click.option(
            "--to", metavar="VALUE", help="The new priority, or the queue to move to, for --all."
        ),
        click.option(
            "--all",
            "action",
            type=click.Choice(ACTIONS),
            metavar="ACTION",
            help=f"Do this to all that match: {', '.join(ACTIONS)}.",
        ),
    ):
        command = option(command)
    return command


def act_on_all(context: click.Context, wanted: Wanted, given: dict[str, Any]) -> None:
    """Counts what a search finds, asks, and begins a bulk."""
    action = BulkAction(given["action"])
    value = _value(context, action, given["to"])

    async def count(connection: Connection) -> tuple[NewBulk, BulkPlan]:
        new = NewBulk(fresh_id(), action, await wanted(connection), **value)
        check_bulk(new)
        return new, await connection.bulks.plan(new)

    new, plan = ask(context, count)
    if given["plan"] or not plan.would:
        print_answer(given["as_json"], plan_json(new, plan), "\n".join(plan_lines(new, plan)))
        return
    for line in plan_lines(new, plan):
        note(line)
    if not given["yes"]:
        _confirm(new, plan)
    _begin(context, structs.replace(new, expected=plan.matched), given)


def _value(context: click.Context, action: BulkAction, to: str | None) -> dict[str, Any]:
    """What `--to` says, as the action needs it."""
    if action not in (BulkAction.PRIORITY, BulkAction.MOVE):
        if to is not None:
            raise click.UsageError(f"--to goes with priority and move, not with {action}", context)
        return {}
    if to is None:
        what = "PRIORITY" if action is BulkAction.PRIORITY else "QUEUE"
        raise click.UsageError(f"--all {action} needs --to {what}", context)
    if action is BulkAction.MOVE:
        return {"queue": to}
    return {"priority": Whole().convert(to, None, context)}


def _confirm(new: NewBulk, plan: BulkPlan) -> None:
    """Asks a person; a program must have said --yes."""
    if not sys.stdin.isatty():
        raise InvalidInput("nobody can be asked here: add --yes to do it, or --plan to count only")
    words = f"{action_words(new)}: do it to {jobs_words(plan.would)}?"
    if not click.confirm(words, err=True):
        raise click.Abort


def _begin(context: click.Context, new: NewBulk, given: dict[str, Any]) -> None:
    async def begin(connection: Connection) -> BulkRun:
        bulk = await connection.bulks.start(new)
        return await wait_for_bulk(connection, bulk) if given["wait"] else bulk

    bulk = ask(context, begin)
    if given["as_json"]:
        print_json(bulk_json(bulk))
    elif given["wait"]:
        words = [f"bulk {bulk.number} {progress_words(bulk)}", *refusal_lines(bulk.refused)]
        print_answer(False, None, "\n".join(words))
    else:
        shows = f"`longshore bulk show {bulk.number}` shows how far it is"
        print_answer(False, None, f"bulk {bulk.number} runs; {shows}")
    if given["wait"] and bulk.state is BulkState.CANCELLED:
        raise WrongState(f"bulk {bulk.number} was cancelled before it was done")


@click.group(
    epilog=examples(
        "longshore jobs state:failed kind:report --all retry",
        "longshore bulk ls --json",
        "longshore bulk show 3",
        "longshore bulk cancel 3",
    ),
    short_help="Look at actions on all jobs of a search, and cancel them.",
)
def bulk() -> None:
    """Look at actions on all jobs of a search, and cancel them.

    `longshore jobs SEARCH --all ACTION` begins one.
    """


@bulk.command()
@click.option("--before", type=int, metavar="NUMBER", help="Only bulks with a lower number.")
@click.option(
    "--limit",
    type=Whole(1, MAX_LISTED_BULKS),
    metavar="N",
    default=50,
    help="The most bulks to list (50).",
)
@client_options
def ls(context: click.Context, /, before: int | None, limit: int, **given: Any) -> None:
    """List bulks, newest first."""
    found = ask(context, lambda connection: connection.bulks.list(before, limit))
    if given["as_json"]:
        print_json([bulk_json(one) for one in found])
    else:
        print_view(bulks_view(found))


@bulk.command()
@_bulk_argument
@click.option("--wait", is_flag=True, help="Wait until it is done.")
@client_options
def show(context: click.Context, /, ref: Ref, wait: bool, **given: Any) -> None:
    """Show one bulk, and how far it is.

    It names a few of the jobs that it left as they were. BULK is its number or its id.
    """

    async def look(connection: Connection) -> BulkRun:
        found = await connection.bulks.show(ref)
        return await wait_for_bulk(connection, found) if wait else found

    found = ask(context, look)
    if given["as_json"]:
        print_json(bulk_json(found))
    else:
        print_view(bulk_view(found))


@bulk.command()
@_bulk_argument
@client_options
def cancel(context: click.Context, /, ref: Ref, **given: Any) -> None:
    """Cancel a bulk. What it did stays done.

    BULK is its number or its id.

    Exits with 2 if it was over already.
    """
    found = ask(context, lambda connection: connection.bulks.stop(ref))
    words = f"bulk {found.number} {progress_words(found)}"
    print_answer(given["as_json"], bulk_json(found), words)
    if found.state is BulkState.DONE:
        raise WrongState(f"bulk {found.number} was done already")
