"""docs/workers.md, block by block."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from longshore.testing.processes import Process, run, settings
from tests.system.conftest import ANY, QUICK
from tests.system.pages import succeed

PAGE = (Path(__file__).parents[2] / "docs" / "workers.md").read_text()


def test_every_block_of_the_workers_page_does_what_it_says(tmp_path: Path) -> None:
    library, *scripts, cafe = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    (tmp_path / "library.py").write_text(library)
    (tmp_path / "cafe.py").write_text(cafe)
    commands = re.findall(r"^\$ longshore (.*)$", PAGE, re.MULTILINE)
    assert (len(commands), len(scripts)) == (3, 2)
    for number, typed in enumerate(commands):
        role, *words = shlex.split(typed)
        words += ["--backend", ANY, "--frontend", ANY, *settings(**QUICK)]
        store = f"sqlite:///{number}.db"
        log = tmp_path / f"up{number}.log"
        with Process(role, *words, "--store", store, cwd=tmp_path, log=log) as up:
            env = {"LONGSHORE_CONNECT": up.ready().facts["frontend"]}
            for script in scripts:
                succeed(script, env, tmp_path)
            done = run("submit", "serve", "drink=tea", "--wait", env=env, cwd=tmp_path)
            assert (done.returncode, done.stdout) == (0, '"one tea"\n'), done.stderr
            assert up.terminate() == 0
            assert "whoami, attempt 1" in up.said()
            assert "this process is done" in up.said()
        (tmp_path / "ledger.db").unlink()
