"""Jobs in the threads of a real worker: many at once, cancelled, drained."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from longshore.errors import JobCancelled
from longshore.model.job import JobState
from tests.system.apps import harbour
from tests.system.conftest import Fleet, await_true, lines

THREADS = 32


def most_at_once(log: Path) -> int:
    """How many jobs ran together at most; each noted "+" when it began, "-" when it ended."""
    running = most = 0
    for line in lines(log):
        running += 1 if line == "+" else -1
        most = max(most, running)
    assert running == 0
    return most


def test_64_jobs_that_wait_run_32_at_once(fleet: Fleet, tmp_path: Path) -> None:
    dispatcher = fleet.dispatcher(lease_s=20)
    log, go = tmp_path / "log", tmp_path / "go"
    # The first 32 wait for each other: then there is no luck in how many run together.
    calls = [harbour.rest_in_thread.call(str(log), str(go), 0.05) for _ in range(2 * THREADS)]
    fleet.worker(dispatcher, threads=THREADS)
    app = fleet.client(dispatcher)
    handles = app.submit_many(calls)
    await_true(lambda: len(lines(log)) == THREADS, "as many run as there are threads")
    go.touch()
    app.wait_all(handles, timeout_s=30)
    assert len({handle.result() for handle in handles}) == 1
    assert most_at_once(log) == THREADS


def test_a_cancelled_job_stops_and_its_neighbour_finishes(fleet: Fleet, tmp_path: Path) -> None:
    dispatcher = fleet.dispatcher(lease_s=20)
    worker = fleet.worker(dispatcher, abort_grace_s=60)
    app = fleet.client(dispatcher)
    started, until, stopped = tmp_path / "started", tmp_path / "until", tmp_path / "stopped"
    (neighbour,) = app.submit_many([harbour.hold_thread.call(str(started), str(until))])
    (cancelled,) = app.submit_many([harbour.doze_in_thread.call(str(started), str(stopped))])
    await_true(lambda: len(lines(started)) == 2, "both began")
    assert len(set(lines(started))) == 1
    cancelled.cancel()
    with pytest.raises(JobCancelled):
        cancelled.result(30)
    assert lines(stopped) == ["cancelled: True"]
    (later,) = app.submit_many([harbour.hold_thread.call(str(started), str(started))])
    assert later.result(30) != int(lines(started)[0])
    until.touch()
    assert neighbour.result(30) == int(lines(started)[0])
    assert worker.terminate() == 0


def test_a_drain_waits_for_threads_and_a_second_signal_hands_them_back(
    fleet: Fleet, tmp_path: Path
) -> None:
    dispatcher = fleet.dispatcher(lease_s=20)
    worker = fleet.worker(dispatcher, drain_s=600)
    app = fleet.client(dispatcher)
    started, until, never = tmp_path / "started", tmp_path / "until", tmp_path / "never"
    short, endless = app.submit_many(
        [
            harbour.hold_thread.call(str(started), str(until)),
            harbour.hold_thread.call(str(started), str(never)),
        ]
    )
    await_true(lambda: len(lines(started)) == 2, "both began")
    worker.signal(signal.SIGTERM)
    await_true(lambda: "draining: 2 running jobs" in worker.said(), "it drains")
    until.touch()
    short.result(30)
    worker.signal(signal.SIGTERM)
    assert worker.wait() == 0
    await_true(lambda: endless.job().state is JobState.READY, "it was handed back")
    never.touch()
    fleet.worker(dispatcher)
    assert isinstance(endless.result(30), int)
    assert len(lines(started)) == 3
