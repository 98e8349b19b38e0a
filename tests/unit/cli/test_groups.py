"""`longshore run`, `groups` and `group`: what they ask a dispatcher, and what they print."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from msgspec import structs
from tests.unit.cli.conftest import ScriptedDispatcher, fleet_of
from tests.unit.cli.test_commands import job
from tests.unit.cli.test_watching import OnTerminal, terminal
from tests.unit.core.graphs import node

from longshore.cli import file_input
from longshore.errors import InvalidInput, NotFound, ProtocolError
from longshore.model.group import (
    Group,
    GroupFilter,
    GroupPart,
    GroupState,
    GroupSubmitted,
    GroupVerdict,
    Near,
    NodeView,
    RetryPlan,
)
from longshore.model.job import Ended, JobError, JobFilter, JobPage, JobState, Reason
from longshore.model.limits import JobLimit
from longshore.model.run_time import RunTime
from longshore.model.worker import KindInfo, KindTerms
from longshore.wire import messages as m

__all__ = ["terminal"]

Captured = pytest.CaptureFixture[str]
ID = UUID("0193290c-6a00-7000-8000-0000000000aa")
AT = datetime(2026, 1, 31, 12, 0, 0, tzinfo=UTC)
FLOW = """\
name: nightly
jobs:
  - kind: fetch
    args: {day: "${day}"}
  - {kind: pack, after: fetch}
  - {kind: tidy, after: [fetch, pack], on: ended}
"""


def group(**changes: Any) -> Group:
    shown = Group(
        id=ID,
        number=7,
        name="nightly",
        state=GroupState.RUNNING,
        jobs=4,
        fail_fast=False,
        labels=("reports",),
        created_at=AT,
        counts={"waiting": 2, "running": 1, "succeeded": 1},
    )
    return structs.replace(shown, **changes)


def ended(state: GroupState, **counts: int) -> Group:
    return group(state=state, ended_at=AT + timedelta(seconds=90), counts=counts)


FAILURE = JobError(Reason.RAISED, "no room\nat all", "builtins.OSError")
FAILED = job(number=9, state=JobState.FAILED, error=FAILURE, group=ID)


FAILED_NODES = (
    node("left", state=JobState.FAILED),
    node("right", state=JobState.SUCCEEDED),
    node("bottom", "left", "right", state=JobState.DEPENDENCY_FAILED),
)


@pytest.fixture
def flow(tmp_path: Path) -> str:
    """A file with a group."""
    file = tmp_path / "flow.yaml"
    file.write_text(FLOW)
    return str(file)


def accept(request: m.SubmitGroup) -> GroupSubmitted:
    return GroupSubmitted(request.part.head.id, 7, GroupState.RUNNING, len(request.part.nodes))


@pytest.fixture
def taking(dispatcher: ScriptedDispatcher) -> ScriptedDispatcher:
    """A dispatcher that accepts groups."""
    dispatcher.answers[m.SubmitGroup] = accept
    dispatcher.answers[m.ShowCapacity] = fleet_of("fetch", "pack", "tidy")
    return dispatcher


def sent(dispatcher: ScriptedDispatcher) -> GroupPart:
    [request] = [one for one in dispatcher.asked if isinstance(one, m.SubmitGroup)]
    return request.part


# run


def test_run_submits_the_group_of_a_file(
    taking: ScriptedDispatcher, flow: str, capsys: Captured
) -> None:
    declared = KindInfo(terms=KindTerms(queue="slow"))
    taking.answers[m.ShowKind] = lambda request: declared if request.kind == "pack" else None
    assert taking.run("run", flow, "-p", "day=2026-11-16") == 0
    part = sent(taking)
    assert [node.key for node in part.nodes] == ["fetch", "pack", "tidy"]
    assert [node.job.queue for node in part.nodes] == ["default", "slow", "default"]
    said = f"submitted group 7 (nightly) of 3 jobs ({part.head.id})\n"
    assert capsys.readouterr() == (said, "")


def test_run_as_json(taking: ScriptedDispatcher, flow: str, capsys: Captured) -> None:
    assert taking.run("run", flow, "-p", "day=1", "--strict", "--json") == 0
    printed = json.loads(capsys.readouterr().out)
    id = str(sent(taking).head.id)
    assert printed == {"id": id, "number": 7, "name": "nightly", "jobs": 3, "state": "running"}
    assert [one.strict for one in taking.asked if isinstance(one, m.SubmitGroup)] == [True]


def test_run_says_which_kinds_nobody_serves(
    taking: ScriptedDispatcher, flow: str, capsys: Captured
) -> None:
    taking.answers[m.ShowCapacity] = fleet_of("fetch")
    assert taking.run("run", flow, "-p", "day=1") == 0
    assert "no live worker takes jobs of kind 'pack', 'tidy' now" in capsys.readouterr().err


def test_what_a_dispatcher_refuses_is_told_with_the_line_of_the_job(
    taking: ScriptedDispatcher, flow: str, capsys: Captured
) -> None:
    """Only it knows the parameters of kinds, of which workers tell it."""
    said = "group 'nightly', job 'pack': job 'pack' has no parameter 'boxes'"
    taking.answers[m.SubmitGroup] = InvalidInput(said)
    assert taking.run("run", flow, "-p", "day=1") == 2
    line = next(at for at, text in enumerate(FLOW.splitlines(), 1) if "kind: pack" in text)
    assert capsys.readouterr().err == f"error: {flow}, line {line}: {said}\n"


def test_a_plan_of_many_jobs_is_folded_and_fits_a_terminal(
    dispatcher: ScriptedDispatcher, tmp_path: Path, capsys: Captured
) -> None:
    keys = [f"resize_the_picture_with_the_number_{n}" for n in range(200)]
    jobs = [
        {"kind": "fetch"},
        *({"kind": "resize", "key": key, "after": ["fetch"]} for key in keys),
    ]
    jobs.append({"kind": "pack", "after": keys, "on": "ended"})
    file = tmp_path / "wide.json"
    file.write_text(json.dumps({"name": "wide", "jobs": jobs}))
    assert dispatcher.run("run", str(file), "--plan") == 0
    assert capsys.readouterr().out.splitlines() == [
        "wide: 202 jobs in 3 layers, 400 dependencies; nothing was submitted (folded to 3 rows; "
        "--json has every job)",
        "LAYER  JOB          AFTER        ON",
        "    1  fetch",
        "    2  resize ×200  fetch",
        "    3  pack         resize ×200  ended",
    ]


def test_a_plan_asks_nobody(dispatcher: ScriptedDispatcher, flow: str, capsys: Captured) -> None:
    assert dispatcher.run("run", flow, "-p", "day=1", "--plan") == 0
    assert capsys.readouterr().out.splitlines() == [
        "nightly: 3 jobs in 3 layers, 3 dependencies; nothing was submitted",
        "LAYER  KEY    KIND   AFTER        ON",
        "    1  fetch  fetch",
        "    2  pack   pack   fetch",
        "    3  tidy   tidy   fetch, pack  ended",
    ]
    assert dispatcher.run("run", flow, "-p", "day=1", "--plan", "--json") == 0
    plan = json.loads(capsys.readouterr().out)
    assert [(one["layer"], one["after"]) for one in plan["jobs"]] == [
        (1, []),
        (2, ["fetch"]),
        (3, ["fetch", "pack"]),
    ]
    assert plan["jobs"][0]["args"] == {"day": 1}
    assert not dispatcher.asked


def test_run_reads_standard_input(
    taking: ScriptedDispatcher, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    class Input:
        buffer = io.BytesIO(b"name: x\njobs: [{kind: a, oops: 1}]")

    monkeypatch.setattr(sys, "stdin", Input)
    assert taking.run("run", "-") == 2
    assert "error: standard input, line 2: a job has no 'oops'" in capsys.readouterr().err


def test_a_file_that_cannot_be_is_refused(
    taking: ScriptedDispatcher,
    flow: str,
    capsys: Captured,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert taking.run("run", "nowhere.yaml") == 2
    assert "error: cannot read nowhere.yaml" in capsys.readouterr().err
    assert taking.run("run", flow) == 2
    assert f"error: {flow}, line 4: ${{day}} has no value" in capsys.readouterr().err
    monkeypatch.setattr(file_input, "MAX_FILE_BYTES", 10)
    assert taking.run("run", flow, "-p", "day=1") == 2
    assert "has more than the 10 bytes that are allowed" in capsys.readouterr().err
    assert not taking.asked


def waited(dispatcher: ScriptedDispatcher, state: JobState, group: Group) -> None:
    """The group is still running at the first look, and has ended at the next."""
    looks = iter([False])
    dispatcher.answers[m.Wait] = lambda request: (
        [Ended(request.jobs[0], state)] if next(looks, True) else []
    )
    shown = iter([structs.replace(group, state=GroupState.RUNNING, counts={"running": 3})])
    dispatcher.answers[m.ShowGroup] = lambda request: next(shown, group)
    dispatcher.answers[m.ListJobs] = JobPage((FAILED,))
    dispatcher.answers[m.Why] = m.WhyAnswer(FAILED.id, 9, "failed", "failed", "left")


@pytest.mark.parametrize(
    ("state", "code", "said"),
    [
        (GroupState.SUCCEEDED, 0, ""),
        (GroupState.FAILED, 1, "error: group 7 (nightly): 'left' failed first, raised: "),
        (GroupState.CANCELLED, 1, "error: group 7 (nightly) was cancelled"),
    ],
)
def test_run_waits_and_exits_with_the_outcome(
    taking: ScriptedDispatcher,
    flow: str,
    capsys: Captured,
    state: GroupState,
    code: int,
    said: str,
) -> None:
    waited(taking, JobState(state.value), ended(state, failed=1))
    assert taking.run("run", flow, "-p", "day=1", "--wait") == code
    printed = capsys.readouterr()
    assert printed.out.startswith(f"group 7 (nightly) {state.value}\n")
    assert "submitted group 7" in printed.err
    assert "group 7: 3 running\n" in printed.err
    assert said in printed.err


def test_run_waits_as_json_and_within_a_time(
    taking: ScriptedDispatcher, flow: str, capsys: Captured
) -> None:
    waited(taking, JobState.SUCCEEDED, ended(GroupState.SUCCEEDED, succeeded=3))
    assert taking.run("run", flow, "-p", "day=1", "--wait", "--json") == 0
    assert json.loads(capsys.readouterr().out)["counts"]["succeeded"] == 3
    taking.answers[m.Wait] = ()
    assert taking.run("run", flow, "-p", "day=1", "--within", "0") == 5
    assert "`longshore group why 7` says where it is" in capsys.readouterr().err


# groups


def test_groups_are_listed(dispatcher: ScriptedDispatcher, capsys: Captured) -> None:
    dispatcher.answers[m.ListGroups] = (ended(GroupState.FAILED), group(number=3))
    words = ("--state", "failed", "--state", "running", "--name", "nightly", "--limit", "2")
    assert dispatcher.run("groups", *words, "--before", "9") == 0
    [request] = dispatcher.asked
    states = (GroupState.FAILED, GroupState.RUNNING)
    assert request == m.ListGroups(request.rid, GroupFilter(states, "nightly", 9, 2))
    assert capsys.readouterr().out.splitlines() == [
        "NUMBER  STATE    NAME     JOBS  CREATED               TOOK    LABELS",
        "     7  failed   nightly     4  2026-01-31 12:00:00Z  90.0 s  reports",
        "     3  running  nightly     4  2026-01-31 12:00:00Z          reports",
    ]
    assert dispatcher.run("groups", "--json") == 0
    [first, _] = json.loads(capsys.readouterr().out)
    assert first.keys() == {*Group.__struct_fields__} - {"counts"}
    dispatcher.answers[m.ListGroups] = ()
    assert dispatcher.run("groups") == 0
    assert capsys.readouterr() == ("", "no such groups\n")


def test_groups_on_a_terminal(dispatcher: ScriptedDispatcher, terminal: OnTerminal) -> None:
    dispatcher.answers[m.ListGroups] = (group(),)
    code, shown = terminal("groups")
    assert code == 0
    assert "age" in shown
    assert "nightly" in shown


# group


def test_a_group_is_shown_with_what_failed_first(
    dispatcher: ScriptedDispatcher, capsys: Captured
) -> None:
    later = structs.replace(FAILED, number=8, ended_at=AT + timedelta(hours=1))
    dispatcher.answers[m.ShowGroup] = ended(GroupState.FAILED, succeeded=1, failed=2, skipped=1)
    dispatcher.answers[m.ListJobs] = JobPage((later, FAILED))
    dispatcher.answers[m.Why] = m.WhyAnswer(FAILED.id, 9, "failed", "failed", "left")
    dispatcher.answers[m.ListNodes] = FAILED_NODES
    assert dispatcher.run("group", "show", "7") == 0
    assert capsys.readouterr().out.splitlines() == [
        "group 7 (nightly) failed",
        f"  id            {ID}",
        f"  progress      {'━' * 30} 4/4 ended (100%)",
        "  jobs          1 succeeded, 2 failed, 1 skipped",
        "  failed first  'left' (job 9, resize): OSError: no room; "
        "1 job could not run because of it",
        "  labels        reports",
        "  created       2026-01-31 12:00:00Z",
        "  ended         2026-01-31 12:01:30Z (took 90.0 s)",
    ]
    wanted = JobFilter((JobState.FAILED,), group=ID, limit=1000)
    assert [one.wanted for one in dispatcher.asked if isinstance(one, m.ListJobs)] == [wanted]
    assert dispatcher.run("group", "show", str(ID), "--json") == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["first_failure"]["key"] == "left"
    assert printed["first_failure"]["could_not_run"] == 1
    assert printed["first_failure"]["cancelled"] == 0
    assert printed["expected"] is None
    assert printed["counts"].keys() == {state.value for state in JobState}


def test_the_limit_of_a_group_is_told_with_its_key(
    dispatcher: ScriptedDispatcher, capsys: Captured
) -> None:
    shown = ended(GroupState.SUCCEEDED, succeeded=4)
    dispatcher.answers[m.ShowGroup] = structs.replace(shown, limit=JobLimit("group=", 5))
    dispatcher.answers[m.ListNodes] = ()
    assert dispatcher.run("group", "show", "7") == 0
    told = " ".join(capsys.readouterr().out.split())
    assert f"at most 5 at once (group={ID})" in told


def test_what_fail_fast_cancelled_is_told(dispatcher: ScriptedDispatcher, capsys: Captured) -> None:
    shown = ended(GroupState.FAILED, failed=1, dependency_failed=1, cancelled=1)
    dispatcher.answers[m.ShowGroup] = structs.replace(shown, fail_fast=True)
    dispatcher.answers[m.ListJobs] = JobPage((FAILED,))
    dispatcher.answers[m.Why] = m.WhyAnswer(FAILED.id, 9, "failed", "failed", "left")
    dispatcher.answers[m.ListNodes] = (*FAILED_NODES, node("rest", state=JobState.CANCELLED))
    assert dispatcher.run("group", "show", "7") == 0
    said = "; 1 job could not run because of it; fail_fast cancelled 1 job\n"
    assert said in capsys.readouterr().out


@pytest.fixture
def running(dispatcher: ScriptedDispatcher) -> ScriptedDispatcher:
    """A dispatcher with a group of which one job runs, and one worker of one slot more."""
    dispatcher.answers[m.ShowGroup] = group(jobs=3, counts={"running": 1, "waiting": 2})
    dispatcher.answers[m.ListNodes] = (
        node("a", kind="fetch", state=JobState.RUNNING),
        node("b", "a", kind="pack"),
        node("c", "a", kind="fetch"),
    )
    dispatcher.answers[m.ListJobs] = JobPage()
    dispatcher.answers[m.ShowCapacity] = fleet_of("fetch")
    return dispatcher


def test_the_end_of_a_group_is_expected_by_earlier_runs(
    running: ScriptedDispatcher, capsys: Captured
) -> None:
    times = (RunTime("fetch", 5, 60.0), RunTime("pack", 2, 200.0))
    running.answers[m.ListRunTimes] = times
    assert running.run("group", "show", "7") == 0
    lines = capsys.readouterr().out.splitlines()
    assert "  critical path  a → b" in lines
    assert "  expected end   about 4 min left on 2 slots, by earlier runs of these kinds" in lines
    assert running.run("group", "show", "7", "--json") == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["critical_path"] == ["a", "b"]
    assert printed["expected"] == {
        "left_s": 260.0,
        "path_s": 260.0,
        "work_s": 320.0,
        "slots": 2,
        "known": 2,
        "kinds": 2,
    }
    running.answers[m.ListRunTimes] = times[:1]
    running.answers[m.ShowCapacity] = fleet_of()
    assert running.run("group", "show", "7") == 0
    lines = capsys.readouterr().out.splitlines()
    assert "  critical path  a → b (about 2 min)" in lines
    assert (
        "  expected end   about 3 min left on 1 slot, by earlier runs of 1 of its 2 kinds" in lines
    )


def test_what_a_job_ran_so_far_is_not_to_come(
    running: ScriptedDispatcher, capsys: Captured
) -> None:
    began = datetime.now(UTC) - timedelta(hours=10)
    running.answers[m.ListRunTimes] = (RunTime("fetch", 5, 3600.0), RunTime("pack", 2, 3600.0))
    first, *others = running.answers[m.ListNodes]
    running.answers[m.ListNodes] = (structs.replace(first, job=UUID(int=7)), *others)
    running.answers[m.ListJobs] = JobPage((job(id=UUID(int=7), started_at=began),))
    assert running.run("group", "show", "7") == 0
    assert "about 1 h 0 min left on 2 slots" in capsys.readouterr().out


@pytest.mark.parametrize(
    "answers",
    [
        {},
        {m.ListRunTimes: ProtocolError("what is that?")},
        {
            m.ListRunTimes: (RunTime("fetch", 5, 60.0),),
            m.ShowGroup: group(state=GroupState.PAUSED, jobs=3),
        },
        {
            m.ListRunTimes: (RunTime("fetch", 5, 60.0),),
            m.ListNodes: (node("b", kind="fetch"),),
            m.ShowCapacity: fleet_of("other"),
        },
    ],
    ids=["unknown", "older", "paused", "nobody"],
)
def test_nothing_is_expected_where_nothing_is_known(
    running: ScriptedDispatcher, capsys: Captured, answers: dict[type, Any]
) -> None:
    """Nor of a paused group, nor where nothing runs and no slot is free for its kinds."""
    running.answers |= answers
    assert running.run("group", "show", "7") == 0
    out = capsys.readouterr().out
    assert "critical path" in out
    assert "expected" not in out
    assert running.run("group", "show", "7", "--json") == 0
    assert json.loads(capsys.readouterr().out)["expected"] is None


def test_a_group_of_which_parts_are_missing_says_so(
    dispatcher: ScriptedDispatcher, capsys: Captured
) -> None:
    dispatcher.answers[m.ShowGroup] = group(state=GroupState.STAGING, counts={"waiting": 1})
    dispatcher.answers[m.ListNodes] = ()
    assert dispatcher.run("group", "show", "7") == 0
    said = "3 of 4 jobs; nothing runs before they are sent"
    assert said in capsys.readouterr().out
    dispatcher.answers[m.ListJobs] = JobPage()
    assert dispatcher.run("group", "why", "7") == 0
    assert said in capsys.readouterr().out


def test_a_group_is_watched_until_it_has_ended(
    dispatcher: ScriptedDispatcher, terminal: OnTerminal, capsys: Captured
) -> None:
    looks = iter([group(), group()])
    last = ended(GroupState.SUCCEEDED, succeeded=4)
    dispatcher.answers[m.ShowGroup] = lambda request: next(looks, last)
    dispatcher.answers[m.ListNodes] = ()
    code, shown = terminal("group", "watch", "7", "--every", "100ms")
    assert code == 0
    assert "1/4 ended (25%)" in shown
    assert "4/4 ended (100%)" in shown
    assert dispatcher.run("group", "watch", "7", "--json") == 0
    assert json.loads(capsys.readouterr().out)["state"] == "succeeded"
    assert dispatcher.run("group", "show", "7", "--every", "1s") == 2


WHYS = {
    JobState.RUNNING: ("left", "running on w1 for 3 s"),
    JobState.READY: ("right", "no worker serves kind 'pack'"),
    JobState.WAITING: ("bottom", "waiting for 2 of 2: 'left' (running), 'right' (ready)"),
}


def test_why_tells_what_runs_what_does_not_start_and_what_waits(
    dispatcher: ScriptedDispatcher, capsys: Captured
) -> None:
    """G4."""
    numbers = {UUID(int=number): state for number, state in enumerate(WHYS, 10)}
    jobs = {state: job(id=id, number=id.int, state=state) for id, state in numbers.items()}

    def listed(request: m.ListJobs) -> JobPage:
        [state] = request.wanted.states
        most = request.wanted.limit if state is JobState.WAITING else 1
        return JobPage((jobs[state],) * most)

    def why(request: m.Why) -> m.WhyAnswer:
        assert isinstance(request.job, UUID)
        state = numbers[request.job]
        key, words = WHYS[state]
        return m.WhyAnswer(request.job, request.job.int, state.value, words, key)

    dispatcher.answers[m.ShowGroup] = group(counts={"running": 1, "ready": 1, "waiting": 30})
    dispatcher.answers[m.ListJobs] = listed
    dispatcher.answers[m.Why] = why
    assert dispatcher.run("group", "why", "7") == 0
    waiting = "  'bottom' (job 12, waiting): waiting for 2 of 2: 'left' (running), 'right' (ready)"
    assert capsys.readouterr().out.splitlines() == [
        "group 7 (nightly) is running: 30 waiting, 1 ready, 1 running",
        "  'left' (job 10, running): running on w1 for 3 s",
        "  'right' (job 11, ready): no worker serves kind 'pack'",
        *[waiting] * 5,
        "  and 25 more that are waiting",
    ]
    assert dispatcher.run("group", "why", "7", "--json") == 0
    assert json.loads(capsys.readouterr().out)["why"][0]["key"] == "left"


def test_why_is_never_silent(dispatcher: ScriptedDispatcher, capsys: Captured) -> None:
    dispatcher.answers[m.ListJobs] = JobPage()
    for shown, said in (
        (group(counts={"succeeded": 4}), "a dispatcher is about to end the group"),
        (group(state=GroupState.CANCELLING, counts={}), "its first failure, because of fail_fast"),
        (group(state=GroupState.CANCELLING, counts={}, cancelled_by="ann"), "cancelled by ann"),
        (ended(GroupState.SUCCEEDED, succeeded=4), "group 7 (nightly) succeeded: 4 succeeded"),
        (ended(GroupState.SUCCEEDED), "group 7 (nightly) succeeded: it has no jobs"),
    ):
        dispatcher.answers[m.ShowGroup] = shown
        assert dispatcher.run("group", "why", "7") == 0
        assert said in capsys.readouterr().out


@pytest.mark.parametrize(
    ("verdict", "code", "out", "err"),
    [
        (GroupVerdict.CANCELLING, 0, "group 7 is being cancelled", ""),
        (GroupVerdict.ALREADY_ENDED, 2, "", "error: group 7 has ended already"),
        (GroupVerdict.NOT_FOUND, 3, "", "error: there is no group 7"),
    ],
)
def test_a_group_is_cancelled(
    dispatcher: ScriptedDispatcher,
    capsys: Captured,
    verdict: GroupVerdict,
    code: int,
    out: str,
    err: str,
) -> None:
    dispatcher.answers[m.CancelGroup] = verdict
    assert dispatcher.run("group", "cancel", "7") == code
    printed = capsys.readouterr()
    assert printed.out.startswith(out)
    assert printed.err.startswith(err)
    assert dispatcher.run("group", "cancel", "7", "--json") == code
    assert json.loads(capsys.readouterr().out) == {"group": "7", "verdict": verdict.value}


@pytest.mark.parametrize(
    ("action", "verdict", "code", "out", "err"),
    [
        ("pause", GroupVerdict.PAUSED, 0, "group 7 is paused: what runs of it goes on", ""),
        ("resume", GroupVerdict.RUNNING, 0, "group 7 goes on", ""),
        ("pause", GroupVerdict.NOT_RUNNING, 2, "", "error: group 7 is neither running nor paused"),
        ("resume", GroupVerdict.ALREADY_ENDED, 2, "", "error: group 7 has ended already"),
        ("pause", GroupVerdict.NOT_FOUND, 3, "", "error: there is no group 7"),
    ],
)
def test_a_group_is_paused_and_goes_on(
    dispatcher: ScriptedDispatcher,
    capsys: Captured,
    action: str,
    verdict: GroupVerdict,
    code: int,
    out: str,
    err: str,
) -> None:
    dispatcher.answers[m.PauseGroup] = verdict
    assert dispatcher.run("group", action, "7") == code
    printed = capsys.readouterr()
    assert printed.out.startswith(out)
    assert printed.err.startswith(err)
    [asked] = [one.paused for one in dispatcher.asked if isinstance(one, m.PauseGroup)]
    assert asked is (action == "pause")


def test_a_group_is_retried(dispatcher: ScriptedDispatcher, capsys: Captured) -> None:
    dispatcher.answers[m.RetryGroup] = RetryPlan(ID, ("b", "c"))
    assert dispatcher.run("group", "retry", "7") == 0
    assert capsys.readouterr().out == "2 jobs of group 7 run again:\n  b\n  c\n"
    assert dispatcher.run("group", "retry", "7", "--from", "b", "--from", "c", "--plan") == 0
    assert capsys.readouterr().out == "2 jobs of group 7 would run again:\n  b\n  c\n"
    asked = [one for one in dispatcher.asked if isinstance(one, m.RetryGroup)]
    assert [(one.keys, one.dry_run) for one in asked] == [((), False), (("b", "c"), True)]
    assert dispatcher.run("group", "retry", "7", "--json") == 0
    assert json.loads(capsys.readouterr().out) == {
        "group": str(ID),
        "reopened": ["b", "c"],
        "running": [],
        "refused": "",
        "retired": [],
        "more": 0,
        "more_retired": 0,
    }


def test_a_retry_of_many_jobs_names_the_first(
    dispatcher: ScriptedDispatcher, capsys: Captured
) -> None:
    plan = RetryPlan(ID, ("b",), retired=("b/0",), more=99_999, more_retired=1_999)
    dispatcher.answers[m.RetryGroup] = plan
    assert dispatcher.run("group", "retry", "7") == 0
    assert capsys.readouterr().out == (
        "100,000 jobs of group 7 run again:\n  b\n  and 99,999 more\n"
        "2,000 leave the group, as the jobs that added them run again:\n  b/0\n  and 1,999 more\n"
    )


def test_a_retry_that_is_refused_says_why(dispatcher: ScriptedDispatcher, capsys: Captured) -> None:
    dispatcher.answers[m.RetryGroup] = RetryPlan(ID, running=("b",), refused="'b' still runs")
    assert dispatcher.run("group", "retry", "7", "--plan") == 2
    assert capsys.readouterr() == ("", "error: group 7 cannot be retried: 'b' still runs\n")
    dispatcher.answers[m.RetryGroup] = NotFound("there is no group 7")
    assert dispatcher.run("group", "retry", "7") == 3
    capsys.readouterr()
    assert dispatcher.run("group", "pause", "7", "--plan") == 2
    assert "--from and --plan are for `group retry` and `rerun`" in capsys.readouterr().err
    assert dispatcher.run("group", "rerun", "7", "--args", "{}") == 2
    assert "--args is for `group retry`" in capsys.readouterr().err


def test_a_ref_that_is_no_group_is_refused(
    dispatcher: ScriptedDispatcher, capsys: Captured
) -> None:
    assert dispatcher.run("group", "show", "nightly") == 2
    assert "'nightly' is not a group: give its number" in capsys.readouterr().err
    dispatcher.answers[m.ShowGroup] = NotFound("there is no group 9")
    dispatcher.answers[m.Show] = NotFound("there is no job 9")
    assert dispatcher.run("group", "show", "9") == 3


# jobs of groups


def test_the_number_of_a_group_is_no_job_and_that_of_a_job_no_group(
    dispatcher: ScriptedDispatcher, capsys: Captured
) -> None:
    """Both are counted together, so one is easily taken for the other."""
    dispatcher.answers[m.Show] = NotFound("there is no job 7; `longshore jobs` lists them")
    dispatcher.answers[m.Why] = NotFound("there is no job 7")
    dispatcher.answers[m.ShowGroup] = group()
    for command in ("job", "why"):
        assert dispatcher.run(command, "7") == 3
        said = capsys.readouterr().err
        assert said == "error: there is no job 7; 7 is a group: `longshore group show 7`\n"
    dispatcher.answers[m.ShowGroup] = NotFound("there is no group 9")
    dispatcher.answers[m.Show] = FAILED
    for action in ("show", "graph"):
        assert dispatcher.run("group", action, "9") == 3
        said = capsys.readouterr().err
        assert said == "error: there is no group 9; 9 is a job: `longshore job 9`\n"
    dispatcher.answers[m.Show] = NotFound("there is no job 9")
    assert dispatcher.run("group", "show", "9") == 3
    assert capsys.readouterr().err == "error: there is no group 9\n"


def test_jobs_of_a_group_are_listed(dispatcher: ScriptedDispatcher, capsys: Captured) -> None:
    dispatcher.answers[m.ShowGroup] = group()
    dispatcher.answers[m.ListJobs] = JobPage((FAILED,))
    own = structs.replace(node("left", state=JobState.FAILED), job=FAILED.id)
    dispatcher.answers[m.ListNodes] = (own, node("right"))
    assert dispatcher.run("jobs", "--group", "7") == 0
    assert [one.wanted.group for one in dispatcher.asked if isinstance(one, m.ListJobs)] == [ID]
    titles, row = capsys.readouterr().out.splitlines()
    assert titles.split()[:4] == ["NUMBER", "STATE", "KEY", "KIND"]
    assert row.split()[:3] == ["9", "failed", "left"]
    assert dispatcher.run("jobs", "--group", "7", "--json") == 0
    assert [one["key"] for one in json.loads(capsys.readouterr().out)] == ["left"]


def test_a_large_group_says_what_is_not_told_of_it(
    dispatcher: ScriptedDispatcher, capsys: Captured
) -> None:
    dispatcher.answers[m.ShowGroup] = group(jobs=5_001)
    assert dispatcher.run("group", "show", "7") == 0
    out = capsys.readouterr().out
    assert "  not told" in out
    assert "the critical path, the expected end, gates, parts, what the first failure cost" in out
    assert "the group has more than 5,000 jobs\n" in out
    assert not any(isinstance(one, m.ListNodes) for one in dispatcher.asked)


def near(*nodes: NodeView) -> Callable[[m.ListNodes], tuple[NodeView, ...]]:
    """Answers which of these nodes are near the jobs that are asked for."""

    def listed(request: m.ListNodes) -> tuple[NodeView, ...]:
        own = [node for node in nodes if node.job in request.jobs]
        keys, needed = {node.key for node in own}, {key for node in own for key in node.after}
        found = {
            Near.THESE: own,
            Near.AFTER: [node for node in nodes if node.key in needed],
            Near.DEPENDENTS: [node for node in nodes if keys.intersection(node.after)],
        }[request.near]
        return tuple(found[: request.most])

    return listed


def of_a_group(dispatcher: ScriptedDispatcher, *nodes: NodeView) -> None:
    """The dispatcher has a failed job, 'left' of a group with these nodes."""
    dispatcher.answers[m.Show] = FAILED
    dispatcher.answers[m.ListWorkers] = ()
    dispatcher.answers[m.ShowGroup] = group()
    dispatcher.answers[m.Why] = m.WhyAnswer(FAILED.id, 9, "failed", "failed", "left")
    dispatcher.answers[m.ListNodes] = near(*nodes)


def test_a_job_shows_its_group_and_who_is_near_it(
    dispatcher: ScriptedDispatcher, capsys: Captured
) -> None:
    own = structs.replace(node("left", "top", "gate", state=JobState.FAILED), job=FAILED.id)
    many = [node(f"end-{n}", "left") for n in range(10)]
    top = node("top", state=JobState.SUCCEEDED)
    of_a_group(dispatcher, top, node("gate"), node("other", "top"), own, *many)
    assert dispatcher.run("job", "9") == 0
    out = capsys.readouterr().out
    assert "  group       7 (nightly), as 'left'\n" in out
    assert "  depends on  'top' (succeeded), 'gate' (waiting)\n" in out
    assert "  needed by   'end-0' (waiting), 'end-1' (waiting), " in out
    assert "'end-7' (waiting) and 2 more\n" in out
    assert dispatcher.run("job", "9", "--json") == 0
    printed = json.loads(capsys.readouterr().out)
    assert (printed["group"], printed["key"], printed["on"]) == (str(ID), "left", "succeeded")
    after = [(one["key"], one["state"]) for one in printed["after"]]
    assert after == [("top", "succeeded"), ("gate", "waiting")]
    assert [one["key"] for one in printed["dependents"]] == [f"end-{n}" for n in range(10)]
    of_a_group(dispatcher, top)
    assert dispatcher.run("job", "9", "--json") == 0
    assert json.loads(capsys.readouterr().out)["after"] is None, "the job has left the group"


def test_of_many_neighbours_the_first_thousand_are_asked_for(
    dispatcher: ScriptedDispatcher, capsys: Captured
) -> None:
    """In a group of any size nobody looks at the others."""
    own = structs.replace(node("left", state=JobState.FAILED), job=FAILED.id)
    many = [node(f"end-{n}", "left") for n in range(2_000)]
    of_a_group(dispatcher, own, *many)
    dispatcher.answers[m.ShowGroup] = group(jobs=100_000)
    assert dispatcher.run("job", "9") == 0
    assert "'end-7' (waiting) and at least 992 more\n" in capsys.readouterr().out
    asked = [one for one in dispatcher.asked if isinstance(one, m.ListNodes)]
    assert [(one.jobs, one.near) for one in asked] == [((FAILED.id,), near) for near in Near]


def test_a_job_says_on_what_it_runs_unless_that_is_success(
    dispatcher: ScriptedDispatcher, capsys: Captured
) -> None:
    own = structs.replace(node("left", "top", on="ended"), job=FAILED.id)
    of_a_group(dispatcher, node("top"), own)
    assert dispatcher.run("job", "9") == 0
    out = capsys.readouterr().out
    assert "  depends on  'top' (waiting), on ended\n" in out
    assert "needed by" not in out
