"""Checkpoints of commands on real workers: what one saved, another goes on with."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from longshore.testing.processes import Process, await_true, run, settings
from tests.system.conftest import QUICK_WORKER
from tests.system.test_files import Dock

SCRIPT = """
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


@pytest.fixture
def dock(store_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Dock]:
    """A dispatcher with a gateway, and no worker."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    made = Dock(tmp_path, store_url)
    monkeypatch.chdir(tmp_path)
    yield made
    made.up.close()


def a_worker(dock: Dock, name: str) -> Process:
    """A worker with a cache of its own, which reads files over HTTP alone."""
    cache = dock.folder / f"{name}-cache"
    own = settings(files_url=dock.url, files_cache=cache, engine="off", **QUICK_WORKER)
    given = ["--connect", dock.up.facts["backend"], "--exec", "--commands", "1"]
    return Process("worker", *given, *own, log=dock.folder / f"{name}.log").ready()


def shown(dock: Dock, job: str) -> Any:
    return json.loads(run("job", job, "--connect", dock.up.facts["frontend"], "--json").stdout)


def test_command_goes_on_from_its_checkpoint_on_another_worker_after_a_kill(
    dock: Dock, tmp_path: Path
) -> None:
    to, mark = ["--connect", dock.up.facts["frontend"]], tmp_path / "mark"
    first = a_worker(dock, "first")
    with closing(first):
        words = ["--detach", "--checkpoint", "seen/*", *to, "--", "sh", "-c", SCRIPT, str(mark)]
        assert run("exec", *words).returncode == 0
        await_true(mark.exists, "the second attempt has saved, and runs on")
        job = shown(dock, "1")
        assert (job["attempt"], job["failures"], job["checkpoint"]["files"]) == (2, 0, 2)
        assert "checkpoint" in run("job", "1", *to).stdout
        os.kill(first.pid, signal.SIGKILL)
        with closing(a_worker(dock, "second")):
            await_true(lambda: shown(dock, "1")["ended_at"] is not None, "the job has ended")
    job = shown(dock, "1")
    assert (job["result"], job["attempt"], job["failures"]) == ("1 2 3", 3, 0)
    assert job["checkpoint"] is None
