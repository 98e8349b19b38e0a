"""docs/at-the-limit.md, block by block."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from longshore.testing.processes import Process, settings
from tests.system.conftest import ANY, QUICK

PAGE = (Path(__file__).parents[2] / "docs" / "at-the-limit.md").read_text()


def test_every_block_of_the_page_does_what_it_says(tmp_path: Path) -> None:
    app, *scripts = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    (tmp_path / "live.py").write_text(app)
    words = ["--app", "live:app", "--backend", ANY, "--frontend", ANY, *settings(**QUICK)]
    with Process("up", *words, cwd=tmp_path, log=tmp_path / "up.log") as up:
        env = {**os.environ, "LONGSHORE_CONNECT": up.ready().facts["frontend"]}
        said = []
        for script in scripts:
            (tmp_path / "script.py").write_text(script)
            done = subprocess.run(
                [sys.executable, "script.py"],
                env=env,
                cwd=tmp_path,
                capture_output=True,
                text=True,
                timeout=60,
            )
            assert done.returncode == 0, done.stderr
            said.append(done.stdout)
    assert "replaced by job" in said[0]
