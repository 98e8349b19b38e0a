"""Hooks, reloading, several apps and scratch folders, with real processes."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

import longshore
from longshore.testing.processes import Process, await_true, run, settings
from tests.system.conftest import ANY, QUICK, QUICK_WORKER, lines

ONE = """
import asyncio, os, pathlib, longshore

app = longshore.App("one")


@app.resource
async def notes():
    path = pathlib.Path("notes")
    with path.open("a") as file:
        print(f"opened {os.getpid()}", file=file, flush=True)
        yield path
        print(f"closed {os.getpid()}", file=file, flush=True)


@app.job
async def version(notes: pathlib.Path = longshore.GIVEN) -> int:
    return VERSION


@app.job
async def hold(until: str) -> int:
    pathlib.Path("started").touch()
    while not os.path.exists(until):
        await asyncio.sleep(0.01)
    return VERSION


@app.job
def scratch(wait: bool, ctx: longshore.Context) -> str:
    import time
    (ctx.scratch / "file").touch()
    pathlib.Path("scratch-made").write_text(str(ctx.scratch))
    time.sleep(1000 if wait else 0)
    return str(ctx.scratch)


VERSION = 1
"""
TWO = """
import longshore
app = longshore.App("two")
@app.job
def double(number: int) -> int: return 2 * number
"""
client = longshore.App("client")


@client.job
def version() -> int:
    return 0


@client.job
def hold(until: str) -> int:
    return 0


@client.job
def scratch(wait: bool) -> str:
    return ""


@client.job
def double(number: int) -> int:
    return 0


class Place:
    """A folder with two apps, a dispatcher, and workers of them."""

    def __init__(self, folder: Path, processes: ExitStack) -> None:
        self.folder = folder
        self._processes = processes
        self._count = 0
        (folder / "one.py").write_text(ONE)
        (folder / "two.py").write_text(TWO)

    def start(self, role: str, *words: str, **more: object) -> Process:
        """A process in that folder."""
        self._count += 1
        process = Process(
            role,
            *words,
            *settings(**{**QUICK, **QUICK_WORKER, **more}),
            cwd=self.folder,
            log=self.folder / f"{role}-{self._count}.log",
        )
        self._processes.callback(process.close)
        return process.ready()

    def app(self, address: str) -> longshore.App:
        """An app that only submits."""
        app = longshore.App("client", connect=address)
        self._processes.callback(app.close)
        return app


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    """Two apps, and whoever the test starts on them."""
    with ExitStack() as processes:
        yield Place(tmp_path, processes)


def up(place: Place, *words: str, **more: object) -> tuple[Process, longshore.App]:
    listening = ("--backend", ANY, "--frontend", ANY)
    process = place.start("up", *words, *listening, **more)
    return process, place.app(process.facts["frontend"])


def test_what_a_worker_opened_is_closed_when_it_drains(place: Place) -> None:
    process, app = up(place, "--app", "one:app")
    for _ in range(3):
        (handle,) = app.submit_many([version.call()])
        assert handle.result(20) == 1
    assert process.terminate() == 0
    opened, closed = lines(place.folder / "notes")
    assert (opened.split()[0], closed.split()[0]) == ("opened", "closed")
    assert opened.split()[1] == closed.split()[1]


def test_two_apps_share_a_worker(place: Place) -> None:
    _, app = up(place, "--app", "one:app", "--app", "two:app")
    first, second = app.submit_many([version.call(), double.call(4)])
    assert (first.result(20), second.result(20)) == (1, 8)


def test_a_worker_says_how_many_jobs_it_runs_at_once(place: Place) -> None:
    words = ["--slots", "7", "--processes", "3", "--commands", "4"]
    process, _ = up(place, "--app", "two:app", *words)
    runs = "runs up to 7 async jobs, 3 processes, 32 threads and 4 commands at once"
    assert f", {runs}\n" in process.said()


def test_apps_that_clash_are_both_named(place: Place) -> None:
    (place.folder / "three.py").write_text(TWO)
    done = run("worker", "--app", "two:app,three:app", cwd=place.folder)
    assert done.returncode == 2
    assert "the apps 'two:app' and 'three:app' both have a job 'double'" in done.stderr


def test_a_worker_whose_hook_fails_says_so_and_takes_no_jobs(place: Place) -> None:
    with (place.folder / "two.py").open("a") as file:
        file.write("@app.on_start\ndef connect(): raise OSError('no route')\n")
    done = run("worker", "--app", "two:app", cwd=place.folder)
    assert done.returncode == 2
    assert "the start-up hook 'connect' of the app 'two' failed: OSError: no route" in done.stderr


SLOW = """
import os, pathlib, time, longshore

app = longshore.App("slow")
pathlib.Path("importing").write_text(f"{os.getpid()} ")
time.sleep(1000)
"""


@pytest.mark.parametrize("role", ["up", "worker"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_while_the_app_is_loaded_ends_all_of_it_at_once(
    place: Place, role: str, number: signal.Signals
) -> None:
    (place.folder / "slow.py").write_text(SLOW)
    listening = ("--backend", ANY, "--frontend", ANY) if role == "up" else ()
    log = place.folder / "slow.log"
    with Process(role, "--app", "slow:app", *listening, cwd=place.folder, log=log) as process:
        importing = place.folder / "importing"
        await_true(lambda: importing.exists() and importing.read_text()[-1:] == " ", "it imports")
        process.signal(number)
        assert process.wait(10) == 0
        assert "ready" not in process.said()
    await_true(lambda: not Path(f"/proc/{int(importing.read_text())}").exists(), "it is gone", 5)


def test_how_long_an_app_may_take_to_load_is_a_setting(place: Place) -> None:
    (place.folder / "slow.py").write_text(SLOW)
    words = ("--app", "slow:app", *settings(start_timeout_s=0.5))
    done = run("worker", *words, cwd=place.folder)
    assert done.returncode == 2
    assert "took longer than start_timeout_s (0.5 s)" in done.stderr


def change(place: Place, text: str) -> None:
    path = place.folder / "one.py"
    with path.open("a") as file:
        file.write(text + "\n")


def test_up_reloads_and_running_jobs_end_in_good_order(place: Place) -> None:
    process, app = up(place, "--app", "one:app", "--reload")
    until = place.folder / "until"
    (old,) = app.submit_many([hold.call(str(until))])
    await_true((place.folder / "started").exists, "it started")
    change(place, "VERSION = 2")
    await_true(lambda: "one.py changed; starting anew" in process.said(), "the change is seen")
    await_true(lambda: process.said().count("longshore worker ready") == 2, "another is ready")
    (new,) = app.submit_many([version.call()])
    assert new.result(20) == 2
    until.touch()
    assert old.result(20) == 1
    assert process.terminate() == 0
    words = [line.split()[0] for line in lines(place.folder / "notes")]
    assert (words.count("opened"), words.count("closed")) == (2, 2)


def test_why_says_that_the_app_of_up_does_not_load_until_it_does(place: Place) -> None:
    process, app = up(place, "--app", "one:app", "--reload")
    change(place, "VERSION = = 2")
    await_true(lambda: "waiting for the next change" in process.said(), "it says so")
    (waits,) = app.submit_many([version.call()])
    await_true(lambda: "app 'one:app' does not load" in waits.why(), "why says it")
    (place.folder / "one.py").write_text(ONE + "VERSION = 3\n")
    assert waits.result(20) == 3
    other = app.submit_by_name("nobody_serves_it", {})
    assert other.why().startswith("no worker serves kind 'nobody_serves_it' (")


def test_a_worker_that_reloads_shows_a_syntax_error_and_waits(place: Place) -> None:
    dispatcher, app = up(place)
    backend = dispatcher.facts["backend"]
    worker = place.start("worker", "--app", "one:app", "--connect", backend, "--reload")
    change(place, "VERSION = = 2")
    await_true(lambda: "waiting for the next change" in worker.said(), "it says so")
    assert worker.said().count("SyntaxError") == 1
    assert "one.py, line" in worker.said()
    (waits,) = app.submit_many([version.call()])
    (place.folder / "one.py").write_text(ONE + "VERSION = 3\n")
    assert waits.result(20) == 3
    assert worker.terminate() == 0


def test_the_scratch_folder_of_a_killed_worker_is_removed_by_the_next(place: Place) -> None:
    rooms = place.folder / "rooms"
    dispatcher, app = up(place)
    words = ("--app", "one:app", "--connect", dispatcher.facts["backend"])
    worker = place.start("worker", *words, scratch=rooms)
    (handle,) = app.submit_many([scratch.call(True)])
    made = place.folder / "scratch-made"
    await_true(lambda: made.exists() and made.read_text() != "", "the folder is made")
    folder = Path(made.read_text())
    assert os.listdir(folder) == ["file"]
    assert str(handle.id) in folder.name
    assert folder.is_relative_to(rooms)
    worker.kill()
    handle.cancel()
    place.start("worker", *words, scratch=rooms)
    assert not folder.exists()
    (handle,) = app.submit_many([scratch.call(False)])
    assert not Path(handle.result(20)).exists()
