"""A gateway that is gone, a disk that is full: the job waits, at no cost, until it can go on."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from itertools import count
from pathlib import Path
from typing import Any

import pytest

import longshore
from longshore.model.job import JobState
from longshore.model.program import COMMAND_KIND
from longshore.testing.processes import Process, await_true, run, settings
from tests.system.conftest import ANY, QUICK, QUICK_WORKER

SIZE = 2_000_000
COUNT = ["sh", "-c", 'cat data/* | wc -c > "$LONGSHORE_RESULT"']


class Harbour:
    """A dispatcher, a gateway of its own, a worker that runs commands, and the fileset `data`."""

    def __init__(self, folder: Path, ends: ExitStack) -> None:
        self.folder, self._ends = folder, ends
        store = f"sqlite:///{folder}/store.db"
        words = ["--store", store, "--backend", ANY, "--frontend", ANY, "--no-http"]
        self.facts = self._start("dispatcher", *words, *settings(**QUICK)).facts
        self.gateway = self.start_gateway(ANY)
        self.url = self.gateway.facts["http"]
        (folder / "data").mkdir()
        (folder / "data/one").write_bytes(os.urandom(SIZE))
        pushed = run("filesets", "push", "data", str(folder / "data"), "--connect", self.url)
        assert pushed.returncode == 0, pushed.stderr

    def _start(self, role: str, *words: str, env: dict[str, str] | None = None) -> Process:
        log = self.folder / f"{role}.log"
        made = self._ends.enter_context(Process(role, *words, env=env, cwd=self.folder, log=log))
        return made.ready()

    def start_gateway(self, address: str) -> Process:
        """A gateway that nobody replaces."""
        files = settings(files=self.folder / "files")
        return self._start(
            "gateway", "--connect", self.facts["frontend"], "--http", address, *files
        )

    def start_worker(self, scratch: Path) -> None:
        """A worker whose attempts have their folders below this one."""
        own = {"files_url": self.url, "files_cache": self.folder / "cache", "engine": "off"}
        given = settings(**QUICK_WORKER, **own, transfer_timeout_s=1.0)
        words = ["--connect", self.facts["backend"], "--exec", "--commands", "1"]
        self._start("worker", *words, *given, env={"TMPDIR": str(scratch)})


@pytest.fixture
def harbour(tmp_path: Path) -> Iterator[Harbour]:
    with ExitStack() as ends:
        yield Harbour(tmp_path, ends)


@pytest.fixture
def app(harbour: Harbour) -> Iterator[longshore.App]:
    with longshore.App("client", connect=harbour.facts["frontend"]) as client:
        yield client


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of a megabyte, for 200 files."""
    place = tmp_path / "disk"
    place.mkdir()
    subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m,nr_inodes=200", "none", place], check=True
    )
    yield place
    subprocess.run(["umount", "--lazy", place], check=True)


def counting(app: longshore.App) -> longshore.Handle[Any]:
    fields = {"argv": COUNT, "inputs": [{"fileset": "data", "path": "data"}]}
    return app.submit_by_name(COMMAND_KIND, fields)


def waits_because(handle: longshore.Handle[Any], reason: str) -> str:
    """What the history of a job says once an attempt has ended for this reason."""

    def told() -> str:
        job = handle.job()
        said = next((one.info for one in job.history if f"({reason})" in one.info), "")
        return said if job.state is JobState.DELAYED else ""

    await_true(lambda: bool(told()), f"an attempt ends with {reason}")
    return told()


def went_on(handle: longshore.Handle[Any]) -> None:
    """The job succeeds, and none of its attempts was a failure."""
    assert handle.result(60) == SIZE
    job = handle.job()
    assert (job.failures, job.crashes) == (0, 0)
    assert job.attempt > 1


def test_a_job_whose_gateway_is_gone_goes_on_when_there_is_one_again(
    harbour: Harbour, app: longshore.App, tmp_path: Path
) -> None:
    harbour.start_worker(tmp_path)
    harbour.gateway.kill()
    handle = counting(app)
    said = waits_because(handle, "transfer_failed")
    assert "the input 'data' was not moved within transfer_timeout_s (1 s)" in said
    harbour.start_gateway(harbour.url.removeprefix("http://"))
    went_on(handle)


def test_a_job_whose_input_does_not_fit_on_the_disk_goes_on_when_there_is_room(
    harbour: Harbour, app: longshore.App, small_disk: Path
) -> None:
    harbour.start_worker(small_disk)
    handle = counting(app)
    said = waits_because(handle, "disk_full")
    assert f"the input 'data': the files have {SIZE:,} bytes, and the disk has room for" in said
    subprocess.run(["mount", "-o", "remount,size=16m", small_disk], check=True)
    went_on(handle)


def test_a_job_whose_folder_cannot_be_made_goes_on_when_there_is_room(
    harbour: Harbour, app: longshore.App, small_disk: Path
) -> None:
    harbour.start_worker(small_disk)
    filling = small_disk / "filling"
    filling.mkdir()
    fill(filling)
    handle = app.submit_by_name(COMMAND_KIND, {"argv": ["true"]})
    assert "the worker's disk is full: " in waits_because(handle, "disk_full")
    shutil.rmtree(filling)
    handle.result(60)
    assert handle.job().failures == 0


def fill(folder: Path) -> None:
    """Makes files until there is no room for another."""
    with suppress(OSError):
        for number in count():
            (folder / str(number)).touch()
