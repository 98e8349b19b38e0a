"""The front page of the docs, docs/README.md: what it types does what it shows."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from longshore.testing.processes import Process, run
from tests.system.pages import DOCS, Block, blocks, succeed

PAGE = "README.md"
PICTURE = DOCS / "assets" / "killed.svg"
ANY = ("--backend", "127.0.0.1:0", "--frontend", "127.0.0.1:0")


def one(language: str, holding: str) -> Block:
    """The block of the page in which some words are."""
    (found,) = [block for block in blocks(PAGE, language) if holding in block.text]
    return found


@pytest.fixture
def up(tmp_path: Path) -> Iterator[dict[str, str]]:
    """What `longshore up` of the page says where it is, with the page's app."""
    (tmp_path / "harbour.py").write_text(one("python", "longshore.App").text)
    ((typed, _),) = one("console", "longshore up").commands()
    words = shlex.split(typed)[2:]
    with Process("up", *words, *ANY, cwd=tmp_path, log=tmp_path / "up.log") as process:
        yield {"LONGSHORE_CONNECT": process.ready().facts["frontend"]}


def test_the_commands_answer_what_the_page_shows(up: dict[str, str], tmp_path: Path) -> None:
    for typed, shown in one("console", "longshore submit").commands():
        done = run(*shlex.split(typed)[1:], env=up, cwd=tmp_path)
        assert (done.returncode, done.stdout) == (0, shown), done.stderr


def test_the_python_runs(up: dict[str, str], tmp_path: Path) -> None:
    assert succeed(one("python", "unload.submit").text, up, tmp_path) == ["4"]


def test_the_picture_is_of_the_jobs_of_the_page_and_of_commands_that_there_are() -> None:
    """scripts/picture.py draws it, from a real run; what a run shows differs each time."""
    drawn = re.sub(r"<[^>]*>", "", PICTURE.read_text()).replace("&#160;", " ")
    typed = re.findall(r"\$ longshore (\w+)", drawn)
    assert typed == ["submit", "workers", "job"]
    assert "submit unload boxes=" in drawn
    assert "succeeded" in drawn
    assert f"({PICTURE.relative_to(DOCS)})" in (DOCS / PAGE).read_text()
    for command in typed:
        assert run(command, "--help").returncode == 0


def test_the_picture_can_be_drawn_anew(tmp_path: Path) -> None:
    drawn = tmp_path / "killed.svg"
    done = subprocess.run(
        [sys.executable, "scripts/picture.py", str(drawn)],
        cwd=DOCS.parent,
        env=os.environ,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "its&#160;process&#160;ended" in drawn.read_text()
