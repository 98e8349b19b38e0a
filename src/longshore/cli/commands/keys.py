"""`longshore keys`: makes key pairs, and shows what is in a key file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from longshore.cli.options import examples, json_option
from longshore.cli.view.show import print_json, print_text
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
@click.option("--name", metavar="NAME", help="What to call a new key (longshore).")
@json_option
def keys(action: str, path: Path, name: str | None, **given: Any) -> None:
    """Make a key pair in FOLDER, or show the public key in FILE.

    NAME.public.toml may be given to anybody. NAME.secret.toml stays where it is used: whoever has
    it can pass for its owner.
    """
    if action == "new":
        _new(path, name or "longshore", given["as_json"])
    elif name is not None:
        raise InvalidInput("--name is for new keys; a key that is there has its name in its file")
    else:
        _show(path, given["as_json"])


def _new(folder: Path, name: str, as_json: bool) -> None:
    public_path, secret_path = make_pair(folder, name)
    key = read_keys(public_path).public
    if as_json:
        files = {"public_file": str(public_path), "secret_file": str(secret_path)}
        print_json({"name": name, "public": key, **files})
        return
    print_text(f"public key {key}")
    print_text(f"  {public_path}  for whoever {name} connects to, or lets in")
    print_text(f"  {secret_path}  for {name} alone: keep it secret")


def _show(file: Path, as_json: bool) -> None:
    found = read_keys(file)
    if as_json:
        shown = {"name": found.name, "public": found.public, "has_secret": bool(found.secret)}
        print_json(shown)
        return
    print_text(f"name    {found.name}")
    print_text(f"public  {found.public}")
    print_text(f"secret  {'in this file, not shown' if found.secret else 'not in this file'}")
