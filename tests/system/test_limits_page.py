"""docs/limits.md, block by block."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from longshore.testing.processes import Process, settings
from tests.system.conftest import ANY, QUICK

PAGE = (Path(__file__).parents[2] / "docs" / "limits.md").read_text()


def test_every_block_of_the_limits_page_does_what_it_says(tmp_path: Path) -> None:
    app, script, whole, waited = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    (tmp_path / "shop.py").write_text(app)
    (tmp_path / "script.py").write_text(script)
    (tmp_path / "whole.py").write_text(whole)
    (tmp_path / "waited.py").write_text(waited)
    words = ["--app", "shop:app", "--backend", ANY, "--frontend", ANY, *settings(**QUICK)]
    with Process("up", *words, cwd=tmp_path, log=tmp_path / "up.log") as up:
        env = {**os.environ, "LONGSHORE_CONNECT": up.ready().facts["frontend"]}

        def run(*command: str) -> str:
            done = subprocess.run(
                command, env=env, cwd=tmp_path, capture_output=True, text=True, timeout=60
            )
            assert done.returncode == 0, done.stderr
            return done.stdout

        longshore = str(Path(sys.executable).with_name("longshore"))
        run(sys.executable, "script.py")
        run(sys.executable, "whole.py")
        assert re.search(r"^\d+\.\d+ s for tenant=acme$", run(sys.executable, "waited.py"), re.M)
        for block in re.findall(r"```console\n(.*?)```", PAGE, re.DOTALL):
            check_console(block, tmp_path, env)
        [group] = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
        (tmp_path / "nightly.yaml").write_text(group)
        assert "succeeded" in run(longshore, "run", "nightly.yaml", "--wait")
        for command in re.findall(r"^    longshore (limits.*)$", PAGE, re.MULTILINE):
            run(longshore, *(word.strip("'") for word in command.split()))
        assert "tenant=*" in run(longshore, "limits")
        shown = run(longshore, "limits", "show", "tenant=acme")
        assert "at most 5 at once, 100/min with a burst of 20 by the rule for tenant=*" in shown
        assert re.search(r"others waited .* for it, (once|\d+ times)", shown)


def check_console(block: str, folder: Path, env: dict[str, str]) -> None:
    """Runs the commands of a block. What it shows below one is an error."""
    for command, shown in re.findall(r"^\$ (longshore .*)\n((?:[^$].*\n)*)", block, re.MULTILINE):
        words = [str(Path(sys.executable).with_name("longshore")), *command.split()[1:]]
        done = subprocess.run(
            words, env=env, cwd=folder, capture_output=True, text=True, timeout=60
        )
        assert (done.returncode == 0, done.stderr) == (not shown, shown), command


def test_the_trial_of_the_limits_page_says_what_it_shows(tmp_path: Path) -> None:
    for name, form in (("rules.toml", "toml"), ("trace.csv", "csv")):
        [text] = re.findall(rf"```{form}\n(.*?)```", PAGE, re.DOTALL)
        (tmp_path / name).write_text(text)
    [(command, shown)] = re.findall(
        r"^    \$ longshore (limits try .*)\n((?:    .*\n)+)", PAGE, re.M
    )
    longshore = str(Path(sys.executable).with_name("longshore"))
    done = subprocess.run(
        [longshore, *command.split()], cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert [line.split() for line in done.stdout.splitlines()] == [
        line.split() for line in shown.splitlines()
    ]
