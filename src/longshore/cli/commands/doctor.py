"""`longshore doctor`: examines the store."""

from __future__ import annotations

import asyncio
from typing import Any

import click
from msgspec import to_builtins

from longshore.cli.options import config_options, examples, json_option, settings
from longshore.cli.view.show import print_answer
from longshore.model.finding import Finding


@click.command(
    epilog=examples(
        "longshore doctor",
        "longshore doctor --repair",
        "longshore doctor --store postgresql://user@db.example/longshore --json",
    )
)
@click.option("--store", metavar="URL", help="Where jobs are kept.")
@click.option(
    "--repair",
    is_flag=True,
    help="Count groups anew that are wrong, and free jobs of dead workers.",
)
@json_option
@config_options
def doctor(**given: Any) -> int:
    """Examine the store for what should not be.

    It counts anew what the jobs of each running group wait for, and looks for jobs that a dead
    worker owns and for ready jobs that no live worker serves. Some of what it finds may be under
    way: run it again. The exit code is 1 if it found anything.
    """
    # Adapters take long to import: only the commands that need them do.
    from longshore.run import compose

    config = settings(given, "store")
    found = asyncio.run(compose.examine(config, repair=given["repair"]))
    document = [to_builtins(finding) for finding in found]
    words = "\n".join(map(_told, found)) or "all is well"
    print_answer(given["as_json"], document, words)
    return 1 if found else 0


def _told(finding: Finding) -> str:
    where = f"group {finding.group}: " if finding.group else ""
    done = " (repaired)" if finding.repaired else ""
    return f"{where}{finding.words}{done}"
