"""`longshore migrate`: brings the store's schema forward."""

from __future__ import annotations

import asyncio
from typing import Any

import click

from longshore.cli.options import config_options, examples, json_option, settings
from longshore.cli.view.show import print_answer


@click.command(
    epilog=examples(
        "longshore migrate",
        "longshore migrate --store postgresql://user@db.example/longshore",
    )
)
@click.option("--store", metavar="URL", help="Where jobs are kept.")
@json_option
@config_options
def migrate(**given: Any) -> None:
    """Bring the store's schema to this version.

    It makes a store that does not exist yet. You can safely repeat it. `longshore up` does this by
    itself. `longshore dispatcher` only makes a SQLite file that does not exist yet: migrate once,
    then start the new dispatchers.
    """
    # Adapters take long to import: only the commands that need them do.
    from longshore.core.urls import redacted
    from longshore.run import compose

    config = settings(given, "store")
    before, after = asyncio.run(compose.migrate(config))
    shown = redacted(config.store)
    words = f"{shown} now has schema version {after} (was {before})"
    if before == after:
        words = f"{shown} has schema version {after} already"
    print_answer(given["as_json"], {"store": shown, "from": before, "to": after}, words)
