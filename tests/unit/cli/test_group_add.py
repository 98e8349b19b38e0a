"""`longshore group add`: what it asks a dispatcher, and what it says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.unit.cli.conftest import ScriptedDispatcher
from tests.unit.cli.test_groups import ID, ended

from longshore.model.group import Condition, GroupState, GroupSubmitted
from longshore.payload.values import unpack
from longshore.wire import messages as m

Captured = pytest.CaptureFixture[str]


@pytest.fixture
def group(dispatcher: ScriptedDispatcher) -> ScriptedDispatcher:
    """A dispatcher that has group 7, and takes what is added to it."""
    dispatcher.answers[m.ShowGroup] = ended(GroupState.RUNNING, running=1)
    dispatcher.answers[m.ShowKind] = None
    dispatcher.answers[m.ListRunTimes] = ()
    dispatcher.answers[m.AddToGroup] = GroupSubmitted(ID, 7, GroupState.RUNNING, 2)
    return dispatcher


def asked(dispatcher: ScriptedDispatcher) -> m.AddToGroup:
    [request] = [one for one in dispatcher.asked if isinstance(one, m.AddToGroup)]
    return request


def test_a_job_is_added_to_a_group(group: ScriptedDispatcher, capsys: Captured) -> None:
    line = ["press", "copies=200", "--key", "extra", "--after", "lay_out,city", "--on", "ended"]
    assert group.run("group", "add", "7", *line) == 0
    [node] = asked(group).nodes
    assert (node.key, node.after, node.on) == ("extra", ("lay_out", "city"), Condition.ENDED)
    assert (node.job.kind, unpack(node.job.args)) == ("press", {"copies": 200})
    assert capsys.readouterr().out.startswith("added 'extra' to group 7 (")


def test_an_added_job_may_take_a_result(group: ScriptedDispatcher, capsys: Captured) -> None:
    args = '{"copies": {"$result": {"job": "count"}}}'
    assert group.run("group", "add", "7", "press", "--args", args, "--json") == 0
    [node] = asked(group).nodes
    assert (node.after, node.job.options.references) == (("count",), True)
    document = json.loads(capsys.readouterr().out)
    assert (document["number"], document["jobs"][0]["key"]) == (7, node.key)


def test_the_jobs_of_a_file_are_added(
    group: ScriptedDispatcher, capsys: Captured, tmp_path: Path
) -> None:
    file = tmp_path / "more.yaml"
    file.write_text(
        "jobs:\n"
        "  - {kind: tell, key: told, after: [pressed, city]}\n"
        "  - {kind: press, key: pressed, args: {copies: '${n}'}}\n"
    )
    assert group.run("group", "add", "7", "--file", str(file), "-p", "n=5") == 0
    assert [node.key for node in asked(group).nodes] == ["pressed", "told"]
    assert capsys.readouterr().out == "added 2 jobs to group 7: 'pressed', 'told'\n"
    file.write_text("jobs:\n  - {kind: tell, keys: told}\n")
    assert group.run("group", "add", "7", "--file", str(file)) == 2
    assert "line 2: a job has no 'keys'; did you mean 'key'?" in capsys.readouterr().err
    file.write_text("name: x\njobs: []\n")
    assert group.run("group", "add", "7", "--file", str(file)) == 2
    assert "has no 'name'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (["add", "7"], "needs the KIND"),
        (["add", "7", "press", "-p", "a=1"], "-p fills in a file"),
        (["add", "7", "press", "--file", "x.yaml"], "give no KIND"),
        (["show", "7", "--after", "x"], "--after is for `group add`"),
        (["cancel", "7", "x", "y=1"], "NAME=VALUE is for `group add`"),
    ],
)
def test_options_that_do_not_belong_together_are_refused(
    dispatcher: ScriptedDispatcher, capsys: Captured, line: list[str], words: str
) -> None:
    assert dispatcher.run("group", *line) == 2
    assert words in capsys.readouterr().err
