"""An operator drains a worker, for real."""

from __future__ import annotations

import json
from pathlib import Path

from longshore.testing.processes import run
from tests.system.apps import harbour
from tests.system.conftest import Fleet, await_true, lines


def test_a_drained_worker_finishes_its_job_and_exits_with_0(fleet: Fleet, tmp_path: Path) -> None:
    """The drain is asked of another dispatcher than the worker's own."""
    dispatcher, other = fleet.dispatcher(heartbeat_s=0.1), fleet.dispatcher()
    worker = fleet.worker(dispatcher)
    started, until = tmp_path / "started", tmp_path / "until"
    call = harbour.hold.call(str(started), str(until))
    (handle,) = fleet.client(dispatcher).submit_many([call])
    await_true(lambda: len(lines(started)) == 1, "it started")

    def workers() -> list[dict[str, object]]:
        done = run("workers", "--json", "--connect", other.facts["frontend"])
        found: list[dict[str, object]] = json.loads(done.stdout)
        return found

    [view] = workers()
    assert view["running"] == {"hold": 1}
    await_true(lambda: workers()[0]["memory_percent"] is not None, "a heartbeat is shown")
    drain = run("workers", "drain", str(view["id"])[:34], "--connect", other.facts["frontend"])
    assert (drain.returncode, drain.stderr) == (0, "")
    await_true(lambda: "told to leave" in worker.said(), "the worker was told")
    (late,) = fleet.client(dispatcher).submit_many([harbour.add.call(1, 2)])
    until.touch()
    assert worker.wait() == 0
    assert handle.result(10) == "held"
    [view] = workers()
    assert (view["alive"], view["ended_why"]) == (False, "drained")
    fleet.worker(other)
    assert late.result(10) == 3
