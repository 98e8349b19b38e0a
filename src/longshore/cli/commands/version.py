"""`longshore version`."""

from __future__ import annotations

import click

from longshore._version import __version__
from longshore.cli.options import examples, json_option
from longshore.cli.view.show import print_answer


@click.command(epilog=examples("longshore version", "longshore version --json"))
@json_option
def version(as_json: bool) -> None:
    """Print the version."""
    print_answer(as_json, {"version": __version__}, f"longshore {__version__}")
