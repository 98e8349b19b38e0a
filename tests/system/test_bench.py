"""The benchmark runs: every figure of the docs comes from it. What it says is not judged here."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from bench.plain import scheduled_s
from longshore.testing.servers import memory_disk

ROOT = Path(__file__).parents[2]
NEEDED_BYTES = 4 * 1024**3
RUN_S = 300
pytestmark = pytest.mark.timeout(RUN_S + 30)


def run_quickly(parts: str, folder: Path) -> tuple[dict[str, Any], str]:
    """What a quick run of these parts found, and its report."""
    asked = ["--quick", "--only", parts, "--out", str(folder)]
    disk = memory_disk(NEEDED_BYTES)
    done = subprocess.run(
        [sys.executable, "bench/run.py", *asked],
        cwd=ROOT,
        env={**os.environ, **({"TMPDIR": str(disk)} if disk else {})},
        capture_output=True,
        text=True,
        timeout=RUN_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads((folder / "results.json").read_text())
    assert found["failures"] == {}
    return found, (folder / "results.md").read_text()


def test_the_benchmark_measures_both_stores_and_what_they_could_do(tmp_path: Path) -> None:
    found, report = run_quickly("limit,throughput", tmp_path)
    assert set(found["limit"]["ceilings"]) == {"postgres", "sqlite"}
    assert "of the limit" in report


def test_the_benchmark_measures_plain_functions_in_every_pool(tmp_path: Path) -> None:
    found, report = run_quickly("plain", tmp_path)
    measured = {(case["store"], case["pool"]) for case in found["plain"]["rates"]}
    assert measured == set(product(["postgres", "sqlite"], ["processes", "threads"]))
    for work in ("blocking", "computing", "mixed"):
        assert found["plain"][work]["median"] > 0
    assert "in the ideal time" in report


def test_an_ideal_schedule_begins_each_job_when_a_process_is_free() -> None:
    assert scheduled_s([2, 1, 1, 1, 3], 2) == 5
    assert scheduled_s([1, 1], 8) == 1


def test_the_benchmark_measures_containers_beside_bare_calls_of_the_engine(tmp_path: Path) -> None:
    found, report = run_quickly("containers", tmp_path)
    assert found["containers"]["ratio"]["median"] > 0
    assert "by bare calls of the API" in report


def test_the_benchmark_measures_filesets_beside_cp(tmp_path: Path) -> None:
    found, report = run_quickly("filesets", tmp_path)
    assert found["filesets"]["pulled"]["median"] > 0
    assert "by `cp -r`" in report


def test_the_benchmark_measures_limits_beside_jobs_without(tmp_path: Path) -> None:
    found, report = run_quickly("limits", tmp_path)
    assert {one["store"] for one in found["limits"]} == {"postgres", "sqlite"}
    for one in found["limits"]:
        assert one["one_key"]["median"] > 0
        assert one["many_keys_cpu"]["median"] > 0
    assert "limits: one key on every job, PostgreSQL | 0.85 |" in report
    assert "limits: 500 keys, SQLite | 0.75 |" in report


def test_the_benchmark_measures_schedules_with_real_dispatchers(tmp_path: Path) -> None:
    found, report = run_quickly("schedules", tmp_path)
    cases = [(one["store"], one["dispatchers"]) for one in found["schedules"]]
    assert cases == [("postgres", 1), ("sqlite", 1)]
    assert [one["wrong"] for one in found["schedules"]] == [0, 0]
    assert "all submitted, SQLite, 1 dispatcher | within 2 s |" in report


def test_the_benchmark_measures_fairness_also_of_jobs_of_different_length(tmp_path: Path) -> None:
    found, report = run_quickly("fairness", tmp_path)
    for one in found["fairness"]:
        assert one["beside"] <= 2 * one["alone"]
        assert one["timed_jain"] > 0.9
    assert "of the time, jobs of different length, PostgreSQL | 0.95 |" in report


def test_the_benchmark_measures_pages_and_open_tabs(tmp_path: Path) -> None:
    found, report = run_quickly("dashboard", tmp_path)
    pages = {(one["store"], one["page"]) for one in found["dashboard"]["pages"]}
    names = ["overview", "list of jobs", "search", "job", "group"]
    assert pages == set(product(["postgres", "sqlite"], names))
    assert found["dashboard"]["tabs"]["tabs"] == 8
    assert "dashboard: 8 tabs while nothing happens: statements a second | at most 1 |" in report


def test_the_benchmark_measures_sleeping_actors_on_both_stores(tmp_path: Path) -> None:
    found, report = run_quickly("sleeping", tmp_path)
    for one in found["sleeping"]:
        assert one["fired"] > 0
    assert "sleep with a timer each over the next hour, SQLite: memory" in report
