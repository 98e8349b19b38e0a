"""docs/batches.md, block by block."""

from __future__ import annotations

from pathlib import Path

from longshore.testing.processes import Process, settings
from tests.system.conftest import ANY, QUICK, QUICK_WORKER
from tests.system.pages import blocks, succeed


def test_every_block_of_the_page_does_what_it_says(
    tmp_path: Path, migrated_sqlite_url: str
) -> None:
    app, *scripts = [block.text for block in blocks("batches.md", "python")]
    (tmp_path / "shop.py").write_text(app)
    words = ["--store", migrated_sqlite_url, "--backend", ANY, "--frontend", ANY]
    log, quick = tmp_path / "dispatcher.log", {**QUICK, "lease_s": 20}
    with Process("dispatcher", *words, *settings(**quick), cwd=tmp_path, log=log) as dispatcher:
        facts = dispatcher.ready().facts
        words = ["--app", "shop:app", "--connect", facts["backend"], *settings(**QUICK_WORKER)]
        with Process("worker", *words, cwd=tmp_path, log=tmp_path / "worker.log") as worker:
            worker.ready()
            for script in scripts:
                succeed(script, {"LONGSHORE_CONNECT": facts["frontend"]}, tmp_path)
