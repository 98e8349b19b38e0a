"""Batches in real workers: killed in the middle of one, drained, cancelled."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from longshore.model.job import JobState
from longshore.testing.processes import Process, settings
from tests.system.apps import mill
from tests.system.conftest import QUICK_WORKER, Fleet, await_true, lines


def mill_worker(fleet: Fleet, dispatcher: Process) -> Process:
    words = ["--app", "mill:app", "--connect", dispatcher.facts["backend"]]
    return fleet.start("worker", *words, *settings(**QUICK_WORKER))


def ground(folder: Path) -> int:
    """How many sacks runs have taken so far."""
    return sum(len(line.split()) for line in lines(folder / "ran"))


def test_a_worker_killed_in_the_middle_of_a_batch_loses_none_of_its_jobs(
    fleet: Fleet, tmp_path: Path
) -> None:
    dispatcher = fleet.dispatcher()
    worker = mill_worker(fleet, dispatcher)
    calls = [mill.grind.call(sack, folder=str(tmp_path)) for sack in range(25)]
    handles = fleet.client(dispatcher).submit_many(calls)
    await_true(lambda: ground(tmp_path) == 25, "all run")
    assert len(lines(tmp_path / "ran")) <= 5
    worker.kill()
    (tmp_path / "until").touch()
    mill_worker(fleet, dispatcher)
    assert [handle.result(30) for handle in handles] == [
        f"{sack} at attempt 2" for sack in range(25)
    ]
    for handle in handles:
        job = handle.job()
        assert job.crashes == 1
        assert sum(entry.state is JobState.SUCCEEDED for entry in job.history) == 1


@pytest.fixture
def small_fleet(migrated_sqlite_url: str, tmp_path: Path) -> Iterator[Fleet]:
    """For what is the worker's business alone: one store is enough."""
    fleet = Fleet(migrated_sqlite_url, tmp_path)
    yield fleet
    fleet.close()


def test_a_drained_worker_runs_what_gathers_and_a_cancelled_job_leaves(small_fleet: Fleet) -> None:
    fleet = small_fleet
    dispatcher = fleet.dispatcher()
    worker = mill_worker(fleet, dispatcher)
    app = fleet.client(dispatcher)
    gone, *others = app.submit_many([mill.patient.call(sack) for sack in range(3)])

    def all_wait() -> bool:
        return {handle.status() for handle in others} == {JobState.RUNNING}

    await_true(all_wait, "they gather")
    gone.cancel()
    await_true(lambda: gone.status() is JobState.CANCELLED, "one is cancelled")
    assert worker.terminate() == 0
    assert [handle.result(10) for handle in others] == [2, 2]
