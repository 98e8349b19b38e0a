"""docs/jobs.md, block by block."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from longshore.testing.processes import Process, settings
from tests.system.conftest import ANY, QUICK

PAGE = (Path(__file__).parents[2] / "docs" / "jobs.md").read_text()


def test_every_block_of_the_jobs_page_does_what_it_says(tmp_path: Path) -> None:
    scripts = []
    for name, block in re.findall(r"(?:`(\w+\.py)`:\n\n)?```python\n(.*?)```", PAGE, re.DOTALL):
        if name:
            (tmp_path / name).write_text(block)
        else:
            scripts.append(block)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["shop.py", "yard.py"]
    apps = ["--app", "shop:app", "--app", "yard:app"]
    words = [*apps, "--backend", ANY, "--frontend", ANY, *settings(**QUICK)]
    with Process("up", *words, cwd=tmp_path, log=tmp_path / "up.log") as up:
        env = {**os.environ, "LONGSHORE_CONNECT": up.ready().facts["frontend"]}
        for number, script in enumerate(scripts):
            (tmp_path / f"script{number}.py").write_text(script)
            done = subprocess.run(
                [sys.executable, f"script{number}.py"],
                env=env,
                cwd=tmp_path,
                capture_output=True,
                text=True,
                timeout=60,
                check=False,
            )
            assert done.returncode == 0, done.stderr
    assert len(scripts) == 7
