"""Filesets on real processes: pushed, pulled, cut off, and killed in the middle."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import psutil
import pytest

from longshore.cli.main import execute
from longshore.testing.processes import Process, await_true, command, run, settings
from tests.system.conftest import ANY, QUICK


class Dock:
    """`longshore up` with a gateway, and commands that ask it."""

    def __init__(self, folder: Path, store: str, *words: str) -> None:
        self.folder = folder
        self.env = {"XDG_CACHE_HOME": str(folder / "home")}
        given = ["--store", store, "--backend", ANY, "--frontend", ANY, "--http", ANY, *words]
        files = settings(files=folder / "files", **QUICK)
        self.up = Process("up", *given, *files, cwd=folder, log=folder / "up.log").ready()
        self.url = self.up.facts["http"]

    def filesets(self, *words: str, code: int = 0) -> Any:
        """What a command answers, as JSON; run in this process, which is quicker."""
        said, told = io.StringIO(), io.StringIO()
        with redirect_stdout(said), redirect_stderr(told):
            given = execute(["filesets", *words, "--connect", self.url, "--json"])
        assert given == code, told.getvalue()
        return json.loads(said.getvalue()) if code == 0 else told.getvalue()

    def gateway(self) -> psutil.Process:
        """The process of the gateway."""
        (found,) = (
            one for one in psutil.Process(self.up.pid).children() if "gateway" in one.cmdline()
        )
        return found


@pytest.fixture
def dock(store_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Dock]:
    made = Dock(tmp_path, store_url)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", made.env["XDG_CACHE_HOME"])
    yield made
    made.up.close()


def fill(folder: Path, count: int, size: int) -> Path:
    folder.mkdir(parents=True)
    for number in range(count):
        (folder / f"{number:05}.bin").write_bytes(os.urandom(size))
    return folder


def tree(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_what_is_pushed_is_pulled_and_a_second_pull_moves_no_bytes(
    dock: Dock, tmp_path: Path
) -> None:
    data = fill(tmp_path / "data", 5, 300_000)
    (data / "sub").mkdir()
    (data / "sub/run.sh").write_text("#!/bin/sh\necho hello\n")
    (data / "sub/run.sh").chmod(0o755)
    pushed = dock.filesets("push", "data", str(data))
    assert (pushed["version"], pushed["files"]) == (1, 6)
    pulled = dock.filesets("pull", "data", "copy")
    assert pulled["fetched_bytes"] > 1_500_000
    assert tree(tmp_path / "copy") == tree(data)
    assert os.access(tmp_path / "copy/sub/run.sh", os.X_OK)
    assert dock.filesets("pull", "data", "again")["fetched_bytes"] == 0
    assert dock.filesets("pull", "data@1", "copy")["fetched_bytes"] == 0
    again = dock.filesets("push", "data", str(data))
    assert (again["version"], again["sent_bytes"]) == (2, 0)


def test_versions_are_listed_compared_and_removed(dock: Dock, tmp_path: Path) -> None:
    data = fill(tmp_path / "data", 3, 10)
    dock.filesets("push", "data", str(data))
    (data / "00000.bin").unlink()
    (data / "00001.bin").write_text("changed")
    (data / "new").touch()
    dock.filesets("push", "data", str(data))
    (listed,) = dock.filesets("ls")["filesets"]
    assert (listed["name"], listed["versions"], listed["latest"]["version"]) == ("data", 2, 2)
    assert [one["version"] for one in dock.filesets("ls", "data")["versions"]] == [2, 1]
    shown = dock.filesets("show", "data@1")
    assert [one["path"] for one in shown["files"]] == ["00000.bin", "00001.bin", "00002.bin"]
    changes = dock.filesets("diff", "data@1", "data")["changes"]
    assert [(one["change"], one["path"]) for one in changes] == [
        ("removed", "00000.bin"),
        ("changed", "00001.bin"),
        ("added", "new"),
    ]
    assert dock.filesets("rm", "data@1")["removed"] == ["data@1"]
    assert "version 1" in dock.filesets("pull", "data@1", "copy", code=3)
    assert dock.filesets("gc", "--dry-run")["removed"] == 0


def test_old_versions_of_all_filesets_are_removed(dock: Dock, tmp_path: Path) -> None:
    data = fill(tmp_path / "data", 1, 10)
    for name in ("a", "a", "b", "c", "c", "c"):
        (data / "00000.bin").write_bytes(os.urandom(9))
        dock.filesets("push", name, str(data))
    gc = ("gc", "--versions", "--keep", "1")
    assert dock.filesets(*gc, "--older", "1h")["removed"] == []
    assert dock.filesets(*gc, "--dry-run")["removed"] == ["a@1", "c@2", "c@1"]
    assert dock.filesets(*gc) == {"removed": ["a@1", "c@2", "c@1"], "left": [], "dry_run": False}
    assert dock.filesets(*gc, "--dry-run")["removed"] == []
    assert [one["versions"] for one in dock.filesets("ls")["filesets"]] == [1, 1, 1]
    assert "--keep" in dock.filesets("gc", "--versions", code=2)
    assert "--versions" in dock.filesets("gc", "--keep", "1", code=2)


def test_a_pull_never_writes_over_what_is_there(dock: Dock, tmp_path: Path) -> None:
    data = fill(tmp_path / "data", 1, 10)
    dock.filesets("push", "data", str(data))
    copy = tmp_path / "copy"
    copy.mkdir()
    (copy / "00000.bin").write_text("mine")
    assert "other content" in dock.filesets("pull", "data", "copy", code=2)
    assert (copy / "00000.bin").read_text() == "mine"
    dock.filesets("pull", "data", "copy", "--force")
    assert tree(copy) == tree(data)


def test_hostile_folders_are_refused_with_words(dock: Dock, tmp_path: Path) -> None:
    data = fill(tmp_path / "data", 1, 10)
    (data / "shadow").symlink_to("/etc/shadow")
    assert "'shadow' is a link" in dock.filesets("push", "data", str(data), code=2)
    assert "nothing matches '*.csv'" in dock.filesets(
        "push", "data", str(data), "--pattern", "*.csv", code=2
    )
    assert dock.filesets("ls")["filesets"] == []


def test_a_push_goes_on_when_the_gateway_is_killed_in_the_middle(
    dock: Dock, tmp_path: Path
) -> None:
    data = fill(tmp_path / "data", 3, 8_000_000)
    slow = settings(transfer_bytes_per_s=12_000_000, transfer_slots=2, request_timeout_s=30)
    words = ["filesets", "push", "data", str(data), "--connect", dock.url, "--json", *slow]
    push = subprocess.Popen(
        command(*words), env={**os.environ, **dock.env}, stdout=subprocess.PIPE, text=True
    )
    uploads = tmp_path / "files" / "uploads"

    def is_half_done() -> bool:
        return any(path.stat().st_size > 2_000_000 for path in _files(uploads))

    await_true(is_half_done, "an upload is under way")
    before = dock.gateway()
    before.send_signal(signal.SIGKILL)
    output, _ = push.communicate(timeout=60)
    assert push.returncode == 0
    assert json.loads(output)["files"] == 3
    assert dock.gateway().pid != before.pid
    dock.filesets("pull", "data", "copy")
    assert tree(tmp_path / "copy") == tree(data)
    assert [*_files(uploads)] == [], "what was half done is whole now"


def _files(folder: Path) -> list[Path]:
    try:
        return [path for path in folder.iterdir() if path.exists() and len(path.name) > 64]
    except FileNotFoundError:
        return []


def test_many_small_files_are_pushed_with_flat_memory(dock: Dock, tmp_path: Path) -> None:
    """Ten times as many files take hardly more memory, in the command and in the gateway."""
    few, many = tmp_path / "few", tmp_path / "many"
    _small(few, 500)
    _small(many, 5_000)
    first = _peak_of_push(dock, few)
    gateway = dock.gateway().memory_info().rss
    second = _peak_of_push(dock, many)
    assert second - first < 25_000_000
    assert dock.gateway().memory_info().rss - gateway < 60_000_000
    assert dock.filesets("ls", "data")["versions"][0]["files"] == 5_000


def _small(folder: Path, count: int) -> None:
    for number in range(count):
        inner = folder / str(number // 100)
        inner.mkdir(parents=True, exist_ok=True)
        (inner / str(number)).write_bytes(b"%d " % number * 2_000)


def _peak_of_push(dock: Dock, folder: Path) -> int:
    """The most memory that a push of a folder takes."""
    words = command("filesets", "push", "data", str(folder), "--connect", dock.url)
    push = subprocess.Popen(words, env={**os.environ, **dock.env}, stdout=subprocess.DEVNULL)
    done = threading.Event()
    peaks: list[int] = []

    def reap() -> None:
        _, status, usage = os.wait4(push.pid, 0)
        push.returncode = os.waitstatus_to_exitcode(status)
        peaks.append(usage.ru_maxrss * 1024)
        done.set()

    threading.Thread(target=reap).start()
    assert done.wait(100)
    assert push.returncode == 0
    return peaks[0]


def test_a_gateway_with_another_folder_serves_no_files(dock: Dock, tmp_path: Path) -> None:
    data = fill(tmp_path / "data", 1, 10)
    dock.filesets("push", "data", str(data))
    words = ["--connect", dock.up.facts["frontend"], "--http", ANY]
    other = settings(files=tmp_path / "other", request_timeout_s=1)
    with Process("gateway", *words, *other, log=tmp_path / "gateway.log") as gateway:
        url = gateway.ready().facts["http"]
        done = run("filesets", "pull", "data", "copy", "--connect", url, *other, cwd=tmp_path)
        assert done.returncode == 4
        assert "another place has the files of this store" in done.stderr


def test_tokens_say_who_may_push_and_who_may_pull(
    store_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = fill(tmp_path / "data", 1, 10)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    dock = Dock(tmp_path, store_url, *settings(http_auth="required"))
    try:
        token = {role: _token(dock, role) for role in ("submit", "read", "worker")}
        token["blind"] = _token(dock, "read", "--hide-payloads")
        assert "needs a token" in dock.filesets("push", "data", str(data), code=2)
        monkeypatch.setenv("LONGSHORE_TOKEN", token["read"])
        assert "role read" in dock.filesets("push", "data", str(data), code=2)
        monkeypatch.setenv("LONGSHORE_TOKEN", token["submit"])
        assert dock.filesets("push", "data", str(data))["version"] == 1
        monkeypatch.setenv("LONGSHORE_TOKEN", token["read"])
        assert dock.filesets("pull", "data", "copy")["files"] == 1
        for other in ("worker", "blind"):
            monkeypatch.setenv("LONGSHORE_TOKEN", token[other])
            dock.filesets("pull", "data", other, "--set", f"files_cache={tmp_path}/{other}", code=2)
    finally:
        dock.up.close()


def _token(dock: Dock, role: str, *words: str) -> str:
    """A new token, made by the dispatcher's own port, which asks for none."""
    name = f"{role}{''.join(words)}"
    asked = ["--role", role, "--name", name, "--connect", dock.up.facts["frontend"]]
    done = run("token", "create", *asked, *words)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()
