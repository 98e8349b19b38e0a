"""Files that go on, on real workers that are killed: from attempt to attempt, from job to job."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

import longshore
from longshore.testing.processes import Process, await_true, run, settings
from tests.system.conftest import QUICK_WORKER
from tests.system.pages import blocks
from tests.system.test_files import Dock

COUNTING = """
mkdir -p seen
echo $LONGSHORE_ATTEMPT > seen/$LONGSHORE_ATTEMPT
case $LONGSHORE_ATTEMPT in
1) exit 85 ;;
2)
    : > "$LONGSHORE_CHECKPOINT"
    while [ -e "$LONGSHORE_CHECKPOINT" ]; do sleep 0.02; done
    echo lost > seen/lost
    : > "$0"
    exec sleep 600 ;;
esac
echo "\\"$(cat seen/* | xargs)\\"" > "$LONGSHORE_RESULT"
"""
"""Attempt 1 asks by its exit code, attempt 2 while it runs. What it does after that is lost."""

SHIPPING = """
name: shipping
jobs:
  - key: load
    command:
      argv: [sh, -c, "mkdir out; echo crate > out/a; echo barrel > out/b"]
      outputs: [{fileset: cargo, path: out}]
  - key: sail
    command:
      argv:
        - sh
        - -c
        - 'mkdir out; [ -e "$0" ] || { : > "$0"; exec sleep 600; }; sort in/* > out/list'
        - ${mark}
      inputs: [{from: load, path: in}]
      outputs: [{fileset: cargo, path: out}]
  - key: unload
    command:
      argv: [sh, -c, 'echo "\\"$(cat first/a second/list | xargs)\\"" > "$LONGSHORE_RESULT"']
      inputs: [{from: load, path: first}, {from: sail, fileset: cargo, path: second}]
"""
"""The newest version of `cargo` is never the one that `unload` wants of `load`."""


class Harbour:
    """A dispatcher with a gateway, and workers that read files over HTTP alone."""

    def __init__(self, dock: Dock, app: longshore.App) -> None:
        self.dock, self.app = dock, app
        self.workers: list[Process] = []
        self.to = ["--connect", dock.up.facts["frontend"]]

    def worker(self) -> Process:
        """Another worker, with a cache of its own."""
        name = f"worker{len(self.workers)}"
        cache = self.dock.folder / name
        own = settings(files_url=self.dock.url, files_cache=cache, engine="off", **QUICK_WORKER)
        given = ["--connect", self.dock.up.facts["backend"], "--exec", "--commands", "1"]
        made = Process("worker", *given, *own, log=self.dock.folder / f"{name}.log")
        self.workers.append(made)
        return made.ready()

    def run_group(self, *words: str) -> longshore.GroupHandle:
        """The group of a file that is submitted."""
        done = run("run", *words, "--json", *self.to)
        assert done.returncode == 0, done.stderr
        return self.app.group_handle(json.loads(done.stdout)["id"])

    def replaced(self, worker: Process) -> None:
        """Kills a worker, and starts another."""
        os.kill(worker.pid, signal.SIGKILL)
        self.worker()


@pytest.fixture
def harbour(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Harbour]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    dock = Dock(tmp_path, str(request.getfixturevalue(f"migrated_{request.param}_url")))
    with longshore.App("client", connect=dock.up.facts["frontend"]) as app:
        made = Harbour(dock, app)
        yield made
    for worker in made.workers:
        worker.close()
    dock.up.close()


@pytest.mark.parametrize("harbour", ["postgres"], indirect=True)
def test_command_goes_on_from_its_checkpoint_on_another_worker_after_a_kill(
    harbour: Harbour, tmp_path: Path
) -> None:
    worker, mark = harbour.worker(), tmp_path / "mark"
    argv = ["sh", "-c", COUNTING, str(mark)]
    fields = {"argv": argv, "checkpoint": ["seen/*"]}
    handle = harbour.app.submit_by_name("longshore.command", fields)
    await_true(mark.exists, "the second attempt has saved, and runs on")
    job = handle.job()
    assert job.checkpoint is not None
    assert (job.attempt, job.failures, job.checkpoint.files) == (2, 0, 2)
    assert "2 files, 4 bytes, saved" in run("job", str(job.number), *harbour.to).stdout
    harbour.replaced(worker)
    assert handle.result(60) == "1 2 3"
    job = handle.job()
    assert (job.attempt, job.failures, job.checkpoint) == (3, 0, None)
    twice, ask = (one.text for one in blocks("containers.md", "sh"))
    fields = {"argv": ["sh", "-c", f"{twice}\n{ask}"], "checkpoint": ["state/**"]}
    assert harbour.app.submit_by_name("longshore.command", fields).result(60) == 2, (
        "as the page says"
    )


@pytest.mark.parametrize("harbour", ["sqlite"], indirect=True)
def test_three_steps_of_a_group_hand_their_files_on_although_a_worker_is_killed(
    harbour: Harbour, tmp_path: Path
) -> None:
    worker, mark = harbour.worker(), tmp_path / "mark"
    (tmp_path / "flow.yaml").write_text(SHIPPING)
    group = harbour.run_group("flow.yaml", "-p", f"mark={mark}")
    await_true(mark.exists, "the second step runs")
    harbour.replaced(worker)
    assert group.wait(60) == "succeeded"
    assert group.result("unload") == "crate barrel crate"
    versions = harbour.dock.filesets("ls", "cargo")["versions"]
    assert [one["version"] for one in versions] == [2, 1], "one for each job that makes some"
    (page,) = blocks("files.md", "yaml")
    (tmp_path / "tables.yaml").write_text(page.text)
    assert harbour.run_group("tables.yaml").result("sum", 60) == 7
