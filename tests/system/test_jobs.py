"""One dispatcher, real workers, real jobs: what a user relies on."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import longshore
from longshore.errors import JobCancelled, JobFailed
from longshore.model.job import JobState
from longshore.testing.processes import run
from tests.system.apps import harbour
from tests.system.conftest import Fleet, await_true, lines


@pytest.fixture
def at(module_fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> Iterator[Fleet]:
    """A dispatcher and one worker; the harbour app's jobs are submitted there."""
    yield from _submitted_to(module_fleet, monkeypatch)


@pytest.fixture
def at_own(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> Iterator[Fleet]:
    """The same for a test that crashes processes: the worker starts each next one later."""
    fleet.worker(fleet.dispatcher(lease_s=20))
    yield from _submitted_to(fleet, monkeypatch)


def _submitted_to(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> Iterator[Fleet]:
    monkeypatch.setattr(harbour.app, "_addresses", fleet.processes[0].facts["frontend"])
    yield fleet
    harbour.app.close()


def test_async_and_plain_jobs_run_and_give_their_results(at: Fleet) -> None:
    assert harbour.add.submit(2, 3).result(30) == 5
    assert harbour.multiply.submit(2, 3).result(30) == 6


def test_many_jobs_at_once(at: Fleet) -> None:
    handles = harbour.app.submit_many([harbour.add.call(i, 1) for i in range(500)])
    harbour.app.wait_all(handles, timeout_s=60)
    assert [handle.result() for handle in handles] == [i + 1 for i in range(500)]


def test_a_job_fails_twice_and_recovers(at: Fleet) -> None:
    handle = harbour.recover.submit(2)
    assert handle.result(30) == 3
    states = [entry.state for entry in handle.job().history]
    assert states.count(JobState.DELAYED) == 2


def test_a_job_that_always_fails_says_how(at: Fleet) -> None:
    with pytest.raises(JobFailed, match="attempt 4 of 9 to fail") as failed:
        harbour.recover.submit(9).result(30)
    assert failed.value.type == "ConnectionError"
    assert "raise ConnectionError" in failed.value.traceback
    assert "longshore/executors" not in failed.value.traceback


def test_a_segfault_costs_one_job_and_the_worker_goes_on(at_own: Fleet) -> None:
    handle = harbour.segfault.submit()
    assert harbour.multiply.submit(3, 4).result(30) == 12
    with pytest.raises(JobFailed, match="SIGSEGV") as failed:
        handle.result(30)
    assert failed.value.reason == "poisonous"
    assert handle.job().crashes == 3


def test_a_job_that_kills_its_own_process_is_given_up_after_three_times(at_own: Fleet) -> None:
    with pytest.raises(JobFailed, match="SIGKILL"):
        harbour.kill_myself.submit().result(30)
    assert harbour.multiply.submit(3, 4).result(30) == 12


def test_a_forked_copy_does_not_report(at: Fleet, tmp_path: Path) -> None:
    started = tmp_path / "started"
    assert harbour.fork.submit(str(started)).result(30) == "original"
    await_true(lambda: sorted(lines(started)) == ["copy", "original"], "both copies")
    assert harbour.multiply.submit(3, 4).result(30) == 12


@pytest.mark.parametrize("job", [harbour.unserialisable, harbour.unserialisable_async])
def test_a_result_that_cannot_be_stored_fails_the_job_once(at: Fleet, job: Any) -> None:
    handle = job.submit()
    with pytest.raises(JobFailed, match=r"the result of job 'unserialisable.* cannot be stored"):
        handle.result(30)
    assert handle.job().attempt == 1


def test_a_coroutine_that_ignores_its_cancelling_is_ended_and_its_neighbours_are_handed_back(
    at: Fleet, tmp_path: Path
) -> None:
    started, until = tmp_path / "started", tmp_path / "until"
    neighbour = harbour.hold.submit(str(tmp_path / "neighbour"), str(until))
    stubborn = harbour.ignore_cancelling.submit(str(started))
    await_true(lambda: bool(lines(started) and lines(tmp_path / "neighbour")), "both started")
    stubborn.cancel()
    with pytest.raises(JobCancelled):
        stubborn.result(30)
    await_true(lambda: len(lines(tmp_path / "neighbour")) == 2, "the neighbour started again")
    until.touch()
    assert neighbour.result(30) == "held"
    view = neighbour.job()
    assert (view.failures, view.crashes) == (0, 0)


def test_a_job_that_blocks_the_loop_is_timed_out_and_the_worker_stays(
    at: Fleet, tmp_path: Path
) -> None:
    with pytest.raises(JobFailed, match="longer than its timeout") as failed:
        harbour.block_the_loop.submit(str(tmp_path / "started")).result(30)
    assert failed.value.reason == "timed_out"
    assert harbour.add.submit(1, 1).result(30) == 2


def test_a_busy_loop_is_timed_out(at: Fleet) -> None:
    with pytest.raises(JobFailed, match="longer than its timeout"):
        harbour.burn.submit().result(30)


@pytest.mark.parametrize("job", [harbour.hold, harbour.hold_process])
def test_a_running_job_is_cancelled_for_real(at: Fleet, tmp_path: Path, job: Any) -> None:
    started = tmp_path / "started"
    handle = job.submit(str(started), str(tmp_path / "never"))
    await_true(lambda: bool(lines(started)), "it started")
    handle.cancel()
    with pytest.raises(JobCancelled):
        handle.result(30)


def test_progress_and_steps_are_shown_with_the_job(at: Fleet) -> None:
    handle = harbour.report.submit(3)
    assert handle.result(30) == 3

    def shown() -> bool:
        view = handle.job()
        return view.progress is not None and view.progress.done == 3 and view.step == "doing 3"

    await_true(shown, "the last progress")


def test_a_jobs_outbox_is_committed_with_it(at: Fleet) -> None:
    connect = ["--connect", at.processes[0].facts["frontend"], "--json"]

    def succeeded() -> int:
        (queue,) = json.loads(run("queues", *connect).stdout)
        return int(queue["counts"].get("succeeded", 0))

    assert harbour.add.submit(1, 1).result(30) == 2
    before = succeeded()
    assert harbour.order_more.submit(3).result(30) == 3
    await_true(lambda: succeeded() == before + 4, "the jobs it ordered")


def test_priority_decides_who_is_next(fleet: Fleet, tmp_path: Path) -> None:
    dispatcher = fleet.dispatcher()
    app = longshore.App("client", connect=dispatcher.facts["frontend"])
    fleet.apps.append(app)
    order, gate = tmp_path / "order", tmp_path / "gate"
    gate.touch()
    hold = harbour.hold
    low, high = str(tmp_path / "low"), str(order)
    calls = [hold.call(low, str(gate)), hold.options(priority=5).call(high, str(gate))]
    first, second = app.submit_many(calls)
    fleet.worker(dispatcher, slots=1)
    app.wait_all([first, second], timeout_s=30)
    started = {handle.id: handle.job().started_at for handle in (first, second)}
    assert started[second.id] < started[first.id]  # type: ignore[operator]


def test_sigterm_lets_running_jobs_finish_and_exits_well(fleet: Fleet, tmp_path: Path) -> None:
    dispatcher = fleet.dispatcher()
    worker = fleet.worker(dispatcher)
    started, until = tmp_path / "started", tmp_path / "until"
    (handle,) = fleet.client(dispatcher).submit_many([harbour.hold.call(str(started), str(until))])
    await_true(lambda: bool(lines(started)), "it started")
    worker.signal(signal.SIGTERM)
    until.touch()
    assert worker.wait() == 0
    view = handle.job()
    assert (view.state, view.attempt) == (JobState.SUCCEEDED, 1)


def test_sigterm_hands_back_what_does_not_finish_and_it_costs_nothing(
    fleet: Fleet, tmp_path: Path
) -> None:
    dispatcher = fleet.dispatcher()
    worker = fleet.worker(dispatcher, drain_s=0.2)
    started, until = tmp_path / "started", tmp_path / "until"
    (handle,) = fleet.client(dispatcher).submit_many([harbour.hold.call(str(started), str(until))])
    await_true(lambda: bool(lines(started)), "it started")
    assert worker.terminate() == 0
    assert handle.status() is JobState.READY
    until.touch()
    fleet.worker(dispatcher)
    assert handle.result(30) == "held"
    view = handle.job()
    assert (view.attempt, view.failures, view.crashes) == (2, 0, 0)


def test_a_second_sigterm_does_not_wait(fleet: Fleet, tmp_path: Path) -> None:
    dispatcher = fleet.dispatcher()
    worker = fleet.worker(dispatcher, drain_s=3600)
    started = tmp_path / "started"
    call = harbour.hold.call(str(started), str(tmp_path / "never"))
    (handle,) = fleet.client(dispatcher).submit_many([call])
    await_true(lambda: bool(lines(started)), "it started")
    worker.signal(signal.SIGTERM)
    await_true(lambda: handle.why().startswith("running"), "it still runs")
    worker.signal(signal.SIGTERM)
    worker.wait()
    await_true(lambda: handle.status() is JobState.READY, "it is handed back")
    assert handle.job().crashes == 0
