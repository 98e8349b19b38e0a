"""Real processes, really broken: promises hold, what breaks them is found, nothing is left."""

from __future__ import annotations

import json
import shlex
import signal
import sqlite3
import subprocess
from contextlib import closing, suppress
from pathlib import Path
from uuid import UUID

import psutil
import pytest

from longshore.testing.chaos.app import AT_ONCE
from longshore.testing.chaos.checker import judge
from longshore.testing.chaos.fleet import Fleet, Sizes
from longshore.testing.chaos.history import BODIES_VARIABLE
from longshore.testing.chaos.run import Wanted, run
from longshore.testing.processes import await_true, command
from tests.system.pages import blocks

SMALL = ("--workers", "1", "--clients", "2", "--rate", "5", "--every", "1.5")
TINY = Sizes(dispatchers=1, workers=1, gateways=0, plain=0, web=0, clients=1)
PATIENCE_S = 300


@pytest.mark.timeout(PATIENCE_S + 60)
def test_a_short_run_on_a_postgres_of_its_own_keeps_all_promises(tmp_path: Path) -> None:
    """The command of the page, for a shorter time and with fewer processes."""
    (typed,) = (typed for typed, _ in blocks("chaos.md", "console")[0].commands() if "42" in typed)
    words = shlex.split(typed.replace("--seconds 30", "--seconds 10"))[1:]
    done = subprocess.run(
        command(*words, "--folder", str(tmp_path), *SMALL, "--json"),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(done.stdout)
    assert (report["kept"], report["store"], report["seed"]) == (True, "PostgreSQL", 42)
    shape = "--workers 1 --clients 2 --rate 5.0 --every 1.5"
    assert report["again"] == f"longshore chaos --seed 42 --seconds 10 {shape}"
    verdict = report["verdict"]
    assert verdict["accepted"] == verdict["finished"] > 20
    assert verdict["broken"] == []
    assert len(verdict["recoveries"]) >= 3
    assert "<svg" in (tmp_path / "seed-42" / "report.html").read_text()
    assert not left_of(tmp_path)


@pytest.mark.timeout(PATIENCE_S)
def test_limits_hold_in_a_storm_in_which_their_keys_are_full(tmp_path: Path) -> None:
    """Without a key that is full, a run would say nothing of limits."""
    wanted = Wanted(
        folder=tmp_path / "run",
        seed=7,
        seconds=8,
        sizes=Sizes(dispatchers=2, workers=2, gateways=0, plain=0, web=0, clients=2),
        rate=25,
        every_s=1.5,
        sorts=("limited",),
    )
    verdict = judge(run(wanted, lambda words: None).events)
    assert verdict.broken == ()
    assert verdict.accepted == verdict.finished > 20
    assert len(verdict.recoveries) >= 2
    assert verdict.at_once == {"tank=north": AT_ONCE, "tank=south": AT_ONCE}


@pytest.mark.timeout(PATIENCE_S)
def test_a_store_that_loses_and_doubles_outcomes_is_found_out(tmp_path: Path) -> None:
    """The twin: whatever else is as always, two rows of the store are changed behind its back."""
    broken: list[str] = []

    def sabotage(fleet: Fleet) -> None:
        broken.extend(lose_and_double(fleet.store.removeprefix("sqlite:///")))

    wanted = Wanted(
        folder=tmp_path / "run",
        seed=1,
        seconds=4,
        store="sqlite",
        sizes=TINY,
        rate=10,
        every_s=60,
        sorts=("async",),
    )
    verdict = judge(run(wanted, lambda words: None, sabotage).events)
    told = {(one.rule, one.subject.split()[0]) for one in verdict.broken}
    assert ("lost", broken[0]) in told
    assert ("recorded twice", broken[1]) in told
    assert {subject for _, subject in told} == set(broken), "and nothing else is wrong"


def lose_and_double(file: str) -> tuple[str, str]:
    """One job that has succeeded is gone, another one runs again; answers which."""
    with closing(sqlite3.connect(file, timeout=20)) as store, store:
        rows = store.execute(
            "SELECT id FROM job WHERE kind = 'step' AND state = 'succeeded' ORDER BY number LIMIT 2"
        ).fetchall()
        lost, doubled = (bytes(row[0]) for row in rows)
        store.execute("DELETE FROM job WHERE id = ?", (lost,))
        again = "state = 'ready', worker = NULL, session = NULL, token = token + 1"
        store.execute(f"UPDATE job SET {again} WHERE id = ?", (doubled,))
    return uuid_text(lost), uuid_text(doubled)


def uuid_text(data: bytes) -> str:

    return str(UUID(bytes=data))


@pytest.mark.timeout(PATIENCE_S)
@pytest.mark.parametrize("by", [signal.SIGINT, signal.SIGKILL])
def test_whatever_ends_a_run_ends_all_that_it_started(tmp_path: Path, by: signal.Signals) -> None:
    few = ("--dispatchers", "1", "--workers", "1", "--plain-workers", "1", "--gateways", "0")
    words = ("--minutes", "10", "--store", "sqlite", *few, "--folder", str(tmp_path))
    with subprocess.Popen(command("chaos", *words), stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert any("the storm begins" in line for line in process.stdout)
        assert len(left_of(tmp_path)) >= 3
        process.send_signal(by)
        process.communicate(timeout=PATIENCE_S)
    assert process.returncode == (-by if by is signal.SIGKILL else 130)
    await_true(lambda: not left_of(tmp_path), "all of its processes have ended")


def left_of(folder: Path) -> list[int]:
    """The processes of runs in this folder, by the mark that they carry."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.environ().get(BODIES_VARIABLE, "").startswith(str(folder)):
                found.append(process.pid)
    return found
