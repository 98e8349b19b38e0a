"""Processes that are replaced after so many jobs, in a real worker."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from longshore.model.job import JobState
from tests.system.apps import harbour
from tests.system.conftest import Fleet, lines


def test_a_fleet_whose_processes_are_replaced_all_the_time_runs_each_job_once(
    fleet: Fleet, tmp_path: Path
) -> None:
    dispatcher = fleet.dispatcher(lease_s=20)
    fleet.worker(dispatcher, processes=2, max_jobs_per_process=40)
    app, ran = fleet.client(dispatcher), tmp_path / "ran"
    handles = app.submit_many([harbour.tick.call(str(ran), number) for number in range(300)])
    app.wait_all(handles, timeout_s=60)
    assert Counter(lines(ran)) == {str(number): 1 for number in range(300)}
    views = [handle.job() for handle in handles]
    assert {(view.state, view.crashes) for view in views} == {(JobState.SUCCEEDED, 0)}
