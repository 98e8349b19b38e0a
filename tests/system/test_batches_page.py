"""docs/batches.md, block by block."""

from __future__ import annotations

from pathlib import Path

from longshore.testing.processes import Process, settings
from tests.system.conftest import ANY, QUICK
from tests.system.pages import blocks, succeed


def test_every_block_of_the_page_does_what_it_says(tmp_path: Path) -> None:
    app, *scripts = [block.text for block in blocks("batches.md", "python")]
    (tmp_path / "shop.py").write_text(app)
    words = ["--app", "shop:app", "--backend", ANY, "--frontend", ANY, *settings(**QUICK)]
    with Process("up", *words, cwd=tmp_path, log=tmp_path / "up.log") as up:
        env = {"LONGSHORE_CONNECT": up.ready().facts["frontend"]}
        for script in scripts:
            succeed(script, env, tmp_path)
