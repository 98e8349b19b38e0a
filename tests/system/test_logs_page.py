"""docs/logs.md, block by block, and `longshore logs` on what it did."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from longshore.testing.processes import Process, settings
from tests.system.conftest import ANY, QUICK

PAGE = (Path(__file__).parents[2] / "docs" / "logs.md").read_text()


def test_every_block_of_the_logs_page_does_what_it_says(tmp_path: Path) -> None:
    app, *scripts = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    (tmp_path / "press.py").write_text(app)
    words = ["--app", "press:app", "--backend", ANY, "--frontend", ANY, *settings(**QUICK)]
    with Process("up", *words, cwd=tmp_path, log=tmp_path / "up.log") as up:
        env = {**os.environ, "LONGSHORE_CONNECT": up.ready().facts["frontend"]}

        def call(*command: str) -> str:
            done = subprocess.run(
                [sys.executable, *command],
                env=env,
                cwd=tmp_path,
                capture_output=True,
                text=True,
                timeout=60,
                check=False,
            )
            assert done.returncode == 0, done.stderr
            return done.stdout

        for script in scripts:
            call("-c", script)
        assert len(scripts) == 2
        shown = call("-m", "longshore", "logs", "1", "--follow").splitlines()
        assert [re.sub(r"^[\d-]+ [\d:.]+Z ", "", line) for line in shown] == [
            "stdout   pressing 3 pages",
            "stderr   out of ink",
            "--- attempt 2",
            "stdout   pressing 3 pages",
            "warning  press: the ink is new: blue",
            "info     longshore.job.press: attempt 2 does it",
        ]
        one = call("-m", "longshore", "logs", "1", "--attempt", "1").splitlines()
        assert len(one) == 2
    output = (tmp_path / "up.log").read_text().splitlines()
    assert "[1] out of ink" in output
    assert output.count("[1] pressing 3 pages") == 2
    assert "[1] the ink is new: blue" in output
