"""docs/schedules.md: every block of it, on a real dispatcher and a real worker."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from longshore.cli.main import execute
from longshore.testing.processes import Process, settings
from tests.system.conftest import ANY, QUICK

PAGE = (Path(__file__).parents[2] / "docs" / "schedules.md").read_text()


def test_every_block_of_the_schedules_page_does_what_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    [app] = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    [file] = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    commands = re.findall(r"^\$ longshore (.*)$", PAGE, re.MULTILINE)
    assert len(commands) == 11
    (tmp_path / "shop.py").write_text(app)
    (tmp_path / "schedules.yaml").write_text(file)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)

    def call(words: str) -> str:
        code = execute(shlex.split(words))
        said = capsys.readouterr()
        assert code == 0, (words, said)
        return said.out

    words = ["--app", "shop:app", "--backend", ANY, "--frontend", ANY, *settings(**QUICK)]
    with Process("up", *words, cwd=tmp_path, log=tmp_path / "up.log") as up:
        monkeypatch.setenv("LONGSHORE_CONNECT", up.ready().facts["frontend"])
        shown = {command: call(command) for command in commands}
        assert "added report-often, report" in shown[commands[0]]
        assert "06:30:00+0" in shown["schedules preview weekly 3"]
        assert "next at" in shown["schedules why weekly"]
        call("schedules add --file schedules.yaml")
        names = [one["name"] for one in json.loads(call("schedules ls --json"))]
        assert names == ["monthly", "nightly-load", "report", "report-often"]
        while not (job := _succeeded(call)):
            pass
        assert job["labels"] == ["schedule=report-often"]
        assert call("schedules rm report-often").startswith("removed")


def _succeeded(call: Callable[[str], str]) -> dict[str, object] | None:
    fires = json.loads(call("schedules show report-often --json"))["fires"]
    ended = [one for one in fires if one["outcome"] == "succeeded"]
    assert all(one["outcome"] in (None, "succeeded") for one in fires)
    if not ended:
        return None
    found: dict[str, object] = json.loads(call(f"job {ended[0]['job']} --json"))
    return found
