"""`longshore init`: what it writes, and what it leaves alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from longshore.cli.main import execute
from longshore.config import load

Captured = pytest.CaptureFixture[str]
FILES = ["app.py", "longshore.toml", "test_app.py"]


def test_it_writes_an_app_and_says_what_to_do_next(tmp_path: Path, capsys: Captured) -> None:
    assert execute(["init", 'new/crane\'s "app"']) == 0
    folder = tmp_path / "new" / 'crane\'s "app"'
    assert sorted(path.name for path in folder.iterdir()) == FILES
    said = capsys.readouterr().out.splitlines()
    assert said[-2:] == ["  longshore up", "  longshore submit greet name=Ada --wait"]
    compile((folder / "app.py").read_text(), "app.py", "exec")
    assert load(folder=folder).app == "app:app"


def test_it_writes_into_the_current_folder_unless_told(tmp_path: Path, capsys: Captured) -> None:
    assert execute(["init", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"folder": ".", "files": FILES}
    assert sorted(path.name for path in tmp_path.iterdir()) == FILES


@pytest.mark.parametrize("there", FILES)
def test_it_overwrites_nothing_and_writes_nothing_beside(
    there: str, tmp_path: Path, capsys: Captured
) -> None:
    (tmp_path / there).write_text("mine")
    assert execute(["init"]) == 2
    assert f"has {there} already, so nothing was written" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == [there]
    assert (tmp_path / there).read_text() == "mine"


def test_a_folder_that_is_a_file_is_said(tmp_path: Path, capsys: Captured) -> None:
    (tmp_path / "taken").write_text("")
    assert execute(["init", "taken/inside"]) == 2
    assert capsys.readouterr().err.startswith("error: cannot write taken/inside/app.py")
