"""The part of docs/containers.md about commands."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from longshore.client.rules import rules_of
from longshore.testing.processes import Process, command, run, settings
from tests.system.conftest import ANY, QUICK, QUICK_WORKER
from tests.system.pages import DOCS, Block, blocks

PAGE = "containers.md"


def block(language: str, words: str) -> Block:
    """The block of the page that has these words."""
    (found,) = [one for one in blocks(PAGE, language) if words in one.text]
    return found


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    """What `longshore up --exec` starts, with the app of the page."""
    folder = tmp_path_factory.mktemp("page")
    (folder / "office.py").write_text(block("python", "app.command").text)
    words = ["--backend", ANY, "--frontend", ANY, "--app", "office:app", "--exec"]
    options = settings(**{**QUICK, **QUICK_WORKER, "engine": "off"})
    with Process("up", *words, *options, cwd=folder, log=folder / "up.log") as up:
        yield up.ready()


def test_commands_are_run_as_the_page_shows(up: Process) -> None:
    env = {**os.environ, "LONGSHORE_CONNECT": up.facts["frontend"]}
    codes = []
    for line, shown in block("console", "longshore exec").commands():
        typed = line.replace("longshore", " ".join(command()), 1)
        done = subprocess.run(
            ["sh", "-c", typed], env=env, capture_output=True, text=True, timeout=60
        )
        assert done.stdout == shown
        codes.append(done.returncode)
    assert codes == [0, 3]


def test_the_app_of_the_page_runs_its_command(up: Process, tmp_path: Path) -> None:
    (tmp_path / "office.py").write_text(block("python", "app.command").text)
    done = subprocess.run(
        [sys.executable, "office.py"],
        env={**os.environ, "LONGSHORE_CONNECT": up.facts["frontend"]},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stdout) == (0, "2\n"), done.stderr


def test_the_file_of_the_page_runs(up: Process, tmp_path: Path) -> None:
    file = tmp_path / "lines.yaml"
    file.write_text(block("yaml", "command:").text)
    to = ["--connect", up.facts["frontend"]]
    assert run("run", str(file), "--wait", *to).returncode == 0
    last = json.loads(run("jobs", "--limit", "2", "--json", *to).stdout)
    logs = [run("logs", str(job["number"]), *to).stdout for job in last]
    assert sum("lines 2" in log for log in logs) == 1


def test_a_rule_in_code_and_as_text_is_one_rule() -> None:
    rows = [line.split(" | ") for line in (DOCS / PAGE).read_text().splitlines()]
    rules = [(row[0], row[1]) for row in rows if row[0].startswith("| `longshore.")]
    assert len(rules) == 7
    for code, text in rules:
        made = eval(code.strip("| `"), {"longshore": __import__("longshore")})
        assert rules_of([made]) == rules_of(text.strip("`"))
