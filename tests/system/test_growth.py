"""Groups that grow, on real processes and real stores, whatever dies."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from longshore import GroupState, JobState
from longshore.errors import WrongState
from longshore.testing.processes import run
from tests.system.apps import harbour
from tests.system.conftest import Fleet, await_true, lines


def test_a_map_of_many_survives_the_death_of_a_worker(fleet: Fleet, tmp_path: Path) -> None:
    """Each element counts once, and what depends on the map waits for all."""
    dispatcher = fleet.dispatcher()
    worker, ran = fleet.worker(dispatcher), str(tmp_path / "ran")
    with fleet.client(dispatcher).group("cargo") as group:
        found = group.add(harbour.crates.call(200))
        lifted = group.map(harbour.lift, over=found.result, parameter="crate", ran=ran, factor=2)
        summed = group.add(harbour.total.call(lifted.results))
    await_true(lambda: len(lines(Path(ran))) >= 20, "some elements ran")
    worker.kill()
    fleet.worker(dispatcher)
    assert group.handle.wait(120) is GroupState.SUCCEEDED
    assert summed.handle.result(30) == sum(range(200)) * 2
    assert sorted({int(one) for one in lines(Path(ran))}) == list(range(200))
    assert group.handle.group().counts == {"succeeded": 203}
    assert group.handle.result("lift/199", 30) == 398


def test_growth_within_growth_holds_up_what_depends_on_the_first(
    fleet: Fleet, tmp_path: Path
) -> None:
    dispatcher = fleet.dispatcher()
    fleet.worker(dispatcher)
    ran = tmp_path / "ran"
    with fleet.client(dispatcher).group("hold") as group:
        first = group.add(harbour.unload.call(str(ran), 4))
        group.add(harbour.tick.call(str(ran), 99), after=first)
    assert group.handle.wait(60) is GroupState.SUCCEEDED
    told = lines(ran)
    assert told[-1] == "99"
    assert len(told) == 31 + 1
    keys = [node.key for node in group.handle.jobs()]
    assert "unload/port/starboard/port/port" in keys
    assert len(keys) == 32


def test_jobs_add_maps_and_chains_from_processes_and_threads(fleet: Fleet, tmp_path: Path) -> None:
    dispatcher = fleet.dispatcher()
    fleet.worker(dispatcher)
    with fleet.client(dispatcher).group("added") as group:
        group.add(harbour.split.call(str(tmp_path / "ran"), 7))
        group.add(harbour.chain.call([1, 2, 3]))
    handle = group.handle
    assert handle.wait(60) is GroupState.SUCCEEDED
    assert handle.result("split/total", 30) == 21
    assert handle.result("chain/plus-3", 30) == 6


def test_growth_that_cannot_be_fails_its_job_and_adds_nothing(fleet: Fleet, tmp_path: Path) -> None:
    dispatcher = fleet.dispatcher(max_group_jobs=5)
    fleet.worker(dispatcher)
    app = fleet.client(dispatcher)
    ran = str(tmp_path / "ran")
    with app.group("small") as group:
        chained = group.add(harbour.chain.call(list(range(9))))
        mapped = group.map(harbour.lift, over=list(range(9)), parameter="crate", ran=ran)
        below = group.add(harbour.add.call(1, 1), after=[chained, mapped])
    assert group.handle.wait(60) is GroupState.FAILED
    for one in (chained, mapped):
        assert "max_group_jobs is 5" in one.handle.why()
    assert below.handle.status() is JobState.DEPENDENCY_FAILED
    assert "max_group_jobs is 5" in below.handle.why()


def test_a_gate_holds_up_what_depends_on_it_until_it_is_opened(fleet: Fleet) -> None:
    dispatcher = fleet.dispatcher()
    fleet.worker(dispatcher)
    with fleet.client(dispatcher).group("customs") as group:
        begun = group.add(harbour.add.call(1, 1))
        gate = group.gate("approve", after=begun)
        group.add(harbour.add.call(gate.result["duty"], 1), key="paid")
    handle = group.handle
    env = {"LONGSHORE_CONNECT": dispatcher.facts["frontend"]}
    await_true(lambda: gate.handle.status() is JobState.READY, "the gate was reached")
    assert f"`longshore group open {handle.number} approve" in gate.handle.why()
    opened = run("group", "open", str(handle.number), "approve", "--value", '{"duty": 41}', env=env)
    assert opened.returncode == 0, opened.stderr
    assert handle.wait(60) is GroupState.SUCCEEDED
    assert handle.result("paid", 30) == 42
    assert gate.handle.result(30) == {"duty": 41}
    again = run("group", "open", str(handle.number), "approve", "--value", "7", env=env)
    assert (again.returncode, "has ended already" in again.stderr) == (2, True)
    with pytest.raises(WrongState, match="is not a gate"):
        handle.open("paid", 1)


def test_a_gate_that_nobody_opens_fails_at_its_timeout(fleet: Fleet) -> None:
    dispatcher = fleet.dispatcher()
    fleet.worker(dispatcher)
    with fleet.client(dispatcher).group("late") as group:
        gate = group.gate("approve", timeout_s=0.2)
        below = group.add(harbour.add.call(1, 1), after=gate)
    assert group.handle.wait(60) is GroupState.FAILED
    assert "nobody opened it" in gate.handle.why()
    assert below.handle.status() is JobState.DEPENDENCY_FAILED


def test_a_subgroup_is_waited_for_cancelled_and_retried_as_one(
    fleet: Fleet, tmp_path: Path
) -> None:
    dispatcher = fleet.dispatcher()
    fleet.worker(dispatcher)
    started, until = tmp_path / "started", tmp_path / "until"
    with fleet.client(dispatcher).group("voyage") as group:
        loading = group.sub("loading")
        held = loading.add(harbour.hold.call(str(started), str(until)))
        deck = loading.sub("deck")
        deck.add(harbour.add.call(1, 2), after=held)
        group.add(harbour.add.call(3, 4), after=loading, key="sail")
        group.add(harbour.add.call(5, 6), key="beside")
    handle = group.handle
    await_true(lambda: len(lines(started)) == 1, "it holds")
    env = {"LONGSHORE_CONNECT": dispatcher.facts["frontend"]}
    cancelled = run("group", "cancel", str(handle.number), "loading/", env=env)
    assert cancelled.returncode == 0, cancelled.stderr
    assert handle.wait(60) is GroupState.FAILED
    states = {node.key: node.state.value for node in handle.jobs()}
    assert states["loading/hold"] == "cancelled"
    assert states["sail"] == "dependency_failed"
    assert states["beside"] == "succeeded"
    until.touch()
    planned = run(
        "group", "retry", str(handle.number), "--from", "loading/", "--plan", "--json", env=env
    )
    assert {"loading/hold", "loading/deck/add", "sail"} <= set(
        json.loads(planned.stdout)["reopened"]
    ), planned
    handle.retry("loading/")
    assert handle.wait(60) is GroupState.SUCCEEDED


def test_a_retry_with_other_arguments_retires_what_the_job_had_added(fleet: Fleet) -> None:
    dispatcher = fleet.dispatcher()
    fleet.worker(dispatcher)
    with fleet.client(dispatcher).group("again") as group:
        first = group.add(harbour.chain.call([1, 2]))
        group.add(harbour.add.call(1, 1), after=first, key="last")
    handle = group.handle
    assert handle.wait(60) is GroupState.SUCCEEDED
    plan = handle.retry("chain", args={"numbers": [5]})
    assert plan.reopened == ("chain", "last")
    assert sorted(plan.retired) == ["chain/plus-1", "chain/plus-2", "chain/start"]
    assert handle.wait(60) is GroupState.SUCCEEDED
    assert sorted(node.key for node in handle.jobs()) == [
        "chain",
        "chain/plus-5",
        "chain/start",
        "last",
    ]
