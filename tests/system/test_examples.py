"""The examples run as they say, in one command."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_the_example_of_a_group_runs_in_one_command() -> None:
    done = subprocess.run(
        [sys.executable, EXAMPLES / "edition.py"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "13 succeeded, 1 skipped" in done.stdout
    assert "vans/3" in done.stdout
