"""`longshore group rerun`: what it asks a dispatcher, and how a new run is shown."""

from __future__ import annotations

import json

import pytest
from msgspec import structs
from tests.unit.cli.conftest import ScriptedDispatcher
from tests.unit.cli.test_groups import FAILED, ID, ended
from tests.unit.core.graphs import node

from longshore.model.group import GroupState, GroupSubmitted, RunPlan
from longshore.wire import messages as m

WHY = m.WhyAnswer(FAILED.id, 9, "failed", "no room", "top")
Captured = pytest.CaptureFixture[str]


def test_a_group_is_run_anew(dispatcher: ScriptedDispatcher, capsys: Captured) -> None:
    plan = RunPlan(ID, 2, 5, 3, ("b", "c"))
    dispatcher.answers[m.RerunGroup] = plan
    assert dispatcher.run("group", "rerun", "7", "--from", "b", "--plan") == 0
    left_out = "3 jobs are left out, because what adds such jobs runs anew\n"
    assert capsys.readouterr().out == (
        f"a new run of group 7 would run 2 jobs anew and take over 5:\n  b\n  c\n{left_out}"
    )
    run = GroupSubmitted(ID, 8, GroupState.RUNNING, 7)
    dispatcher.answers[m.RerunGroup] = structs.replace(plan, run=run, anew=1200, left_out=1)
    assert dispatcher.run("group", "rerun", "7") == 0
    assert capsys.readouterr().out == (
        "group 8 is a new run of group 7: it runs 1,200 jobs anew and takes over 5:\n  b\n  c\n"
        "  and 1,198 more\n1 job is left out, because what adds such jobs runs anew\n"
    )
    asked = [one for one in dispatcher.asked if isinstance(one, m.RerunGroup)]
    assert [(one.keys, one.dry_run) for one in asked] == [(("b",), True), ((), False)]
    assert dispatcher.run("group", "rerun", "7", "--json") == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["anew"], document["taken_over"], document["keys"]) == (1200, 5, ["b", "c"])
    assert document["run"]["number"] == 8


def test_a_new_run_that_is_refused_says_why(
    dispatcher: ScriptedDispatcher, capsys: Captured
) -> None:
    dispatcher.answers[m.RerunGroup] = RunPlan(ID, refused="it is running")
    assert dispatcher.run("group", "rerun", "7") == 2
    assert capsys.readouterr() == ("", "error: group 7 cannot be run anew: it is running\n")


def test_a_group_says_what_it_is_a_run_of(dispatcher: ScriptedDispatcher, capsys: Captured) -> None:
    shown = ended(GroupState.SUCCEEDED, succeeded=4)
    dispatcher.answers[m.ShowGroup] = structs.replace(shown, run_of=7, taken_over=2)
    assert dispatcher.run("group", "show", "8") == 0
    assert "group 7; 2 of 4 jobs taken over from it" in capsys.readouterr().out
    assert dispatcher.run("group", "show", "8", "--json") == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["run_of"], document["taken_over"]) == (7, 2)


def test_a_job_says_from_which_job_it_was_taken_over(
    dispatcher: ScriptedDispatcher, capsys: Captured
) -> None:
    taken = structs.replace(node("top"), job=FAILED.id, taken_from=3)
    dispatcher.answers |= {m.Show: FAILED, m.ListWorkers: (), m.Why: WHY}
    dispatcher.answers[m.ShowGroup] = ended(GroupState.FAILED, failed=1)
    dispatcher.answers[m.ListNodes] = (taken,)
    assert dispatcher.run("job", "9") == 0
    assert "taken over from  job 3\n" in capsys.readouterr().out
    assert dispatcher.run("job", "9", "--json") == 0
    assert json.loads(capsys.readouterr().out)["taken_from"] == 3
