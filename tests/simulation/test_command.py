"""`longshore simulate`, as a person sees it."""

from __future__ import annotations

import json

import pytest

from longshore.cli.main import execute
from longshore.testing import memory_groups
from longshore.testing.simulation.run import is_for_sqlite
from longshore.testing.simulation.scenario import SCENARIOS, scenario_of
from longshore.wire import messages as m
from longshore.wire.worker_side import Event, WorkerSession


def test_it_prints_one_line_a_seed(capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(["simulate", "--from", "2", "--seeds", "2"]) == 0
    first, second, all_of = capsys.readouterr().out.splitlines()
    assert first.startswith("seed 2: kept  ")
    assert second.startswith("seed 3: kept  ")
    assert all_of.startswith("2 seeds kept all promises through ")


def test_faults_are_counted_one_by_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(["simulate", "--from", "2", "--seeds", "2", "--json"]) == 0
    facts = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert all(one["faults"] > 0 for one in facts)
    assert execute(["simulate", "--from", "2", "--seeds", "2"]) == 0
    total = sum(one["faults"] for one in facts)
    assert capsys.readouterr().out.endswith(f" through {total:,} faults\n")


def test_every_fourth_seed_is_on_sqlite_unless_told_otherwise(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert execute(["simulate", "--from", "4", "--seeds", "2"]) == 0
    assert execute(["simulate", "--seed", "4", "--store", "model"]) == 0
    assert execute(["simulate", "--seed", "5", "--store", "sqlite"]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("seed")]
    stores = [line.split(" on ")[1].split()[0] for line in lines]
    assert stores == ["sqlite", "model", "model", "sqlite"]


def test_verbose_prints_everything_that_happened(capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(["simulate", "--seed", "2", "--verbose"]) == 0
    out = capsys.readouterr().out
    assert "sent to d1: PING" in out
    assert "fate        the storm is over" in out


def test_a_broken_promise_comes_with_the_story_of_its_job(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    given = WorkerSession._given

    def twice(self: WorkerSession, now: float, jobs: m.Jobs) -> list[Event]:
        events = given(self, now, jobs)
        return [*events, *events]

    monkeypatch.setattr(WorkerSession, "_given", twice)
    assert execute(["simulate", "--seed", "2"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("seed 2: BROKEN  ")
    assert lines[2].startswith("broken: G2 one owner: its attempt ")
    assert "the story of j" in lines[4]
    story = "\n".join(lines[5:])
    assert "submits it" in story
    assert "starts it, token" in story
    hint = lines[-1].removeprefix("to see it again: longshore ")
    assert hint == "simulate --seed 2 --scenario jobs --store model"


def test_the_seeds_take_turns_with_all_that_can_be_simulated(
    capsys: pytest.CaptureFixture[str],
) -> None:
    names = [scenario_of(seed) for seed in range(0, 4 * len(SCENARIOS), 4)]
    assert sorted(names) == sorted(SCENARIOS)
    assert {scenario_of(seed) for seed in range(8 * len(SCENARIOS)) if is_for_sqlite(seed)} == set(
        SCENARIOS
    )
    assert execute(["simulate", "--seed", "13", "--json"]) == 0
    assert '"scenario":"groups"' in capsys.readouterr().out
    assert execute(["simulate", "--scenario", "group"]) == 2
    assert f"give one of {', '.join(SCENARIOS)}" in capsys.readouterr().err


def test_the_hint_brings_a_broken_group_back(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of whatever scenario it was, and by whichever options."""
    monkeypatch.setattr(memory_groups, "may_become", lambda group, change: True)
    assert execute(["simulate", "--scenario", "groups", "--store", "model"]) == 1
    *_, hint = first = capsys.readouterr().out.splitlines()
    again = hint.removeprefix("to see it again: longshore ")
    assert "--scenario groups --store model" in again
    assert execute(again.split()) == 1
    seen = capsys.readouterr().out.splitlines()
    assert seen == first[-len(seen) :]
