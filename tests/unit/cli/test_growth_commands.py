"""`longshore run` and `longshore group` with maps, gates, sub-groups and what jobs added."""

from __future__ import annotations

import json
from pathlib import Path
from uuid import UUID

import pytest
from tests.unit.cli.conftest import ScriptedDispatcher
from tests.unit.cli.test_commands import job
from tests.unit.cli.test_groups import ID, Captured, group

from longshore.model.group import (
    GATE,
    MAP,
    SCOPE,
    GateVerdict,
    GroupVerdict,
    NodeView,
    RetryPlan,
)
from longshore.model.job import JobPage, JobState
from longshore.payload.values import unpack
from longshore.wire import messages as m

FLOW = """\
name: nightly
jobs:
  - {kind: fetch, key: in/a}
  - {kind: fetch, key: in/b, after: in/a}
  - {gate: true, key: approve, after: in, timeout_s: 60}
  - kind: resize
    args: {width: 3}
    after: approve
    retries: 2
    map: {over: {$result: {job: in/a, path: [pages]}}, parameter: page}
  - {kind: pack, args: {sizes: {$results: {map: resize}}}}
  - {kind: tell, key: desks, map: {over: [a, b], parameter: text}}
"""


@pytest.fixture
def flow(tmp_path: Path) -> str:
    """A file with a group."""
    file = tmp_path / "flow.yaml"
    file.write_text(FLOW)
    return str(file)


def test_a_plan_shows_maps_gates_and_subgroups(
    dispatcher: ScriptedDispatcher, flow: str, capsys: Captured
) -> None:
    assert dispatcher.run("run", flow, "--plan") == 0
    assert capsys.readouterr().out == (
        "nightly: 7 jobs in 6 layers, 5 dependencies; nothing was submitted\n"
        "LAYER  KEY      KIND         AFTER          ON\n"
        "    1  in/a     fetch\n"
        "    1  desks    tell ×2\n"
        "    2  in/b     fetch        in/a\n"
        "    3  in       (sub-group)\n"
        "    4  approve  (gate)       in\n"
        "    5  resize   resize ×…    in/a, approve\n"
        "    6  pack     pack         resize\n"
    )
    assert dispatcher.run("run", flow, "--plan", "--json") == 0
    jobs = {one["key"]: one for one in json.loads(capsys.readouterr().out)["jobs"]}
    assert jobs["in/a"]["scope"] == "in"
    assert jobs["resize"]["map"] == {
        "kind": "resize",
        "parameter": "page",
        "over": {"$result": {"job": "in/a", "path": ["pages"]}},
    }
    assert jobs["resize"]["args"] == {"width": 3}


def test_a_gate_is_opened_with_a_value(dispatcher: ScriptedDispatcher, capsys: Captured) -> None:
    dispatcher.answers[m.OpenGate] = GateVerdict.OPENED
    assert dispatcher.run("group", "open", "7", "approve", "--value", '{"by": "ann"}') == 0
    assert capsys.readouterr().out == "gate 'approve' of group 7 is open\n"
    [asked] = [one for one in dispatcher.asked if isinstance(one, m.OpenGate)]
    assert asked.value is not None
    assert (asked.group, asked.key, unpack(asked.value)) == (7, "approve", {"by": "ann"})
    dispatcher.answers[m.OpenGate] = GateVerdict.ALREADY_OPEN
    assert dispatcher.run("group", "open", "7", "approve", "--json") == 0
    assert json.loads(capsys.readouterr().out) == {
        "group": "7",
        "key": "approve",
        "verdict": "already_open",
    }


@pytest.mark.parametrize(
    ("words", "verdict", "code", "said"),
    [
        (["open", "7", "a"], GateVerdict.NOT_REACHED, 2, "cannot be opened yet"),
        (["open", "7", "a"], GateVerdict.NOT_FOUND, 3, "has no gate 'a'"),
        (["open", "7", "a", "--value", "{"], None, 2, "--value '{' is not JSON"),
        (["open", "7"], None, 2, "needs the KEY of the gate"),
        (["show", "7", "a"], None, 2, "`group show` takes no KEY"),
        (["cancel", "7", "--value", "1"], None, 2, "--value is for `group open`"),
        (["pause", "7", "--args", "{}"], None, 2, "is for `group retry`"),
        (["retry", "7", "--from", "a", "--args", "[1]"], None, 2, "is not a map by name"),
    ],
)
def test_what_cannot_be_is_told(
    dispatcher: ScriptedDispatcher,
    capsys: Captured,
    words: list[str],
    verdict: GateVerdict | None,
    code: int,
    said: str,
) -> None:
    dispatcher.answers[m.OpenGate] = verdict
    assert dispatcher.run("group", *words) == code
    assert said in capsys.readouterr().err


def test_a_part_of_a_group_is_cancelled(dispatcher: ScriptedDispatcher, capsys: Captured) -> None:
    dispatcher.answers[m.CancelGroup] = GroupVerdict.CANCELLING
    assert dispatcher.run("group", "cancel", "7", "in/") == 0
    assert capsys.readouterr().out.startswith("'in/' of group 7 is being cancelled")
    [asked] = [one for one in dispatcher.asked if isinstance(one, m.CancelGroup)]
    assert asked.prefix == "in/"
    dispatcher.answers[m.CancelGroup] = GroupVerdict.ALREADY_ENDED
    assert dispatcher.run("group", "cancel", "7", "in/") == 2
    assert "all of 'in/' in group 7 has ended already" in capsys.readouterr().err


def test_a_retry_tells_what_leaves_the_group(
    dispatcher: ScriptedDispatcher, capsys: Captured
) -> None:
    dispatcher.answers[m.RetryGroup] = RetryPlan(ID, ("a",), retired=("a/0", "a/1"))
    words = ("group", "retry", "7", "--from", "a", "--args", '{"n": 1}', "--plan")
    assert dispatcher.run(*words) == 0
    assert capsys.readouterr().out == (
        "1 jobs of group 7 would run again:\n  a\n"
        "2 would leave the group, as the jobs that added them run again:\n  a/0\n  a/1\n"
    )
    [asked] = [one for one in dispatcher.asked if isinstance(one, m.RetryGroup)]
    assert asked.args is not None
    assert (asked.keys, unpack(asked.args)) == (("a",), {"n": 1})


def node(
    key: str, kind: str, state: str, *after: str, scope: str | None = None, open: int = 0
) -> NodeView:
    return NodeView(
        key=key,
        job=UUID(int=1),
        number=1,
        kind=kind,
        state=JobState(state),
        after=after,
        scope=scope,
        open=open,
    )


NODES = [
    node("in/a", "fetch", "succeeded", scope="in"),
    node("in", SCOPE, "succeeded"),
    node("approve", GATE, "ready", "in"),
    node("resize", MAP, "succeeded", "in", open=30),
    node("pack", "pack", "waiting", "resize", "approve"),
    *(node(f"resize/{n}", "resize", "running", scope="resize") for n in range(30)),
]


def test_a_group_shows_its_gates_and_how_far_its_parts_are(
    dispatcher: ScriptedDispatcher, capsys: Captured
) -> None:
    dispatcher.answers[m.ShowGroup] = group(counts={"running": 30})
    dispatcher.answers[m.ListNodes] = NODES
    assert dispatcher.run("group", "show", "7") == 0
    shown = capsys.readouterr().out
    assert "in/ 1 of 1, resize/ 0 of 30" in shown
    assert "'approve' waits to be opened: `longshore group open 7 approve`" in shown
    assert "resize/0 → pack" in shown
    assert dispatcher.run("group", "show", "7", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["gates"] == ["approve"]
    assert found["parts"][1] == {"key": "resize", "ended": 0, "jobs": 30}


def test_a_graph_has_one_row_for_the_elements_of_a_map(
    dispatcher: ScriptedDispatcher, capsys: Captured
) -> None:
    dispatcher.answers[m.ShowGroup] = group(counts={"running": 30})
    dispatcher.answers[m.ListNodes] = NODES
    assert dispatcher.run("group", "graph", "7") == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()[2:]]
    assert ["4", "resize", "×30", "running", "resize"] in rows
    assert rows[-1][:3] == ["5", "pack", "waiting"]


@pytest.mark.parametrize(("open", "state"), [(30, "running"), (0, "succeeded")])
def test_a_map_runs_until_its_elements_have_ended(
    dispatcher: ScriptedDispatcher, capsys: Captured, open: int, state: str
) -> None:
    """In every view, for people and for programs."""
    resize = node("resize", MAP, "succeeded", open=open)
    shown = job(kind=MAP, state=JobState.SUCCEEDED, group=ID, open=open)
    dispatcher.answers |= {
        m.ShowGroup: group(),
        m.ListNodes: [resize, node("pack", "pack", "waiting", "resize")],
        m.ListJobs: JobPage((shown,)),
        m.Show: shown,
        m.Why: m.WhyAnswer(UUID(int=1), 1, "succeeded", "", key="resize"),
        m.ListWorkers: (),
    }
    dispatcher.answers[m.ShowGroup] = group(
        counts={"succeeded": 1, "waiting": 1}, jobs=2, open=int(open > 0)
    )
    assert dispatcher.run("group", "show", "7") == 0
    assert f"jobs           1 waiting, 1 {state}" in capsys.readouterr().out
    assert dispatcher.run("group", "show", "7", "--json") == 0
    assert json.loads(capsys.readouterr().out)["counts"][state] == 1
    for command in ("group graph 7", "jobs --group 7", "job 1"):
        assert dispatcher.run(*command.split()) == 0
        assert state in capsys.readouterr().out
    for command in ("jobs --group 7", "job 1"):
        assert dispatcher.run(*command.split(), "--json") == 0
        found = json.loads(capsys.readouterr().out)
        assert (found[0] if isinstance(found, list) else found)["state"] == state
    assert dispatcher.run("group", "graph", "7", "--json") == 0
    assert json.loads(capsys.readouterr().out)["nodes"][0]["state"] == state
