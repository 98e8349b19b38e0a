"""Jobs that take CPU, memory and devices of their worker, on real processes."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from longshore.testing.processes import Process, run, settings
from tests.system.conftest import ANY, QUICK

APP = '''
import os, pathlib, time
import longshore

app = longshore.App("press")
room = pathlib.Path("room")

@app.job(resources={"press": 1})
def print_it(page: int) -> int:
    """Counts how many run beside it, and stays until it is told to go."""
    mine = room / str(page)
    mine.touch()
    while not pathlib.Path("go").exists():
        time.sleep(0.01)
    beside = len(list(room.iterdir()))
    mine.unlink()
    return beside
'''


@pytest.fixture
def press(tmp_path: Path) -> Iterator[tuple[Path, tuple[str, str]]]:
    """A folder, and how to reach a dispatcher whose worker has two presses and eight processes."""
    (tmp_path / "press.py").write_text(APP)
    (tmp_path / "room").mkdir()
    words = ["--app", "press:app", "--backend", ANY, "--frontend", ANY, *settings(**QUICK)]
    words += ["--processes", "8", "--resources", "press=2", "--no-http"]
    with Process("up", *words, cwd=tmp_path, log=tmp_path / "up.log") as up:
        yield tmp_path, ("--connect", up.ready().facts["frontend"])


def test_no_more_jobs_run_than_fit_and_why_says_what_is_short(
    press: tuple[Path, tuple[str, str]],
) -> None:
    folder, connect = press
    for page in range(4):
        done = run("submit", "print_it", f"page={page}", *connect)
        assert done.returncode == 0, done.stderr
    waiting = run("why", "4", *connect).stdout
    while "which other jobs do not leave" not in waiting:
        assert "ready" in waiting, waiting
        waiting = run("why", "4", *connect).stdout
    assert "it takes press 1" in waiting
    assert "press 1 is needed, press 0 is there" in waiting
    (folder / "go").touch()
    beside = []
    for number in range(1, 5):
        run("logs", str(number), "--follow", *connect)
        beside.append(json.loads(run("job", str(number), "--json", *connect).stdout)["result"])
    assert max(beside) <= 2


def test_a_job_that_is_larger_than_any_worker_says_so(press: tuple[Path, tuple[str, str]]) -> None:
    _, connect = press
    done = run("submit", "print_it", "page=1", "--resources", "press=3,cpu=1000000", *connect)
    assert done.returncode == 0, done.stderr
    why = run("why", "1", *connect).stdout
    assert "no worker of kind 'print_it' is large enough" in why
    assert "press 3 is needed, press 2 is there" in why


def test_each_of_several_jobs_has_gpus_of_its_own_on_all_workers_of_a_machine(
    tmp_path: Path,
) -> None:
    """Each stays until all four run side by side."""
    (room := tmp_path / "room").mkdir()
    script = (
        f"touch {room}/$LONGSHORE_JOB; until [ $(ls {room} | wc -l) -ge 4 ]; do sleep 0.02; done; "
        "printf '\"%s %s\"' $LONGSHORE_DEVICE_GPU $CUDA_VISIBLE_DEVICES > $LONGSHORE_RESULT; "
        # Its variables are no settings for a command of Longshore in it.
        f"{sys.executable} -m longshore --version"
    )
    words = ["--exec", "--backend", ANY, "--frontend", ANY, "--workers", "2", "--no-http"]
    own = settings(**QUICK, commands=2, engine="off")
    with Process("up", *words, "--resources", "gpu=2", *own, cwd=tmp_path) as up:
        connect = ("--connect", up.ready().facts["frontend"])
        for _ in range(4):
            one = ["exec", "--detach", "--resources", "gpu=1", *connect, "--", "sh", "-c", script]
            assert run(*one).returncode == 0
        results = set()
        for number in range(1, 5):
            run("logs", str(number), "--follow", *connect)
            results.add(json.loads(run("job", str(number), "--json", *connect).stdout)["result"])
    assert results == {"0 0", "1 1", "2 2", "3 3"}


def test_resources_that_are_none_are_refused(press: tuple[Path, tuple[str, str]]) -> None:
    _, connect = press
    done = run("submit", "print_it", "page=1", "--resources", "press=lots", *connect)
    assert done.returncode == 2
    assert done.stderr == ("error: resource press is 'lots'; give it like cpu=2,memory=4g,gpu=1\n")
