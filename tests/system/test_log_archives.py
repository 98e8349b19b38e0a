"""Old logs leave the store for the files of a real gateway, and read the same (docs/logs.md)."""

from __future__ import annotations

import io
import json
import re
import sqlite3
import sys
from contextlib import closing, redirect_stderr, redirect_stdout
from pathlib import Path

import pytest

from longshore.cli.main import execute
from longshore.testing.processes import await_true, settings
from tests.system.test_files import Dock

PAGE = (Path(__file__).parents[2] / "docs" / "logs.md").read_text()
SECTION = PAGE.partition("## Archives")[2].partition("\n## ")[0]
ATE = "x = bytearray(30_000_000); print('ate')"


def said(to: str, *words: str) -> str:
    """What a command prints; run in this process, which is quicker."""
    out, told = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(told):
        patch.setenv("LONGSHORE_CONNECT", to)
        code = execute(list(words))
    assert code == 0, (words, told.getvalue())
    return out.getvalue()


def archives(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file() and len(path.name) > 64]


def test_archived_logs_are_shown_as_before(migrated_sqlite_url: str, tmp_path: Path) -> None:
    quick = settings(engine="off", archive_logs_s=0.5, files_look_s=0.1, run_times_s=0.2)
    dock = Dock(tmp_path, migrated_sqlite_url, "--exec", *quick)
    kept = sqlite3.connect(migrated_sqlite_url.removeprefix("sqlite:///"))
    with closing(dock.up), closing(kept):
        to = dock.up.facts["frontend"]
        command = ("exec", "--resources", "memory=100m", "--", sys.executable, "-c", ATE)
        assert said(to, *command) == "ate\n"
        texts = "SELECT count(*) FROM log WHERE kind = 0"
        await_true(lambda: kept.execute(texts).fetchone() == (0,), "the log has left the store")
        assert len(archives(tmp_path / "files")) == 1

        _, block = re.findall(r"```console\n(.*?)```", SECTION, re.DOTALL)
        shown = [said(to, *line.split()[2:]) for line in block.splitlines()]
        assert all("ate" in one for one in shown)
        assert json.loads(said(dock.url, "logs", "1", "--json")) == json.loads(shown[-1])

        job = json.loads(said(to, "job", "1", "--json"))
        assert job["used"]["memory_bytes"] > 30_000_000
        await_true(lambda: kept.execute("SELECT kind FROM peak").fetchone(), "the peak is kept")
        capacity = json.loads(said(to, "capacity", "--json"))
        [peak] = [one["peak"] for one in capacity["kinds"] if one["peak"]]
        assert (peak["kind"], peak["runs"]) == ("longshore.command", 1)
        assert peak["memory_bytes"] > 30_000_000

        # A client of dispatchers finds the gateway, and lists of workers leave it out.
        assert json.loads(said(to, "filesets", "ls", "--json")) == {"filesets": []}
        assert "gateway" not in said(to, "workers")
        assert "gateway" in said(to, "workers", "--all")
