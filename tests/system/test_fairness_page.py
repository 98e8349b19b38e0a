"""docs/fairness.md, block by block."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from longshore.testing.processes import Process, settings
from tests.system.conftest import ANY, QUICK

PAGE = (Path(__file__).parents[2] / "docs" / "fairness.md").read_text()


def test_every_block_of_the_fairness_page_does_what_it_says(tmp_path: Path) -> None:
    app, script = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    (tmp_path / "fleet.py").write_text(app)
    (tmp_path / "script.py").write_text(script)
    words = ["--app", "fleet:app", "--backend", ANY, "--frontend", ANY, *settings(**QUICK)]
    with Process("up", *words, cwd=tmp_path, log=tmp_path / "up.log") as up:
        env = {**os.environ, "LONGSHORE_CONNECT": up.ready().facts["frontend"]}

        def run(*command: str) -> str:
            done = subprocess.run(
                command, env=env, cwd=tmp_path, capture_output=True, text=True, timeout=60
            )
            assert done.returncode == 0, done.stderr
            return done.stdout

        longshore = str(Path(sys.executable).with_name("longshore"))
        for command in re.findall(r"^    longshore (limits.*)$", PAGE, re.MULTILINE):
            run(longshore, *(word.strip("'") for word in command.split()))
        assert "0.5" in run(longshore, "limits")
        run(sys.executable, "script.py")
        [group] = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
        (tmp_path / "nightly.yaml").write_text(group)
        assert "succeeded" in run(longshore, "run", "nightly.yaml", "--wait")
