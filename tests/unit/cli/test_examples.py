"""The examples in the help and in docs/cli.md are commands that exist, with options they have."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from longshore.cli.main import cli

PAGE = Path(__file__).resolve().parents[3] / "docs" / "cli.md"
TYPED = re.compile(r"^ +(?:\$ )?(longshore [^\n]*)$", re.MULTILINE)


def _commands(group: click.Group) -> Iterator[click.Command]:
    for command in group.commands.values():
        yield command
        if isinstance(command, click.Group):
            yield from _commands(command)


def _help(command: click.Command) -> str:
    return command.get_help(click.Context(command, info_name="x", terminal_width=200))


def _examples() -> list[str]:
    texts = [_help(command) for command in _commands(cli)]
    typed = [line for text in [*texts, PAGE.read_text()] for line in TYPED.findall(text)]
    return sorted({line for line in typed if not re.search(r"[\[…|]|\b[A-Z]{3,}\b| ready: ", line)})


def test_there_are_examples_of_every_command() -> None:
    named = {example.split()[1] for example in _examples()}
    assert set(cli.commands) <= named | {"version", "completion"}


@pytest.mark.parametrize("example", _examples())
def test_an_example_can_be_typed(example: str) -> None:
    _, *words = shlex.split(re.sub(r" (?:#|>|   ).*", "", example))
    command: click.Command = cli
    while isinstance(command, click.Group) and words and words[0] in command.commands:
        command = command.commands[words.pop(0)]
    assert command is not cli, "no such command"
    command.make_context("example", words)
