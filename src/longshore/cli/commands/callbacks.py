"""`longshore callbacks`: what receivers of callbacks need."""

from __future__ import annotations

import asyncio
from typing import Any

import click

from longshore.cli.options import config_options, examples, json_option, settings
from longshore.cli.view.show import print_answer


@click.command(
    name="callbacks",
    options_metavar="[OPTIONS]",
    epilog=examples(
        "longshore callbacks secret",
        "longshore callbacks secret --store postgresql://user@db.example/longshore",
        "longshore jobs --kind longshore.callback --state failed",
    ),
)
@click.argument("action", type=click.Choice(["secret"]), metavar="secret")
@click.option("--store", metavar="URL", help="Where jobs are kept.")
@json_option
@config_options
def callbacks(action: str, **given: Any) -> None:
    """Print the secret that receivers of callbacks check.

    With it they see that a callback is from this fleet. The command reads the store itself: no
    dispatcher gives the secret to a client. Whoever has it can pass for this fleet. Callbacks
    themselves are jobs of kind longshore.callback.
    """
    from longshore.run import compose

    secret = asyncio.run(compose.webhook_secret(settings(given, "store")))
    print_answer(given["as_json"], {"secret": secret}, secret)
