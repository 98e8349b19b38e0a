"""`longshore jobs SEARCH --all ACTION` and `longshore bulk`: what they ask, and what they say."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from uuid import UUID

import pytest
from msgspec import structs
from tests.unit.cli.conftest import ScriptedDispatcher

from longshore.core.bulks import advanced, begun, stopped
from longshore.errors import NotFound
from longshore.model.bulk import BulkAction, BulkPage, BulkPlan, BulkRun, NewBulk, Refusal
from longshore.model.job import JobFilter, JobState
from longshore.wire import bulk_messages as b

Captured = pytest.CaptureFixture[str]
NOW = datetime(2030, 1, 1, tzinfo=UTC)
FAILED = JobState.FAILED


def plan(matched: int, go_on: int | None = None, *refused: Refusal) -> BulkPlan:
    would = matched - sum(one.count for one in refused)
    states = {FAILED: matched} if matched else {}
    return BulkPlan(matched=matched, would=would, states=states, refused=refused, go_on=go_on)


def done(new: NewBulk, jobs: int) -> BulkRun:
    bulk = begun(new, 1, 9, NOW)
    return advanced(bulk, BulkPage(new.id, 1, (), 0), jobs, [], (), NOW)


def test_a_plan_counts_all_looks_and_begins_nothing(
    dispatcher: ScriptedDispatcher, capsys: Captured
) -> None:
    left = Refusal("belongs to a group", 2, (7, 8))
    looks = iter([plan(1000, 42), plan(5, None, left)])
    dispatcher.answers[b.PlanBulk] = lambda request: next(looks)
    assert dispatcher.run("jobs", "state:failed", "--all", "retry", "--plan") == 0
    assert capsys.readouterr().out == (
        "1,005 jobs match: 1,005 failed\n"
        "retry can be done to 1,003 of them\n"
        "left as they are, 2: each belongs to a group (job 7, 8)\n"
    )
    first, second = [one for one in dispatcher.asked if isinstance(one, b.PlanBulk)]
    assert (first.new.wanted.before, second.new.wanted.before) == (None, 42)
    assert first.new.wanted.states == (FAILED,)


def test_yes_begins_what_was_counted(dispatcher: ScriptedDispatcher, capsys: Captured) -> None:
    dispatcher.answers[b.PlanBulk] = plan(3)
    dispatcher.answers[b.StartBulk] = lambda request: begun(request.new, 4, 9, NOW)
    words = ["jobs", "--kind", "report", "--all", "move", "--to", "mail", "--yes"]
    assert dispatcher.run(*words) == 0
    shown = capsys.readouterr()
    assert shown.err == "3 jobs match: 3 failed\n"
    assert shown.out == "bulk 4 runs; `longshore bulk show 4` shows how far it is\n"
    asked = dispatcher.asked[-1]
    assert isinstance(asked, b.StartBulk)
    assert asked.id == asked.new.id
    assert asked.new == NewBulk(
        asked.id, BulkAction.MOVE, JobFilter(kind="report"), queue="mail", expected=3
    )


def test_it_waits_and_says_what_was_left(dispatcher: ScriptedDispatcher, capsys: Captured) -> None:
    dispatcher.answers[b.PlanBulk] = plan(3)
    dispatcher.answers[b.StartBulk] = lambda request: structs.replace(
        done(request.new, 2), matched=3, refused=(Refusal("runs already", 1, (5,)),)
    )
    words = ["jobs", "kind:report", "--all", "priority", "--to", "-3", "--yes", "--wait"]
    assert dispatcher.run(*words) == 0
    assert capsys.readouterr().out == (
        "bulk 1 done: 2 done, 1 left as they were of 3 counted before\n"
        "left as they are, 1: each runs already (job 5)\n"
    )


def test_nothing_to_do_begins_nothing(dispatcher: ScriptedDispatcher, capsys: Captured) -> None:
    dispatcher.answers[b.PlanBulk] = plan(0)
    assert dispatcher.run("jobs", "state:failed", "--all", "retry", "--yes", "--json") == 0
    shown = json.loads(capsys.readouterr().out)
    assert (shown["plan"], shown["matched"], shown["query"]) == (True, 0, "state:failed")


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["kind:a", "--all", "retry"], "nobody can be asked here"),
        (["--all", "cancel", "--yes"], "the search is empty"),
        (["kind:a", "--all", "move"], "needs --to QUEUE"),
        (["kind:a", "--all", "priority", "--to", "high"], "not a whole number"),
        (["kind:a", "--all", "priority", "--to", "99999"], "give -32768 to 32767"),
        (["kind:a", "--all", "retry", "--to", "5"], "goes with priority and move"),
        (["kind:a", "--all", "retry", "--limit", "5"], "leave out --limit"),
        (["kind:a", "--all", "retry", "--watch"], "--watch is for looking"),
        (["kind:a", "--all", "explode"], "explode"),
        (["kind:a", "--yes"], "--yes goes with --all"),
    ],
)
def test_what_cannot_be_meant_is_refused(
    dispatcher: ScriptedDispatcher, capsys: Captured, words: list[str], why: str
) -> None:
    dispatcher.answers[b.PlanBulk] = plan(3)
    assert dispatcher.run("jobs", *words) == 2
    assert why in capsys.readouterr().err
    assert not any(isinstance(one, b.StartBulk) for one in dispatcher.asked)


def test_bulks_are_listed_shown_and_cancelled(
    dispatcher: ScriptedDispatcher, capsys: Captured
) -> None:
    new = NewBulk(UUID(int=1), BulkAction.CANCEL, JobFilter(kind="report"), by="token:ops")
    bulk = begun(new, 4, 99, NOW)
    dispatcher.answers |= {
        b.ListBulks: (bulk,),
        b.ShowBulk: bulk,
        b.StopBulk: stopped(bulk, "local", NOW),
    }
    assert dispatcher.run("bulk", "ls") == 0
    assert "kind:report" in capsys.readouterr().out
    assert dispatcher.run("bulk", "show", "4", "--json") == 0
    assert json.loads(capsys.readouterr().out)["state"] == "running"
    assert dispatcher.run("bulk", "cancel", "4") == 0
    assert capsys.readouterr().out == "bulk 4 cancelled: 0 done\n"


def test_a_cancel_that_came_too_late_says_so(
    dispatcher: ScriptedDispatcher, capsys: Captured
) -> None:
    dispatcher.answers[b.StopBulk] = done(NewBulk(UUID(int=1), BulkAction.RETRY), 3)
    assert dispatcher.run("bulk", "cancel", "1") == 2
    assert "was done already" in capsys.readouterr().err
    dispatcher.answers[b.ShowBulk] = NotFound("there is no bulk 9")
    assert dispatcher.run("bulk", "show", "9") == 3
