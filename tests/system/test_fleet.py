"""Several dispatchers, many workers, one store: anything may be killed at any time."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from longshore.model.job import JobState
from longshore.store.postgres.store import PostgresStore
from longshore.testing.backends import migrate
from longshore.testing.processes import Process
from longshore.testing.servers import PgBouncer, PostgresServer
from tests.system.apps import harbour
from tests.system.conftest import Fleet, await_true, lines


def test_a_dispatcher_dies_under_two_hundred_jobs_and_none_is_started_twice(
    fleet: Fleet, tmp_path: Path
) -> None:
    """G8: workers move to another dispatcher, running jobs keep running, their results count."""
    dispatchers = [fleet.dispatcher(lease_s=10) for _ in range(3)]
    for i in range(4):
        fleet.worker(*dispatchers[i % 3 :], *dispatchers[: i % 3], slots=60)
    started, until = tmp_path / "started", tmp_path / "until"
    calls = [harbour.hold.call(str(started), str(until)) for _ in range(200)]
    handles = fleet.client(dispatchers[2]).submit_many(calls)
    await_true(lambda: len(lines(started)) == 200, "all started")
    dispatchers[0].kill()
    dispatchers[1].kill()
    until.touch()
    app = fleet.client(dispatchers[2])
    app.wait_all([app.handle(handle.id) for handle in handles], timeout_s=60)
    assert len(lines(started)) == 200
    assert {handle.job().attempt for handle in handles} == {1}
    assert {handle.status() for handle in handles} == {JobState.SUCCEEDED}


def test_a_frozen_workers_jobs_run_elsewhere_and_its_late_results_are_refused(
    fleet: Fleet, tmp_path: Path
) -> None:
    """G2, G3: SIGSTOP past the lease, then SIGCONT."""
    dispatcher = fleet.dispatcher()
    frozen = fleet.worker(dispatcher)
    started, until = tmp_path / "started", tmp_path / "until"
    call = harbour.hold.call(str(started), str(until))
    (handle,) = fleet.client(dispatcher).submit_many([call])
    await_true(lambda: bool(lines(started)), "it started")
    frozen.signal(signal.SIGSTOP)
    other = fleet.worker(dispatcher)
    await_true(lambda: len(lines(started)) == 2, "it started elsewhere")
    until.touch()
    assert handle.result(30) == "held"
    ran_on = handle.job().worker
    frozen.signal(signal.SIGCONT)
    await_true(lambda: "joining anew" in frozen.said(), "the frozen one joined anew")
    assert handle.job().worker == ran_on
    ends = [entry for entry in handle.job().history if entry.state is JobState.SUCCEEDED]
    assert len(ends) == 1
    assert other.running


def test_three_rolling_restarts_of_all_workers_fail_no_job(fleet: Fleet) -> None:
    dispatchers = [fleet.dispatcher() for _ in range(2)]
    workers = [fleet.worker(*dispatchers, drain_s=0.1) for _ in range(2)]
    app = fleet.client(dispatchers[0])
    handles = app.submit_many([harbour.nap.call(0.05) for _ in range(400)])
    for _ in range(3):
        for index, worker in enumerate(workers):
            assert worker.terminate() == 0
            workers[index] = fleet.worker(*dispatchers, drain_s=0.1)
    app.wait_all(handles, timeout_s=90)
    views = [handle.job() for handle in handles]
    assert {(view.state, view.failures, view.crashes) for view in views} == {
        (JobState.SUCCEEDED, 0, 0)
    }


@pytest.fixture
def own_postgres() -> Iterator[PostgresServer]:
    """A PostgreSQL that a test may stop."""
    with PostgresServer(fsync=False) as server:
        yield server


@pytest.fixture
def own_fleet(own_postgres: PostgresServer, tmp_path: Path) -> Iterator[Fleet]:
    """A fleet on that PostgreSQL."""
    url = own_postgres.create_database("fleet")
    asyncio.run(migrate(PostgresStore(url)))
    fleet = Fleet(url, tmp_path)
    yield fleet
    fleet.close()


def test_the_database_restarts_under_load_and_everything_goes_on(
    own_fleet: Fleet, own_postgres: PostgresServer
) -> None:
    """G1, G3: an immediate restart in the middle of submits, claims and finishes."""
    dispatchers = [own_fleet.dispatcher(lease_s=20) for _ in range(2)]
    for _ in range(2):
        own_fleet.worker(*dispatchers)
    app = own_fleet.client(dispatchers[0])
    handles = app.submit_many([harbour.nap.call(0.01) for _ in range(500)])
    await_true(lambda: handles[20].status() is JobState.SUCCEEDED, "some ended")
    with ThreadPoolExecutor() as aside:
        calls = [harbour.nap.call(0.01) for _ in range(200)]
        more = aside.submit(app.submit_many, calls)
        own_postgres.restart("immediate")
        every = handles + more.result()
    app.wait_all(every, timeout_s=90)
    for handle in every:
        view = handle.job()
        ends = [e for e in view.history if e.state is JobState.SUCCEEDED]
        assert (view.state, len(ends), view.failures) == (JobState.SUCCEEDED, 1, 0)
    assert all(process.running for process in own_fleet.processes)


def test_a_dispatcher_cut_off_from_the_database_loses_its_workers_to_a_healthy_one(
    own_fleet: Fleet, own_postgres: PostgresServer, tmp_path: Path
) -> None:
    with PgBouncer(own_postgres) as way:
        direct, own_fleet.store = own_fleet.store, way.url("fleet") + "?prepared=off"
        cut_off = own_fleet.dispatcher(lease_s=4)
        own_fleet.store = direct
        healthy = own_fleet.dispatcher(lease_s=4)
        own_fleet.worker(cut_off, healthy)
        started, until = tmp_path / "started", tmp_path / "until"
        calls = [harbour.hold.call(str(started), str(until)) for _ in range(5)]
        handles = own_fleet.client(healthy).submit_many(calls)
        await_true(lambda: len(lines(started)) == 5, "all started")
        way.close()
        await_true(lambda: _attended_by(healthy) == 1, "the worker moved")
        until.touch()
        assert [handle.result(30) for handle in handles] == ["held"] * 5
        assert len(lines(started)) == 5
        assert cut_off.running


def _attended_by(dispatcher: Process) -> int:
    return dispatcher.said().count(" attends, session ")
