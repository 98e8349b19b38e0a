"""docs/groups.md, block by block."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

from longshore.testing.processes import Process, run, settings
from tests.system.conftest import ANY, QUICK
from tests.system.pages import blocks, succeed

OPEN_DAY = """
name: open day
jobs:
  - {kind: fetch, key: city, args: {desk: city}}
  - {kind: lay_out, args: {pages: 8}}
  - {key: closing, gate: true}
"""


def submitted(text: str, folder: Path, env: dict[str, str]) -> str:
    """The number of a group that stands in a file."""
    (folder / "group.yaml").write_text(text)
    done = run("run", "group.yaml", "--json", env=env, cwd=folder)
    assert done.returncode == 0, done.stderr
    return str(json.loads(done.stdout)["number"])


def test_every_block_of_the_groups_page_does_what_it_says(tmp_path: Path) -> None:
    app, *scripts = blocks("groups.md", "python")
    more, flow, rounds = blocks("groups.md", "yaml")
    adding, console, planned, graph = blocks("groups.md", "console")
    [excerpt] = blocks("groups.md", "py")
    assert excerpt.text in app.text
    (tmp_path / "paper.py").write_text(app.text)
    (tmp_path / "more.yaml").write_text(more.text)
    (tmp_path / "edition.yaml").write_text(flow.text)
    (tmp_path / "rounds.yaml").write_text(rounds.text)
    words = ["--app", "paper:app", "--backend", ANY, "--frontend", ANY, *settings(**QUICK)]
    with Process("up", *words, cwd=tmp_path, log=tmp_path / "up.log") as up:
        env = {"LONGSHORE_CONNECT": up.ready().facts["frontend"]}
        for script in scripts:
            succeed(script.text, env, tmp_path)
        open_day = submitted(OPEN_DAY, tmp_path, env)
        for command, _ in adding.commands():
            done = run(*command.replace("42", open_day).split()[1:], env=env, cwd=tmp_path)
            assert done.returncode == 0, done.stderr
            assert f"to group {open_day}" in done.stdout
        for command, shown in console.commands():
            done = run(*shlex.split(command)[1:], env=env, cwd=tmp_path)
            assert done.returncode == 0, done.stderr
            assert done.stdout.startswith(shown)
            assert "edition of 2026-11-16" in done.stdout
        for command, shown in planned.commands():
            assert run(*command.split()[1:], env=env, cwd=tmp_path).stdout == shown
        [edition] = json.loads(run("groups", "--limit", "1", "--json", env=env).stdout)
        for command, shown in graph.commands():
            words = command.replace("42", str(edition["number"])).split()[1:]
            done = run(*words, env=env, cwd=tmp_path)
            assert done.returncode == 0, done.stderr
            assert done.stdout == shown.replace("42", str(edition["number"]))
        assert "edition of 2026-11-16" in (tmp_path / "edition.svg").read_text()
    assert len(scripts) == 13
