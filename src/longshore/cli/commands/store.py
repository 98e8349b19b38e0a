"""`longshore migrate`: the store's schema."""

from __future__ import annotations

import asyncio
from typing import Any

import click

from longshore.cli.options import config_options, examples, json_option, settings
from longshore.cli.view.show import print_json, print_text


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

    A store that does not exist yet is made.

    Safe to repeat. `longshore up` does this by itself. `longshore dispatcher` only makes a SQLite
    file that is not there yet: migrate once, then start the new dispatchers.
    """
    # Adapters take long to import: only the commands that need them do.
    from longshore.core.urls import redacted
    from longshore.run import compose

    config = settings(given, "store")
    before, after = asyncio.run(compose.migrate(config))
    shown = redacted(config.store)
    if given["as_json"]:
        print_json({"store": shown, "from": before, "to": after})
    elif before == after:
        print_text(f"{shown} has schema version {after} already")
    else:
        print_text(f"{shown} now has schema version {after} (was {before})")
