"""docs/security.md, block by block, against a real `longshore up`."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from longshore.testing.processes import Process, settings
from tests.system.conftest import ANY, QUICK
from tests.system.pages import blocks
from tests.system.test_http_page import SERVED

BESIDE_PYTHON = str(Path(sys.executable).parent)


def test_every_command_of_the_security_page_answers_what_it_says(tmp_path: Path) -> None:
    (app,) = blocks("http.md", "python")
    (tmp_path / "greet.py").write_text(app.text)
    words = ["--app", "greet:app", "--backend", ANY, "--frontend", ANY, "--http", ANY]
    count = 0
    with Process("up", *words, *settings(**QUICK), cwd=tmp_path, log=tmp_path / "up.log") as up:
        facts = up.ready().facts
        env = {**os.environ, "LONGSHORE_CONNECT": facts["frontend"]}
        env["PATH"] = f"{BESIDE_PYTHON}:{env['PATH']}"
        for block in blocks("security.md", "console"):
            for command, shown in block.commands():
                answered = bash(command.replace(SERVED, facts["http"]), env, tmp_path)
                assert matches(shown, answered), f"{command}\n{answered}\nis not\n{shown}"
                count += 1
        secrets = [file.read_text().strip() for file in tmp_path.glob("*.token")]
        assert len(secrets) == 2
        assert all(secret.startswith("ls_") for secret in secrets)
        assert not any(secret in up.said() for secret in secrets)
    assert count == 9


def bash(command: str, env: dict[str, str], folder: Path) -> str:
    done = subprocess.run(
        ["bash", "-c", command],
        env=env,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def matches(shown: str, answered: str) -> bool:
    """Whether an answer is what the page shows, where `…` stands for anything."""
    words = [part.split() for part in shown.strip().split("…")]
    pattern = ".*".join(r"\s+".join(map(re.escape, part)) for part in words)
    return re.fullmatch(r"\s*" + pattern + r"\s*", answered, re.DOTALL) is not None
