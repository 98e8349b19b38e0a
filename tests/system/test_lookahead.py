"""Short plain functions at full speed: what a worker holds ahead survives what dies."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from longshore.model.job import JobState
from tests.system.apps import harbour
from tests.system.conftest import Fleet, await_true, lines

KNOWN = 25
"""After so many runs a worker knows that the kind is short."""


def test_a_process_that_dies_with_jobs_ahead_of_it_costs_only_the_job_that_ran(
    fleet: Fleet, tmp_path: Path
) -> None:
    """G3: one crash is counted, nothing that had ended is lost, and nothing ended runs again."""
    dispatcher = fleet.dispatcher(lease_s=10)
    fleet.worker(dispatcher, processes=1)
    app, ran, dead = fleet.client(dispatcher), tmp_path / "ran", tmp_path / "dead"
    app.wait_all(app.submit_many([harbour.tick.call(str(ran), -1) for _ in range(KNOWN)]))
    calls = [harbour.tick.call(str(ran), number) for number in range(300)]
    calls[150] = harbour.tick.call(str(ran), 150, kills=str(dead))
    handles = app.submit_many(calls)
    app.wait_all(handles, timeout_s=60)
    views = [handle.job() for handle in handles]
    assert {view.state for view in views} == {JobState.SUCCEEDED}
    assert [n for n, view in enumerate(views) if view.crashes or view.attempt > 1] == [150]
    runs = Counter(lines(ran))
    assert {number: count for number, count in runs.items() if count > 1 and number != "-1"} == {
        "150": 2
    }


def test_of_what_a_killed_worker_held_only_the_running_jobs_are_blamed(
    fleet: Fleet, tmp_path: Path
) -> None:
    """Three losses never poison a job that had not begun."""
    dispatcher = fleet.dispatcher()
    worker = fleet.worker(dispatcher, processes=2)
    app, ran = fleet.client(dispatcher), tmp_path / "ran"
    app.wait_all(app.submit_many([harbour.tick.call(str(ran), -1) for _ in range(2 * KNOWN)]))
    handles = app.submit_many([harbour.tick.call(str(ran), number) for number in range(400)])
    await_true(lambda: len(lines(ran)) > 2 * KNOWN + 20, "some of them ran")
    worker.kill()
    fleet.worker(dispatcher, processes=2)
    app.wait_all(handles, timeout_s=60)
    views = [handle.job() for handle in handles]
    assert {view.state for view in views} == {JobState.SUCCEEDED}
    assert sum(view.crashes for view in views) <= 2


def test_a_killed_process_with_jobs_ahead_in_its_own_queue_costs_only_the_job_that_ran(
    fleet: Fleet, tmp_path: Path
) -> None:
    """What lies in the queue of the process goes to the next one, and is not counted."""
    dispatcher = fleet.dispatcher(lease_s=20)
    fleet.worker(dispatcher, processes=1)
    app, ran, dead = fleet.client(dispatcher), tmp_path / "ran", tmp_path / "dead"
    app.wait_all(app.submit_many([harbour.tick.call(str(ran), -1) for _ in range(KNOWN)]))
    calls = [harbour.die_in_company.call(str(ran), number, str(dead)) for number in range(500)]
    handles = app.submit_many(calls)
    app.wait_all(handles, timeout_s=60)
    [(victim, ahead)] = [map(int, line.split()) for line in lines(dead)]
    assert ahead > 0, "nothing lay in the queue of the process that died"
    views = [handle.job() for handle in handles]
    assert {view.state for view in views} == {JobState.SUCCEEDED}
    assert [n for n, view in enumerate(views) if view.crashes or view.attempt > 1] == [victim]
    assert views[victim].crashes == 1
    runs = Counter(int(line) for line in lines(ran))
    assert {number: count for number, count in runs.items() if count > 1 and number != -1} == {
        victim: 2
    }
