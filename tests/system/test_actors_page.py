"""docs/actors.md, block by block."""

from __future__ import annotations

import ast
import shlex
from pathlib import Path

from longshore.testing.processes import Process, run, settings
from tests.system.conftest import ANY, QUICK
from tests.system.pages import blocks, succeed


def test_every_block_of_the_actors_page_does_what_it_says(tmp_path: Path) -> None:
    app, *scripts = blocks("actors.md", "python")
    [console] = blocks("actors.md", "console")
    for excerpt in blocks("actors.md", "py"):
        ast.parse(excerpt.text)
    (tmp_path / "club.py").write_text(app.text)
    words = ["--app", "club:app", "--backend", ANY, "--frontend", ANY, *settings(**QUICK)]
    with Process("up", *words, cwd=tmp_path, log=tmp_path / "up.log") as up:
        env = {"LONGSHORE_CONNECT": up.ready().facts["frontend"]}
        for script in scripts:
            succeed(script.text, env, tmp_path)
        for command, shown in console.commands():
            done = run(*shlex.split(command)[1:], env=env, cwd=tmp_path)
            assert done.returncode == 0, done.stderr
            assert done.stdout == shown
    assert len(scripts) >= 7
