"""More than one message can carry, over real sockets: nothing is dropped, nothing starts over."""

from __future__ import annotations

from pathlib import Path

from longshore.model.job import JobState
from tests.system.apps import harbour
from tests.system.conftest import Fleet, await_true, lines

MB = 1_000_000
COUNT = 72
"""So many megabytes are more than the 64 MiB of the largest message."""


def test_arguments_of_a_megabyte_for_every_slot_are_all_run(fleet: Fleet) -> None:
    """G1."""
    dispatcher = fleet.dispatcher(lease_s=20)
    app = fleet.client(dispatcher)
    calls = [harbour.measure.call("x" * MB) for _ in range(COUNT)]
    handles = app.submit_many(calls)
    worker = fleet.worker(dispatcher, slots=100)
    assert {handle.result(60) for handle in handles} == {MB}
    assert worker.said().count("attended, session") == 1


def test_results_of_a_megabyte_each_outlive_the_dispatcher(fleet: Fleet, tmp_path: Path) -> None:
    """G1, G8: results that nobody acknowledged go to the next dispatcher."""
    dispatcher = fleet.dispatcher(lease_s=20)
    worker = fleet.worker(dispatcher, slots=100)
    started, until, ended = tmp_path / "started", tmp_path / "until", tmp_path / "ended"
    call = harbour.hold_a_load.call
    calls = [call(str(started), str(until), str(ended), MB) for _ in range(COUNT)]
    handles = fleet.client(dispatcher).submit_many(calls)
    await_true(lambda: len(lines(started)) == COUNT, "all run")
    dispatcher.kill()
    until.touch()
    await_true(lambda: len(lines(ended)) == COUNT, "all have ended")
    again = fleet.dispatcher(backend=dispatcher.facts["backend"].removeprefix("tcp://"), lease_s=20)
    app = fleet.client(again)
    found = [app.handle(handle.id) for handle in handles]
    app.wait_all(found, timeout_s=60)
    assert {handle.status() for handle in found} == {JobState.SUCCEEDED}
    assert worker.said().count("attended, session") == 2
