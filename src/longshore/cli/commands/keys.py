"""`longshore keys`: makes key pairs, and shows key files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from longshore.cli.options import examples, json_option
from longshore.cli.view.show import print_answer
from longshore.errors import InvalidInput
from longshore.links.keys import make_pair, read_keys


@click.command(
    name="keys",
    options_metavar="[OPTIONS]",
    epilog=examples(
        "longshore keys new keys --name dispatcher",
        "longshore keys new keys --name dock-1",
        "longshore keys show keys/dock-1.public.toml",
    ),
)
@click.argument("action", type=click.Choice(["new", "show"]), metavar="new|show")
@click.argument("path", type=click.Path(path_type=Path), metavar="FOLDER|FILE")
@click.option("--name", metavar="NAME", help="The name of a new key (longshore).")
@json_option
def keys(action: str, path: Path, name: str | None, **given: Any) -> None:
    """Make a key pair in FOLDER, or show the public key in FILE.

    You may give NAME.public.toml to anybody. Keep NAME.secret.toml where it is used: anybody who
    has it can pass for its owner.
    """
    if action == "new":
        _new(path, name or "longshore", given["as_json"])
    elif name is not None:
        raise InvalidInput("--name is for a new key; leave it out: FILE holds the name of its key")
    else:
        _show(path, given["as_json"])


def _new(folder: Path, name: str, as_json: bool) -> None:
    public_path, secret_path = make_pair(folder, name)
    key = read_keys(public_path).public
    files = {"public_file": str(public_path), "secret_file": str(secret_path)}
    words = (
        f"public key {key}\n"
        f"  {public_path}  for those that {name} connects to, or lets in\n"
        f"  {secret_path}  for {name} alone: keep it secret"
    )
    print_answer(as_json, {"name": name, "public": key, **files}, words)


def _show(file: Path, as_json: bool) -> None:
    found = read_keys(file)
    secret = "in this file, not shown" if found.secret else "not in this file"
    words = f"name    {found.name}\npublic  {found.public}\nsecret  {secret}"
    shown = {"name": found.name, "public": found.public, "has_secret": bool(found.secret)}
    print_answer(as_json, shown, words)
