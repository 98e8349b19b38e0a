"""`longshore simulate`, as a person sees it."""

from __future__ import annotations

import pytest

from longshore.cli.main import execute
from longshore.wire import messages as m
from longshore.wire.worker_side import Event, WorkerSession


def test_it_prints_one_line_a_seed(capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(["simulate", "--from", "2", "--seeds", "2"]) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith("seed 2: kept  ")
    assert second.startswith("seed 3: kept  ")


def test_every_fourth_seed_is_on_sqlite_unless_told_otherwise(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert execute(["simulate", "--from", "4", "--seeds", "2"]) == 0
    assert execute(["simulate", "--seed", "4", "--store", "model"]) == 0
    assert execute(["simulate", "--seed", "5", "--store", "sqlite"]) == 0
    stores = [line.split(" on ")[1].split()[0] for line in capsys.readouterr().out.splitlines()]
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
    assert lines[-1] == "to see it again: longshore simulate --seed 2 --store model"
