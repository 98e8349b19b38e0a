"""Graphs like those of real workflows, as groups on real processes that die in the middle.

A plain model says what must have become of each job. Each run has another seed, which decides what
fails and what dies when; `WORKFLOWS_SEED=7` repeats one.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path
from random import Random

import pytest

from longshore import GroupState
from longshore.client.group import GroupBuilder
from longshore.model.group import Condition
from longshore.testing.processes import Process
from tests.system.apps import harbour
from tests.system.conftest import Fleet, await_true, lines
from tests.system.workflows import SIZES, WORKFLOWS, S, Task, Workflow, model, size

SEED = int(os.environ.get("WORKFLOWS_SEED") or time.time_ns() % 1_000_000)
LONGEST_S = 0.01
END_S = 60.0


def watched(flow: Workflow, failing: set[str], random: Random) -> Workflow:
    """The workflow, and beside it a task that wants a failure and one that wants all to be over."""
    inner = {other for task in flow.values() for other in task.after}
    ends = tuple(key for key in flow if key not in inner)
    some = failing | set(random.sample(sorted(flow), 5))
    alarm = {"alarm": Task(tuple(sorted(some)), Condition.FAILED)}
    return flow | alarm | {"archive": Task((*ends, "alarm"), Condition.ENDED)}


def describe(
    group: GroupBuilder, flow: Workflow, failing: set[str], random: Random, ran: Path
) -> None:
    for key, task in flow.items():
        call = harbour.task.call(str(ran), key, random.uniform(0, LONGEST_S), key in failing)
        group.add(call, after=task.after, on=task.on, key=key)


def check_order(flow: Workflow, states: Mapping[str, S], noted: list[str]) -> None:
    """Nothing ran that must not, and nothing began before what it depends on had ended."""
    first: dict[str, int] = {}
    for at, line in enumerate(noted):
        first.setdefault(line, at)
    ran = {line.removeprefix("began ") for line in first if line.startswith("began ")}
    assert ran == {key for key, state in states.items() if state in (S.SUCCEEDED, S.FAILED)}
    for key in ran:
        after, began = flow[key].after, first[f"began {key}"]
        if flow[key].on is Condition.FAILED:
            failed = [other for other in after if states[other] is S.FAILED]
            assert began > min(first[f"ended {other}"] for other in failed), key
        else:
            assert all(began > first[f"ended {other}"] for other in ran.intersection(after)), key


class Nemesis:
    """Two workers and a dispatcher. It kills one of them once so many lines were noted."""

    def __init__(self, fleet: Fleet, folder: Path) -> None:
        self._fleet = fleet
        self._folder = folder
        self.dispatcher = fleet.dispatcher()
        self._workers = [fleet.worker(self.dispatcher) for _ in range(2)]

    def kill(self, victim: str, after_lines: int) -> None:
        """Kills a worker, or the dispatcher, which then begins anew."""
        await_true(lambda: self._noted() >= after_lines, f"{after_lines} lines", END_S)
        print(f"kills the {victim} after {self._noted()} lines")
        if victim == "worker":
            self._workers.pop().kill()
        else:
            self.dispatcher = self._again(self.dispatcher)

    def _again(self, dispatcher: Process) -> Process:
        dispatcher.kill()
        facts = (dispatcher.facts[side] for side in ("backend", "frontend"))
        return self._fleet.dispatcher(*(one.removeprefix("tcp://") for one in facts))

    def _noted(self) -> int:
        return sum(len(lines(path)) for path in self._folder.iterdir())


@pytest.mark.parametrize("name", WORKFLOWS)
def test_the_shapes_have_the_size_of_the_real_ones(name: str) -> None:
    assert size(WORKFLOWS[name]) == SIZES[name]


def test_workflows_end_as_the_model_says_whatever_dies(fleet: Fleet, tmp_path: Path) -> None:
    """G1, G3, G5: all four at once; some bodies fail, a worker and the dispatcher are killed."""
    print(f"WORKFLOWS_SEED={SEED}")
    random, folder = Random(SEED), tmp_path / "ran"
    folder.mkdir()
    nemesis = Nemesis(fleet, folder)
    app, handles, flows = fleet.client(nemesis.dispatcher), {}, {}
    expected: dict[str, dict[str, S]] = {}
    for name, shape in WORKFLOWS.items():
        failing = set(random.sample(sorted(shape), 3))
        flows[name] = flow = watched(shape, failing, random)
        expected[name] = model(flow, failing)
        with app.group(name) as group:
            describe(group, flow, failing, random, folder / name)
        handles[name] = group.handle
    fewest = sum(2 for states in expected.values() for one in states.values() if one is S.SUCCEEDED)
    moments = sorted(random.uniform(0.02, 0.5) * fewest for _ in range(2))
    victims = random.sample(["worker", "dispatcher"], 2)
    for victim, moment in zip(victims, moments, strict=True):
        nemesis.kill(victim, int(moment))
    for name, handle in handles.items():
        assert handle.wait(END_S) is GroupState.FAILED, name
        states = {node.key: node.state for node in handle.jobs()}
        assert states == expected[name], name
        check_order(flows[name], states, lines(folder / name))
