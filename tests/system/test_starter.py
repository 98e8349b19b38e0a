"""What `longshore init` writes runs: the app, its jobs and its test, by the commands it says."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from longshore.testing.processes import Process, run
from longshore.testing.servers import free_port


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A new app."""
    return tmp_path / "crane"


def test_the_two_commands_that_init_says_run_a_job(folder: Path) -> None:
    said = run("init", str(folder)).stdout.splitlines()
    (_, *up), (_, *submit) = map(shlex.split, said[-2:])
    env = {
        "LONGSHORE_BACKEND": f"127.0.0.1:{free_port()}",
        "LONGSHORE_FRONTEND": f"127.0.0.1:{free_port()}",
    }
    with Process(*up, env=env, cwd=folder, log=folder / "up.log") as process:
        process.ready()
        done = run(*submit, env=env, cwd=folder)
        assert (done.returncode, done.stdout) == (0, '"hello, Ada"\n'), done.stderr
        words = run("submit", "count_words", "text=three small words", "--wait", env=env)
        assert words.stdout == "3\n", words.stderr
        assert run("submit", "count_words", "text=1", "--wait", env=env).returncode != 0
        assert process.terminate() == 0


def test_the_test_that_init_writes_passes(folder: Path) -> None:
    run("init", str(folder))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "."],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout
