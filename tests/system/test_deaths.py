"""kill -9, for real."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import longshore
from longshore.model.job import JobState
from tests.system.apps import harbour
from tests.system.conftest import Fleet, await_true, lines


def test_accepted_jobs_survive_the_death_of_every_process(fleet: Fleet, tmp_path: Path) -> None:
    """G1: accepted is durable. Nothing of ours is left alive, then everything is started anew."""
    dispatcher = fleet.dispatcher()
    worker = fleet.worker(dispatcher)
    started, until = tmp_path / "started", tmp_path / "until"
    calls: list[longshore.Call[Any]] = []
    calls += [harbour.hold.call(str(started), str(until)) for _ in range(3)]
    calls += [harbour.add.options(delay_s=1).call(i, i) for i in range(20)]
    handles = fleet.client(dispatcher).submit_many(calls)
    await_true(lambda: len(lines(started)) == 3, "three started")
    worker.kill()
    dispatcher.kill()

    until.touch()
    again = fleet.dispatcher()
    fleet.worker(again)
    app = fleet.client(again)
    found = [app.handle(handle.id) for handle in handles]
    app.wait_all(found, timeout_s=60)
    assert {handle.status() for handle in found} == {JobState.SUCCEEDED}
    for handle in found:
        ends = [e for e in handle.job().history if e.state is JobState.SUCCEEDED]
        assert len(ends) == 1


def test_a_killed_workers_jobs_go_to_another(fleet: Fleet, tmp_path: Path) -> None:
    """G2, G3."""
    dispatcher = fleet.dispatcher()
    worker = fleet.worker(dispatcher)
    started, until = tmp_path / "started", tmp_path / "until"
    calls = [harbour.hold.call(str(started), str(until)) for _ in range(5)]
    handles = fleet.client(dispatcher).submit_many(calls)
    await_true(lambda: len(lines(started)) == 5, "five started")
    worker.kill()
    fleet.worker(dispatcher)
    await_true(lambda: len(lines(started)) == 10, "five started again")
    until.touch()
    assert [handle.result(30) for handle in handles] == ["held"] * 5
    views = [handle.job() for handle in handles]
    assert {(view.attempt, view.crashes) for view in views} == {(2, 1)}


def test_who_died_together_on_one_machine_is_not_waited_for(fleet: Fleet, tmp_path: Path) -> None:
    """With a lease of an hour only the kernel can have said that the worker is gone."""
    dispatcher = fleet.dispatcher(lease_s=3600, sweep_s=3600)
    worker = fleet.worker(dispatcher)
    started, until = tmp_path / "started", tmp_path / "until"
    call = harbour.hold.call(str(started), str(until))
    (handle,) = fleet.client(dispatcher).submit_many([call])
    await_true(lambda: len(lines(started)) == 1, "it started")
    worker.kill()
    dispatcher.kill()
    again = fleet.dispatcher(lease_s=3600, sweep_s=3600)
    fleet.worker(again)
    await_true(lambda: len(lines(started)) == 2, "it started again")
    until.touch()
    assert fleet.client(again).handle(handle.id).result(30) == "held"
    whys = {entry.info for entry in fleet.client(again).handle(handle.id).job().history}
    assert "its process ended" in whys


def test_a_restarted_dispatcher_finds_its_workers_and_their_jobs_go_on(
    fleet: Fleet, tmp_path: Path
) -> None:
    """G8: running jobs keep running, their results count, none is started twice."""
    dispatcher = fleet.dispatcher(lease_s=10)
    fleet.worker(dispatcher)
    started, until = tmp_path / "started", tmp_path / "until"
    calls = [harbour.hold.call(str(started), str(until)) for _ in range(20)]
    handles = fleet.client(dispatcher).submit_many(calls)
    await_true(lambda: len(lines(started)) == 20, "all started")
    addresses = [dispatcher.facts[k].removeprefix("tcp://") for k in ("backend", "frontend")]
    dispatcher.kill()
    again = fleet.dispatcher(*addresses, lease_s=10)
    until.touch()
    app = fleet.client(again)
    found = [app.handle(handle.id) for handle in handles]
    app.wait_all(found, timeout_s=60)
    assert len(lines(started)) == 20
    assert {handle.job().attempt for handle in found} == {1}


def test_a_killed_workers_child_processes_die_with_it(fleet: Fleet, tmp_path: Path) -> None:
    dispatcher = fleet.dispatcher()
    worker = fleet.worker(dispatcher)
    started = tmp_path / "started"
    call = harbour.hold_process.call(str(started), str(tmp_path / "never"))
    (handle,) = fleet.client(dispatcher).submit_many([call])
    await_true(lambda: bool(lines(started)), "it started")
    pid = int(lines(started)[0])
    worker.kill()
    await_true(lambda: not Path(f"/proc/{pid}").exists(), "the child is gone")
    handle.cancel()
