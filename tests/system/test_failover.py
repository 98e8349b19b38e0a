"""The primary of a PostgreSQL under Patroni dies under load: Longshore goes on, and loses nothing.

The command is that of failover.md, for a shorter time and with fewer processes.
"""

from __future__ import annotations

import json
import shlex
import subprocess
from pathlib import Path

import pytest

from longshore.testing.processes import command
from tests.system.pages import blocks

KILLS_THE_SERVER = 7
"""The first fault of this seed kills PostgreSQL, and lets its Patroni live."""
SMALL = ("--workers", "1", "--gateways", "0", "--plain-workers", "0", "--clients", "1")


@pytest.mark.timeout(300)
def test_the_death_of_the_primary_loses_nothing_and_stops_no_running_job(tmp_path: Path) -> None:
    commands = blocks("failover.md", "console")[0].commands()
    (typed,) = (typed for typed, _ in commands if "patroni" in typed)
    words = shlex.split(typed.replace("--minutes 10", f"--seconds 14 --seed {KILLS_THE_SERVER}"))
    done = subprocess.run(
        command(*words[1:], "--folder", str(tmp_path), *SMALL, "--json"),
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(done.stdout)
    verdict = report["verdict"]
    assert (report["kept"], report["store"], verdict["broken"]) == (True, "PostgreSQL", [])
    assert [one["deed"] for one in verdict["recoveries"]] == ["kill_server"]
    assert verdict["store_away_s"] > 0, "the primary was away"
    assert verdict["accepted"] == verdict["finished"] > 20
