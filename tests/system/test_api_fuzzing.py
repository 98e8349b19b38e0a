"""schemathesis reads /openapi.json and tries to break what it describes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from longshore.testing.processes import Process, run, settings
from tests.system.conftest import ANY, QUICK

CONFIG = Path(__file__).with_name("schemathesis.toml")
EXAMPLES = 1
"""How many random requests each operation gets, beside those at the edges of its schema."""
PHASES = "coverage,fuzzing"
UNTRIED = "/dispatcher/.*events|/events|/dispatcher/checkpoints/"
"""Streams, which do not end for a client that only waits, and what only an attempt may ask."""


@pytest.fixture
def facts(tmp_path: Path) -> Iterator[dict[str, str]]:
    """A dispatcher with a gateway."""
    words = ["--backend", ANY, "--frontend", ANY, "--http", ANY]
    words += ["--store", f"sqlite:///{tmp_path}/store.db", *settings(**QUICK, max_long_poll_s=0.1)]
    with Process("dispatcher", *words, log=tmp_path / "dispatcher.log") as process:
        yield process.ready().facts


def test_schemathesis_finds_nothing(facts: dict[str, str], tmp_path: Path) -> None:
    """It has an admin's token: without one, nobody makes tokens over HTTP."""
    url, to = facts["http"], ["--connect", facts["frontend"]]
    made = run("token", "create", "--name", "tries", "--role", "admin", *to)
    assert made.returncode == 0, made.stderr
    command = [sys.executable, "-m", "schemathesis.cli", "--config-file", str(CONFIG)]
    command += ["run", f"{url}/openapi.json"]
    command += ["--header", f"Authorization: Bearer {made.stdout.strip()}"]
    command += ["--max-examples", str(EXAMPLES), "--seed", "7", "--exclude-path-regex", UNTRIED]
    # One thread: with two, ast.parse of Python 3.11.7 sometimes raises a SystemError.
    command += ["--phases", PHASES, "--no-color", "--workers", "1"]
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, timeout=110, check=False
    )
    assert done.returncode == 0, done.stdout[-6_000:] + done.stderr[-2_000:]
