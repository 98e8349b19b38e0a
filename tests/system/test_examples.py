"""The examples run as they say, in one command."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


def run_example(name: str) -> str:
    """What an example prints; it must exit with 0."""
    done = subprocess.run(
        [sys.executable, EXAMPLES / f"{name}.py"],
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_example_of_a_group_runs_in_one_command() -> None:
    printed = run_example("edition")
    assert "13 succeeded, 1 skipped" in printed
    assert "vans/3" in printed


def test_the_example_of_commands_runs_in_one_command_without_an_engine() -> None:
    printed = run_example("concordance")
    assert "try 1\ntry 2\ntry 3" in printed
    assert "index@1: 1 file" in printed
    assert "any command, and its exit code" in printed


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("subscription", "day 3: your trial has ended"),
        ("poller", "12 requests"),
        ("saga", "   release hotel\n   release flight"),
    ],
)
def test_the_examples_of_actors_run_in_one_command(name: str, words: str) -> None:
    printed = run_example(name)
    assert words in printed
    assert "killed worker process" in printed
