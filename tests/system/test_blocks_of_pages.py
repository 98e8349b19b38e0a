"""The commands and settings in operations.md, configuration.md, failover.md and others."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from longshore.config import load
from longshore.links.keys import read_secret
from longshore.testing.processes import Process, run, settings
from tests.system.conftest import ANY, QUICK
from tests.system.pages import blocks
from tests.tidy import tree

PATIENCE_S = 300
"""How long a simulation may take where it hardly gets a core."""


@pytest.mark.parametrize("page", ["configuration.md", "failover.md", "operations.md"])
def test_the_settings_files_can_be_read(page: str, tmp_path: Path) -> None:
    for block in blocks(page, "toml"):
        (tmp_path / "longshore.toml").write_text(block.text)
        config = load(file=str(tmp_path / "longshore.toml"), environ={})
        assert config != load(environ={})


def test_the_keys_are_made_and_handed_out_as_the_page_says(tmp_path: Path) -> None:
    (keys,) = (block for block in blocks("operations.md", "console") if "keys new" in block.text)
    for command, _ in keys.commands():
        own = f"{shlex.quote(sys.executable)} -m longshore"
        typed = re.sub("^longshore", own, command)
        done = subprocess.run(
            ["bash", "-c", typed], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
    read_secret(tmp_path / "keys" / "dispatcher.secret.toml")
    assert (tmp_path / "workers" / "dock-1.public.toml").exists()
    assert (tmp_path / "clients" / "shop.public.toml").exists()


@pytest.mark.timeout(3 * PATIENCE_S)
@pytest.mark.parametrize("page", ["simulation.md", "guarantees.md"])
def test_the_simulations_run(page: str) -> None:
    """Each with a few seeds only; tests/simulation runs more."""
    text = "".join(block.text for block in blocks(page, "console"))
    typed = re.findall(r"^\$ longshore (simulate.*?)(?:  +#.*)?$", text, re.MULTILINE)
    assert typed
    for command in typed:
        few = re.sub(r"--seeds \d+", "", command)
        words = shlex.split(few if "--seed " in few else f"{few} --seeds 2")
        done = run(*words, timeout_s=PATIENCE_S)
        assert done.returncode == 0, (words, done.stdout)


def test_every_promise_has_a_command_that_shows_it() -> None:
    """`test_the_simulations_run` runs them."""
    page = (tree.ROOT / "docs" / "guarantees.md").read_text()
    sections = re.split("^## ", page, flags=re.MULTILINE)
    shown = {
        found[1]
        for section in sections
        if (found := re.match(r".*\((G\d)\)\n", section))
        and re.search(r"^\$ longshore simulate ", section, re.MULTILINE)
    }
    assert shown == {f"G{n}" for n in range(1, 9)}


def test_why_answers_for_a_kind_that_is_misspelt(tmp_path: Path) -> None:
    (console,) = (b for b in blocks("guarantees.md", "console") if "$ longshore why" in b.text)
    (submit, _), (why, _) = console.commands()
    words = ["--backend", ANY, "--frontend", ANY, *settings(**QUICK)]
    with Process("up", *words, cwd=tmp_path, log=tmp_path / "up.log") as up:
        env = {"LONGSHORE_CONNECT": up.ready().facts["frontend"]}
        assert run(*shlex.split(submit)[1:], env=env).returncode == 0
        assert "no worker" in run(*shlex.split(why)[1:], env=env).stdout
