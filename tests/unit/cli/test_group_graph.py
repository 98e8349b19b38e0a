"""`longshore group graph`, and the critical path that `group show` tells of."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest
from msgspec import structs
from tests.unit.cli.conftest import ScriptedDispatcher
from tests.unit.cli.test_groups import ended, group
from tests.unit.cli.test_watching import OnTerminal, terminal
from tests.unit.core.graphs import mosaic, node

from longshore.cli import outlook
from longshore.cli.commands import group_graph
from longshore.cli.view.graph import COLOURS
from longshore.model.group import GroupState, NodeView
from longshore.model.job import JobState
from longshore.wire import messages as m

__all__ = ["terminal"]

Captured = pytest.CaptureFixture[str]
SVG = "{http://www.w3.org/2000/svg}"
FEW = [
    node("fetch", kind="fetch", state=JobState.SUCCEEDED),
    *(node(f"resize-{n}", "fetch", kind="resize", state=JobState.RUNNING) for n in range(3)),
    node("pack", *(f"resize-{n}" for n in range(3)), kind="pack"),
    node("sorry", "pack", kind="tell", on="failed"),
]


def serve(dispatcher: ScriptedDispatcher, nodes: list[NodeView], name: str = "nightly") -> None:
    """The dispatcher has a group of these nodes."""

    def listed(request: m.ListNodes) -> tuple[NodeView, ...]:
        first = request.after + 1
        return tuple(nodes[first : first + request.most])

    dispatcher.answers[m.ShowGroup] = group(name=name, jobs=len(nodes))
    dispatcher.answers[m.ListNodes] = listed


def test_a_graph_as_text(dispatcher: ScriptedDispatcher, capsys: Captured) -> None:
    serve(dispatcher, FEW)
    assert dispatcher.run("group", "graph", "7") == 0
    assert capsys.readouterr().out.splitlines() == [
        "group 7 (nightly) running: 6 jobs in 4 layers",
        "LAYER  JOB       STATE      AFTER                         ON",
        "    1  fetch     succeeded",
        "    2  resize-0  running    fetch",
        "    2  resize-1  running    fetch",
        "    2  resize-2  running    fetch",
        "    3  pack      waiting    resize-0, resize-1, resize-2",
        "    4  sorry     waiting    pack                          failed",
    ]


def test_a_folded_graph_fits_a_terminal(
    dispatcher: ScriptedDispatcher, terminal: OnTerminal
) -> None:
    long = "k" * 150
    nodes = [*mosaic(200), node(f"{long}1", "add", kind=long), node(f"{long}2", "add", kind=long)]
    serve(dispatcher, nodes)
    code, shown = terminal("group", "graph", "7")
    assert code == 0
    assert "folded to" in shown
    assert "correct ×200" in shown


def test_text_is_readable_at_80_columns(dispatcher: ScriptedDispatcher, tmp_path: Path) -> None:
    long = "k" * 190
    ends = [
        node(f"{long}{n}", "add", kind=long, state=JobState.DEPENDENCY_FAILED, on="failed")
        for n in range(2)
    ]
    serve(dispatcher, [*mosaic(200), *ends, node("z", ends[0].key, ends[1].key, on="ended")])
    file = tmp_path / "graph.txt"
    assert dispatcher.run("group", "graph", "7", "-o", str(file)) == 0
    title, *lines = file.read_text().splitlines()
    assert title.endswith("layers, folded to 8 nodes")
    assert len(lines) == 9
    assert all(len(line) <= 80 for line in lines)


def test_a_graph_as_json(dispatcher: ScriptedDispatcher, capsys: Captured) -> None:
    serve(dispatcher, mosaic(300))
    assert dispatcher.run("group", "graph", "7", "--json") == 0
    printed = json.loads(capsys.readouterr().out)
    assert dispatcher.run("group", "graph", "7", "--format", "json") == 0
    assert json.loads(capsys.readouterr().out) == printed
    assert printed["jobs"] == sum(one["count"] for one in printed["nodes"]) == 1_793
    [first] = [one for one in printed["nodes"] if one["label"] == "project ×300"]
    assert (first["layer"], first["position"], first["state"]) == (0, 0, "waiting")
    assert first["keys"][:2] == ["project-0", "project-1"]
    nodes = printed["nodes"]
    assert all(nodes[e["from"]]["layer"] < nodes[e["to"]]["layer"] for e in printed["edges"])
    assert dispatcher.run("group", "graph", "7", "--json", "--no-fold") == 0
    assert len(json.loads(capsys.readouterr().out)["nodes"]) == 1_793


def test_a_graph_as_dot(dispatcher: ScriptedDispatcher, capsys: Captured) -> None:
    serve(dispatcher, FEW, 'say "no\\"')
    assert dispatcher.run("group", "graph", "7", "--format", "dot") == 0
    printed = capsys.readouterr().out
    assert 'label="group 7 (say \\"no\\\\\\"), running"' in printed
    assert '  n0 [label="fetch\\nsucceeded", fillcolor=' in printed
    assert "  { rank=same; n1; n2; n3; }\n" in printed
    assert "  n4 -> n5 [style=dashed];\n" in printed


def test_a_graph_as_svg(dispatcher: ScriptedDispatcher, tmp_path: Path, capsys: Captured) -> None:
    name = '<b>&"\x1b[1m\ufffe'
    serve(dispatcher, FEW, name)
    file = tmp_path / "graph.svg"
    assert dispatcher.run("group", "graph", "7", "-o", str(file)) == 0
    assert capsys.readouterr().out == ""
    picture = ElementTree.parse(file).getroot()
    words = ["".join(text.itertext()) for text in picture.iter(f"{SVG}text")]
    assert words[0] == 'group 7 (<b>&"\\x1b[1m\ufffd), running'
    assert words[1] == "6 jobs in 4 layers"
    assert {"fetch", "resize-1", "3 running", "runs when one has failed"} <= {*words}
    assert len([one for one in picture.iter(f"{SVG}path") if one.get("marker-end")]) == 7
    assert dispatcher.run("group", "graph", "7", "--format", "svg") == 0
    assert capsys.readouterr().out == file.read_text()


def test_a_group_without_jobs_has_a_graph_too(
    dispatcher: ScriptedDispatcher, capsys: Captured
) -> None:
    serve(dispatcher, [])
    for format in ("text", "dot", "json", "svg"):
        assert dispatcher.run("group", "graph", "7", "--format", format) == 0
        assert "nightly" in capsys.readouterr().out


def test_what_cannot_be_drawn_is_refused_in_words(
    dispatcher: ScriptedDispatcher,
    tmp_path: Path,
    capsys: Captured,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    serve(dispatcher, FEW)
    missing = str(tmp_path / "missing" / "graph.svg")
    refused = {
        ("graph", "7", "-o", missing): f"cannot write {missing}: No such file or directory",
        ("graph", "7", "--json", "--format", "dot"): "--json and --format dot exclude each other",
        ("show", "7", "--no-fold"): "--fold is for `group graph`",
        ("why", "7", "--format", "svg"): "--format is for `group graph`",
        ("cancel", "7", "-o", "x"): "-o is for `group graph`",
    }
    for words, said in refused.items():
        assert dispatcher.run("group", *words) == 2
        assert said in capsys.readouterr().err
    monkeypatch.setattr(group_graph, "MAX_DRAWN", 5)
    assert dispatcher.run("group", "graph", "7", "--no-fold", "--format", "svg") != 0
    assert "group 7 has 6 jobs, and a picture that is not folded may have 5" in (
        capsys.readouterr().err
    )


def test_show_tells_the_critical_path(
    dispatcher: ScriptedDispatcher, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    serve(dispatcher, FEW)
    assert dispatcher.run("group", "show", "7") == 0
    assert "  critical path  resize-0 → pack → sorry\n" in capsys.readouterr().out
    chain = [node("k0")]
    chain += [node(f"k{n}", f"k{n - 1}") for n in range(1, 1_500)]
    serve(dispatcher, chain)
    assert dispatcher.run("group", "show", "7") == 0
    said = "k0 → k1 → k2 → … 1,494 more … → k1497 → k1498 → k1499\n"
    assert said in capsys.readouterr().out
    assert dispatcher.run("group", "show", "7", "--json") == 0
    assert len(json.loads(capsys.readouterr().out)["critical_path"]) == 1_500
    monkeypatch.setattr(outlook, "MAX_PATH_JOBS", 1_499)
    assert dispatcher.run("group", "show", "7", "--json") == 0
    assert json.loads(capsys.readouterr().out)["critical_path"] is None


def test_an_ended_group_has_no_critical_path(
    dispatcher: ScriptedDispatcher, capsys: Captured
) -> None:
    dispatcher.answers[m.ShowGroup] = structs.replace(ended(GroupState.SUCCEEDED), counts={})
    assert dispatcher.run("group", "show", "7") == 0
    assert "critical" not in capsys.readouterr().out
    assert not any(isinstance(one, m.ListNodes) for one in dispatcher.asked)


def test_every_state_has_a_colour_in_pictures() -> None:
    assert set(COLOURS) == set(JobState)
