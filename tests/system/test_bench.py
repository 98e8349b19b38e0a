"""The benchmark runs: every figure of the docs comes from it. What it says is not judged here."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from longshore.testing.servers import memory_disk

ROOT = Path(__file__).parents[2]
NEEDED_BYTES = 4 * 1024**3


def test_the_benchmark_measures_both_stores_and_what_they_could_do(tmp_path: Path) -> None:
    asked = ["--quick", "--only", "limit,throughput", "--out", str(tmp_path)]
    disk = memory_disk(NEEDED_BYTES)
    done = subprocess.run(
        [sys.executable, "bench/run.py", *asked],
        cwd=ROOT,
        env={**os.environ, **({"TMPDIR": str(disk)} if disk else {})},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads((tmp_path / "results.json").read_text())
    assert found["failures"] == {}
    assert set(found["limit"]["ceilings"]) == {"postgres", "sqlite"}
    assert "of the limit" in (tmp_path / "results.md").read_text()
