"""`longshore prune`: what it asks for, and what it says."""

from __future__ import annotations

import json

import pytest
from tests.unit.cli.conftest import ScriptedDispatcher

from longshore.model.job import JobState
from longshore.model.retention import Pruned
from longshore.wire import messages as m

Captured = pytest.CaptureFixture[str]
S = JobState


def test_it_goes_on_until_all_is_looked_at_and_says_how_many(
    dispatcher: ScriptedDispatcher, capsys: Captured
) -> None:
    steps = iter([Pruned({S.FAILED: 1000}, 1500, False), Pruned({S.FAILED: 1}, 1600, True)])
    dispatcher.answers[m.Prune] = lambda request: next(steps)
    words = ["--state", "failed", "--older-than", "7d", "--keep", "10"]
    assert dispatcher.run("prune", *words) == 0
    assert capsys.readouterr().out == "removed 1,001 jobs: 1,001 failed\n"
    first, second = dispatcher.asked
    assert isinstance(first, m.Prune)
    assert isinstance(second, m.Prune)
    assert first == m.Prune(1, first.id, (S.FAILED,), 604_800.0, 10)
    assert second == m.Prune(2, second.id, (S.FAILED,), 604_800.0, 10, after=1500)
    assert first.id == second.id, "the audit keeps all steps as one request"


def test_a_dry_run_tells_on_what_it_counted(
    dispatcher: ScriptedDispatcher, capsys: Captured
) -> None:
    steps = iter([Pruned({S.SUCCEEDED: 3}, 5, False), Pruned({}, 9, True)])
    dispatcher.answers[m.Prune] = lambda request: next(steps)
    assert dispatcher.run("prune", "--dry-run", "--json") == 0
    shown = json.loads(capsys.readouterr().out)
    counted_groups = {"groups": 0, "group_jobs": 0}
    assert shown == {"removed": 3, "states": {"succeeded": 3}, **counted_groups, "dry_run": True}
    asked = dispatcher.asked[1]
    assert isinstance(asked, m.Prune)
    counted = {S.SUCCEEDED: 3}
    assert asked == m.Prune(2, asked.id, after=5, dry_run=True, counted=counted)


def test_groups_are_counted_apart(dispatcher: ScriptedDispatcher, capsys: Captured) -> None:
    steps = iter(
        [
            Pruned({S.FAILED: 1}, 9, False),
            Pruned({}, 9, False, groups=2),
            Pruned({}, 9, False, group_jobs=1000),
            Pruned({}, 9, True, group_jobs=7),
        ]
    )
    dispatcher.answers[m.Prune] = lambda request: next(steps)
    assert dispatcher.run("prune") == 0
    said = capsys.readouterr().out
    assert said == "removed 1 job: 1 failed\nremoved 2 groups with 1,007 jobs\n"


def test_nothing_to_remove_is_no_error(dispatcher: ScriptedDispatcher, capsys: Captured) -> None:
    dispatcher.answers[m.Prune] = Pruned({}, 0, True)
    assert dispatcher.run("prune") == 0
    assert capsys.readouterr().out == "removed 0 jobs\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--state", "running"], "'running' is not one of"),
        (["--older-than", "soon"], "'soon' is not an age, like 90s, 5m, 12h or 7d"),
        (["--older-than", "3"], "'3' has no unit; say what it counts: 3d (days), 3h (hours)"),
        (["--older-than", "0"], "'0' has no unit"),
        (["--keep", "-1"], "'-1' is not a whole number, 0 or more"),
    ],
)
def test_what_makes_no_sense_is_refused(
    dispatcher: ScriptedDispatcher, capsys: Captured, words: list[str], said: str
) -> None:
    assert dispatcher.run("prune", *words) == 2
    assert said in capsys.readouterr().err
    assert dispatcher.asked == []
