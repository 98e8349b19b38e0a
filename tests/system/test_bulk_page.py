"""docs/bulk.md: every block of it, on a real dispatcher and a real worker."""

from __future__ import annotations

import http.client
import json
import shlex
from contextlib import closing
from pathlib import Path

import pytest

from longshore.cli.main import execute
from longshore.testing.processes import Process, settings
from tests.system.conftest import ANY, QUICK
from tests.system.pages import blocks, matches

APP = """
import longshore

app = longshore.App("shop")

@app.job
def report(pages: int) -> None:
    raise ValueError(pages)
"""


def test_every_block_of_the_bulk_page_does_what_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "shop.py").write_text(APP)
    commands = [one for block in blocks("bulk.md", "console") for one in block.commands()]
    [body] = blocks("bulk.md", "json")
    assert len(commands) == 9

    def call(words: str) -> str:
        code = execute(shlex.split(words.removeprefix("longshore ")))
        said = capsys.readouterr()
        assert code == 0, (words, said)
        return said.out

    words = ["--app", "shop:app", "--backend", ANY, "--frontend", ANY, "--http", ANY]
    words += settings(**QUICK)
    with Process("up", *words, cwd=tmp_path, log=tmp_path / "up.log") as up:
        facts = up.ready().facts
        monkeypatch.setenv("LONGSHORE_CONNECT", facts["frontend"])
        for _ in range(2):
            execute(shlex.split("submit report pages=1 --wait"))
        with closing(http.client.HTTPConnection(facts["http"].removeprefix("http://"))) as link:
            link.request(
                "POST", "/dispatcher/bulk/", body.text, {"Content-Type": "application/json"}
            )
            plan = json.loads(link.getresponse().read())
        assert (plan["matched"], plan["would"], plan["complete"]) == (2, 2, True)
        capsys.readouterr()
        for command, shown in commands:
            out = call(command)
            assert not shown or matches(shown, out), (command, out)
