"""`submit --wait` and `logs --follow` on real processes: everything a job says, then its end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from longshore.testing.processes import Process, run, settings
from tests.system.conftest import ANY, QUICK

APP = '''
import longshore

app = longshore.App("press")

@app.job
async def press(sheets: int) -> int:
    """Says more than one page of a log holds."""
    for sheet in range(sheets):
        print(f"sheet {sheet}")
        longshore.current().progress(sheet, sheets)
    return sheets

@app.job
async def jam() -> None:
    """Says why it fails."""
    print("paper jam")
    raise OSError("jammed")

@app.job
async def wait() -> None:
    """Never ends."""
    import asyncio
    print("waiting")
    await asyncio.Event().wait()
'''


@pytest.fixture
def connect(tmp_path: Path) -> Iterator[tuple[str, str]]:
    """How to reach a dispatcher with a worker."""
    (tmp_path / "press.py").write_text(APP)
    words = ["--app", "press:app", "--backend", ANY, "--frontend", ANY, *settings(**QUICK)]
    with Process("up", *words, cwd=tmp_path, log=tmp_path / "up.log") as up:
        yield "--connect", up.ready().facts["frontend"]


def test_all_that_a_job_says_is_shown_before_its_outcome(connect: tuple[str, str]) -> None:
    done = run("submit", "press", "sheets=2500", "--wait", *connect)
    assert (done.returncode, done.stdout) == (0, "2500\n"), done.stderr
    said = [line.split("stdout   ")[1] for line in done.stderr.splitlines() if "stdout" in line]
    assert said == [f"sheet {sheet}" for sheet in range(2500)]
    followed = run("logs", "1", "--follow", *connect)
    assert followed.returncode == 0
    assert [line.split("stdout   ")[1] for line in followed.stdout.splitlines()] == said


def test_a_job_that_fails_says_its_last_words_and_exits_with_1(connect: tuple[str, str]) -> None:
    done = run("submit", "jam", "--wait", *connect)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.splitlines()[1].endswith("stdout   paper jam")
    assert done.stderr.splitlines()[-1] == (
        "error: job 1 failed, raised: OSError: jammed; `longshore job 1` shows more"
    )


def test_ctrl_c_leaves_the_job_and_says_how_to_cancel_it(connect: tuple[str, str]) -> None:
    command = [sys.executable, "-m", "longshore", "submit", "wait", "--wait", *connect]
    heeds = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)  # the tests may run without one
    with subprocess.Popen(
        command, stderr=subprocess.PIPE, text=True, env=os.environ, preexec_fn=heeds
    ) as waiting:
        assert waiting.stderr is not None
        for line in waiting.stderr:
            if line.endswith("stdout   waiting\n"):
                break
        waiting.send_signal(signal.SIGINT)
        left = waiting.stderr.read()
    assert waiting.returncode == 130
    assert "job 1 goes on; `longshore cancel 1` cancels it" in left
    assert run("cancel", "1", *connect).stdout == "job 1 is being cancelled: its worker stops it\n"
    assert run("logs", "1", "--follow", *connect).returncode == 0
