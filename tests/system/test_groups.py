"""Groups on real processes and real stores, whatever dies."""

from __future__ import annotations

from pathlib import Path

from longshore import GroupState
from longshore.testing.processes import run
from tests.system.apps import harbour
from tests.system.conftest import Fleet, await_true, lines


def test_a_group_survives_the_death_of_every_process(fleet: Fleet, tmp_path: Path) -> None:
    """G1, G5: nothing of ours is left alive while its first job runs."""
    dispatcher = fleet.dispatcher()
    worker = fleet.worker(dispatcher)
    started, until = tmp_path / "started", tmp_path / "until"
    with fleet.client(dispatcher).group("voyage") as group:
        first = group.add(harbour.hold.call(str(started), str(until)))
        sides = [group.add(harbour.add.call(n, n), after=first) for n in range(20)]
        group.add(harbour.multiply.call(2, 3), after=sides, key="last")
    await_true(lambda: len(lines(started)) == 1, "the first started")
    worker.kill()
    dispatcher.kill()
    until.touch()
    again = fleet.dispatcher()
    fleet.worker(again)
    found = fleet.client(again).group_handle(group.handle.id)
    assert found.wait(60) is GroupState.SUCCEEDED
    assert found.result("last", 30) == 6
    assert found.group().counts == {"succeeded": 22}


def test_a_chain_runs_in_order_though_a_dispatcher_dies_in_the_middle(
    fleet: Fleet, tmp_path: Path
) -> None:
    """G5, G8: the other dispatcher does what the dead one left to do."""
    first, second = fleet.dispatcher(), fleet.dispatcher()
    fleet.worker(first, second)
    ran = tmp_path / "ran"
    with fleet.client(second).group("chain") as group:
        before = group.add(harbour.tick.call(str(ran), 0))
        for number in range(1, 30):
            before = group.add(harbour.tick.call(str(ran), number), after=before)
    await_true(lambda: len(lines(ran)) >= 10, "ten ran")
    first.kill()
    assert group.handle.wait(60) is GroupState.SUCCEEDED
    # A job whose report was lost may run twice, but never before the one it depends on.
    assert list(dict.fromkeys(map(int, lines(ran)))) == list(range(30))


def test_a_failure_in_the_middle_is_the_error_of_all_that_is_below(fleet: Fleet) -> None:
    dispatcher = fleet.dispatcher()
    fleet.worker(dispatcher)
    with fleet.client(dispatcher).group("broken") as group:
        bad = group.add(harbour.unserialisable.call(), key="bad")
        below = group.add(harbour.add.call(1, 1), after=bad)
        lowest = group.add(harbour.add.call(2, 2), after=below)
        beside = group.add(harbour.add.call(3, 3), key="beside")
    assert group.handle.wait(60) is GroupState.FAILED
    assert beside.handle.result(30) == 6
    for job in (below, lowest):
        assert ", because 'bad' failed: " in job.handle.why()


def test_a_cancelled_group_stops_what_runs(fleet: Fleet, tmp_path: Path) -> None:
    dispatcher = fleet.dispatcher()
    fleet.worker(dispatcher)
    started, never = tmp_path / "started", tmp_path / "never"
    with fleet.client(dispatcher).group("stopped") as group:
        holding = [group.add(harbour.hold.call(str(started), str(never))) for _ in range(3)]
        group.add(harbour.add.call(1, 1), after=holding)
    await_true(lambda: len(lines(started)) == 3, "three started")
    group.handle.cancel()
    assert group.handle.wait(60) is GroupState.CANCELLED
    assert group.handle.group().counts == {"cancelled": 4}


def test_results_flow_through_a_diamond_and_a_retry_runs_only_what_failed(
    fleet: Fleet, tmp_path: Path
) -> None:
    dispatcher = fleet.dispatcher()
    fleet.worker(dispatcher)
    manifest = tmp_path / "manifest"
    with fleet.client(dispatcher).group("cargo") as group:
        top = group.add(harbour.measure.call("ship"))
        left = group.add(harbour.multiply.call(top.result, 10))
        right = group.add(harbour.load.call(str(manifest), weight=top.result))
        bottom = group.add(harbour.add.call(left.result, right.result))
    handle = group.handle
    assert handle.wait(60) is GroupState.FAILED
    assert ", because 'load' failed: FileNotFoundError" in bottom.handle.why()
    manifest.write_text("5")
    env = {"LONGSHORE_CONNECT": dispatcher.facts["frontend"]}
    words = f"2 jobs of group {handle.number} {{}} again:\n  load\n  add\n"
    planned = run("group", "retry", str(handle.number), "--plan", env=env)
    assert planned.stdout == words.format("would run"), planned.stderr
    retried = run("group", "retry", str(handle.number), env=env)
    assert retried.stdout == words.format("run"), retried.stderr
    again = fleet.client(dispatcher).group_handle(handle.id)
    assert again.wait(60) is GroupState.SUCCEEDED
    assert again.result("add", 30) == 4 * 10 + (5 + 4)
    rounds = {job.key: again.job(job.key).job().round for job in again.jobs()}
    assert rounds == {"measure": 1, "multiply": 1, "load": 2, "add": 2}
    refused = run("group", "retry", str(handle.number), env=env)
    assert refused.returncode == 2
    assert "there is nothing to retry" in refused.stderr
