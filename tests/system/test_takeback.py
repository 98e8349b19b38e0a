"""Containers that outlive their worker's agent, on a real engine: kill -9, and what comes next."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

import longshore
from longshore.model.job import JobState
from longshore.model.program import CONTAINER_KIND
from longshore.testing.engine import IMAGE, Engine
from longshore.testing.processes import Process, await_true, run, settings
from tests.system.conftest import ANY, QUICK, QUICK_WORKER, Fleet
from tests.system.test_containers import Ship, names

BEGIN = "echo before; echo 1 > $LONGSHORE_PROGRESS; "
WAIT = "while [ ! -e go ]; do sleep 0.05; done; "


@pytest.fixture
def fleet(migrated_sqlite_url: str, tmp_path: Path) -> Iterator[Fleet]:
    """On one store: what is tested here is in workers."""
    fleet = Fleet(migrated_sqlite_url, tmp_path)
    yield fleet
    fleet.close()


def test_a_container_goes_on_when_its_agent_is_killed_and_restarted(
    migrated_sqlite_url: str, engine: Engine, tmp_path: Path
) -> None:
    """`longshore up` restarts its worker: same attempt, one run, nothing of it lost."""
    state = {"state_folder": tmp_path / "state", "scratch": tmp_path / "scratch"}
    words = ["--store", migrated_sqlite_url, "--backend", ANY, "--frontend", ANY, "--http", ANY]
    options = {**QUICK, **QUICK_WORKER, **state, "lease_s": 20, "engine": engine.url}
    log = tmp_path / "up.log"
    with Process("up", "--exec", *words, *settings(**options), cwd=tmp_path, log=log) as up:
        up.ready()
        with longshore.App("client", connect=up.facts["frontend"]) as app:
            script = (
                BEGIN
                + WAIT
                + "echo after | tee made.txt; echo $LONGSHORE_TOKEN > $LONGSHORE_RESULT"
            )
            outputs = [{"fileset": "made", "patterns": ["*.txt"]}]
            args = {"image": IMAGE, "command": ["sh", "-c", script], "outputs": outputs}
            handle = app.submit_by_name(CONTAINER_KIND, args)
            await_true(lambda: handle.job().progress is not None, "it runs")
            token = handle.job().token
            [agent] = (
                one for one in psutil.Process(up.pid).children() if "worker" in one.cmdline()
            )
            agent.kill()
            [work] = (tmp_path / "scratch").glob("longshore-scratch-*/*/work")
            (work / "go").touch()
            assert handle.result(60) == token
            job = handle.job()
            assert (job.state, job.attempt, job.crashes) == (JobState.SUCCEEDED, 1, 0)
            at = {"LONGSHORE_CONNECT": up.facts["frontend"]}
            told = json.loads(run("logs", str(job.number), "--json", env=at).stdout)
            printed = [line["text"] for line in told if line["stream"] == "stdout"]
            assert printed == ["before", "after"]
            shown = run("filesets", "ls", "made", "--json", "--connect", up.facts["http"])
            [version] = json.loads(shown.stdout)["versions"]
            assert (version["version"], version["job"]) == (1, str(job.id))
    assert engine.containers(f"name=longshore-{job.id}") == []
    assert list((tmp_path / "scratch").iterdir()) == []


def test_an_agent_that_dies_with_its_host_leaves_a_crash(
    fleet: Fleet, engine: Engine, tmp_path: Path
) -> None:
    """Nothing is left to take back: the next agent says so, long before the lease ends."""
    ship = Ship(fleet, engine, lease_s=20, state_folder=tmp_path / "state")
    handle = ship.submit(BEGIN + "[ $LONGSHORE_ATTEMPT != 1 ] || sleep 600")
    await_true(lambda: handle.job().progress is not None, "it runs")
    first = handle.job()
    hosts = psutil.Process(ship.worker.pid).children()
    for host in hosts:
        host.suspend()
    ship.worker.kill()
    for host in hosts:
        host.kill()
    ship.add_worker(state_folder=tmp_path / "state")
    assert names(ship, first) == []
    ship.app.wait_all([handle], timeout_s=60)
    job = handle.job()
    assert (job.state, job.crashes, job.worker) == (JobState.SUCCEEDED, 1, first.worker)
    assert "the worker's agent died while it ran" in str(job.history)
