"""`longshore prune`: removes ended jobs."""

from __future__ import annotations

from typing import Any

import click

from longshore.cli.options import Whole, ask, client_options, examples
from longshore.cli.view.show import print_json, print_text
from longshore.config import parse_seconds
from longshore.core.lifecycle import REACHED, TERMINAL
from longshore.model.job import JobState

_ENDS = [state.value for state in REACHED if state in TERMINAL]


def _age(context: click.Context, parameter: click.Parameter, text: str | None) -> float | None:
    """The seconds in a text like 12h. A bare number is none: 3 may be meant as days."""
    seconds = parse_seconds(text) if text is not None else None
    if text is not None and seconds is not None and not text.strip()[-1].isalpha():
        number = text.strip().rstrip(".")
        raise click.BadParameter(
            f"'{text}' has no unit; say what it counts: {number}d (days), {number}h (hours), "
            f"{number}m (minutes) or {number}s (seconds)",
            context,
            parameter,
        )
    if text is not None and (seconds is None or not 0 <= seconds < float("inf")):
        raise click.BadParameter(
            f"'{text}' is not an age, like 90s, 5m, 12h or 7d", context, parameter
        )
    return seconds


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
    help=f"Only jobs that ended so: {', '.join(_ENDS)}; may be repeated.",
)
@click.option("--older-than", metavar="AGE", callback=_age, help="Those that ended so long ago.")
@click.option("--keep", type=Whole(0), metavar="N", help="All but the newest N of each state.")
@click.option("--dry-run", is_flag=True, help="Remove nothing; say what would be removed.")
@client_options
@click.pass_context
def prune(context: click.Context, /, **given: Any) -> None:
    """Remove ended jobs, with their results, history and logs.

    Without --older-than and --keep, those that the dispatcher's settings keep no longer; with both,
    those that either names. Jobs that have not ended are never removed.
    """
    removed = ask(
        context,
        given,
        lambda connection: connection.prune(
            [JobState(state) for state in given["states"]],
            older_than_s=given["older_than"],
            keep=given["keep"],
            dry_run=given["dry_run"],
        ),
    )
    by_state = {state.value: n for state, n in sorted(removed.items())}
    total = sum(by_state.values())
    if given["as_json"]:
        print_json({"removed": total, "states": by_state, "dry_run": given["dry_run"]})
        return
    parts = ", ".join(f"{n:,} {state}" for state, n in by_state.items())
    verb = "would remove" if given["dry_run"] else "removed"
    print_text(f"{verb} {total:,} job{'s' if total != 1 else ''}" + (f": {parts}" if parts else ""))
