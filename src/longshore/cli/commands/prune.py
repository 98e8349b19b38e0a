"""`longshore prune`: removes jobs and groups that have ended."""

from __future__ import annotations

from typing import Any

import click

from longshore.cli.options import Whole, ask, client_options, examples
from longshore.cli.view.show import print_answer
from longshore.config import parse_seconds
from longshore.core.lifecycle import TERMINAL
from longshore.model.job import JobState

_ENDS = [state.value for state in JobState if state in TERMINAL]


def _age(text: str) -> float:
    """The seconds in a text like 12h. A number needs its unit: 3 could be meant as days."""
    seconds, number = parse_seconds(text), text.strip()
    if seconds is not None and not number[-1].isalpha():
        raise click.BadParameter(
            f"'{text}' has no unit; say what it counts: {number}d (days), {number}h (hours), "
            f"{number}m (minutes) or {number}s (seconds)"
        )
    if seconds is None or not 0 <= seconds < float("inf"):
        raise click.BadParameter(f"'{text}' is not an age, like 90s, 5m, 12h or 7d")
    return seconds


def _many(number: int, what: str) -> str:
    return f"{number:,} {what}{'s' if number != 1 else ''}"


@click.command(
    epilog=examples(
        "longshore prune --dry-run",
        "longshore prune --state succeeded --older-than 12h",
        "longshore prune --keep 1000",
        "longshore prune --older-than 0s --json    (everything that ended)",
    )
)
@click.option(
    "--state",
    "states",
    multiple=True,
    type=click.Choice(_ENDS),
    metavar="STATE",
    help=f"Only jobs that ended in this state: {', '.join(_ENDS)}; repeatable.",
)
@click.option(
    "--older-than", metavar="AGE", type=_age, help="Remove jobs that ended longer ago, like 12h."
)
@click.option(
    "--keep", type=Whole(0), metavar="N", help="Remove all but the newest N of each state."
)
@click.option("--dry-run", is_flag=True, help="Remove nothing; count what it would remove.")
@client_options
def prune(context: click.Context, /, **given: Any) -> None:
    """Remove ended jobs and groups, with results, history and logs.

    Without --older-than and --keep, it removes the jobs that the dispatcher's settings keep no
    longer. With both, it removes the jobs that either of them names. It never removes a job that
    has not ended. A group goes by its age alone, with all its jobs.
    """
    pruned = ask(
        context,
        lambda connection: connection.prune(
            [JobState(state) for state in given["states"]],
            older_than_s=given["older_than"],
            keep=given["keep"],
            dry_run=given["dry_run"],
        ),
    )
    by_state = {state.value: n for state, n in sorted(pruned.removed.items())}
    total = sum(by_state.values())
    parts = ", ".join(f"{n:,} {state}" for state, n in by_state.items())
    verb = "would remove" if given["dry_run"] else "removed"
    words = f"{verb} {_many(total, 'job')}" + (f": {parts}" if parts else "")
    if pruned.groups or pruned.group_jobs:
        groups, jobs = _many(pruned.groups, "group"), _many(pruned.group_jobs, "job")
        words += f"\n{verb} {groups} with {jobs}"
    counted = {"groups": pruned.groups, "group_jobs": pruned.group_jobs}
    document = {"removed": total, "states": by_state, **counted, "dry_run": given["dry_run"]}
    print_answer(given["as_json"], document, words)
