"""Graphs like those of real workflows, as groups on real processes that die in the middle.

A plain model of a page says what must have become of each job.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from random import Random
from typing import NamedTuple

import pytest

from longshore import GroupState
from longshore.client.group import GroupBuilder
from longshore.model.group import Condition
from longshore.model.job import JobState
from tests.system.apps import harbour
from tests.system.conftest import Fleet, await_true, lines

S = JobState
TILES = 60
LANES, CHUNKS = 6, 12
LONGEST_S = 0.02
FAILURES = frozenset({S.FAILED, S.DEPENDENCY_FAILED})


class Task(NamedTuple):
    """What a task depends on, and how."""

    after: tuple[str, ...] = ()
    on: Condition = Condition.SUCCEEDED


Workflow = dict[str, Task]


def montage() -> Workflow:
    """A mosaic: tiles, the differences of neighbours, one model of them, corrected tiles, a sum."""
    flow = {f"project-{n}": Task() for n in range(TILES)}
    pairs = [(n, n + step) for step in (1, 2, 3) for n in range(TILES - step)]
    diffs = {f"diff-{a}-{b}": Task((f"project-{a}", f"project-{b}")) for a, b in pairs}
    flow |= diffs
    flow["concat"] = Task(tuple(diffs))
    flow["model"] = Task(("concat",))
    corrected = {f"correct-{n}": Task((f"project-{n}", "model")) for n in range(TILES)}
    flow |= corrected
    flow["table"] = Task(tuple(corrected))
    flow["sum"] = Task(("table", *corrected))
    flow["view"] = Task(("sum",))
    flow["archive"] = Task(tuple(flow), Condition.ENDED)
    return flow


def epigenomics() -> Workflow:
    """Lanes of reads: each is split, its chunks go through four steps, and all is merged."""
    flow: Workflow = {}
    for lane in range(LANES):
        mine = {f"split-{lane}": Task()}
        last = []
        for chunk in range(CHUNKS):
            before = f"split-{lane}"
            for step in ("filter", "convert", "pack", "map"):
                key = f"{step}-{lane}-{chunk}"
                mine[key] = Task((before,))
                before = key
            last.append(before)
        mine[f"merge-{lane}"] = Task(tuple(last))
        flow |= mine
        flow[f"alarm-{lane}"] = Task(tuple(mine), Condition.FAILED)
    flow["merge"] = Task(tuple(f"merge-{lane}" for lane in range(LANES)))
    flow["index"] = Task(("merge",))
    flow["pileup"] = Task(("index",))
    flow["archive"] = Task(tuple(flow), Condition.ENDED)
    return flow


def model(flow: Workflow, failing: set[str]) -> dict[str, JobState]:
    """What must become of each task: each comes after those that it depends on.

    No task here wants the success of one that may be skipped.
    """
    found: dict[str, JobState] = {}
    for key, task in flow.items():
        ends = {found[other] for other in task.after}
        found[key] = S.FAILED if key in failing else S.SUCCEEDED
        if task.on is Condition.SUCCEEDED and ends & FAILURES:
            found[key] = S.DEPENDENCY_FAILED
        elif task.on is Condition.FAILED and not ends & FAILURES:
            found[key] = S.SKIPPED
    return found


def describe(group: GroupBuilder, flow: Workflow, failing: set[str], ran: Path) -> None:
    random = Random(len(flow))
    for key, task in flow.items():
        call = harbour.task.call(str(ran), key, random.uniform(0, LONGEST_S), key in failing)
        group.add(call, after=task.after, on=task.on, key=key)


def check_order(flow: Workflow, states: Mapping[str, JobState], noted: list[str]) -> None:
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


@pytest.fixture
def fleet(migrated_sqlite_url: str, tmp_path: Path) -> Iterator[Fleet]:
    """A store, and whoever the test starts on it."""
    fleet = Fleet(migrated_sqlite_url, tmp_path)
    yield fleet
    fleet.close()


@pytest.mark.parametrize("make", [montage, epigenomics])
def test_a_workflow_ends_as_the_model_says_whatever_dies(
    fleet: Fleet, tmp_path: Path, make: Callable[[], Workflow]
) -> None:
    """G1, G3, G5: some bodies fail, and a worker and the dispatcher are killed in the middle."""
    flow, ran = make(), tmp_path / "ran"
    failing = set(Random(make.__name__).sample(sorted(flow), 4))
    dispatcher = fleet.dispatcher()
    worker, _ = fleet.worker(dispatcher), fleet.worker(dispatcher)
    with fleet.client(dispatcher).group(make.__name__) as group:
        describe(group, flow, failing, ran)
    await_true(lambda: len(lines(ran)) >= 60, "thirty ran")
    worker.kill()
    await_true(lambda: len(lines(ran)) >= 120, "sixty ran")
    dispatcher.kill()
    addresses = (dispatcher.facts[side].removeprefix("tcp://") for side in ("backend", "frontend"))
    again = fleet.dispatcher(*addresses)
    handle = fleet.client(again).group_handle(group.handle.id)
    assert handle.wait(60) is GroupState.FAILED
    states = {node.key: node.state for node in handle.jobs()}
    assert states == model(flow, failing)
    check_order(flow, states, lines(ran))
