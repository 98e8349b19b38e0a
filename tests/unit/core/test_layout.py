"""The layout of a group's graph: layers, the order within them, rows and labels."""

from __future__ import annotations

import random
from collections import defaultdict
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs
from tests.unit.core.graphs import graphs, lanes, mosaic, node, nodes

from longshore.core import layout
from longshore.core.folding import MAX_FOLDS, Graph, each_alone, fold
from longshore.core.layout import Layout, arranged, lay_out
from longshore.model.group import NodeView
from longshore.model.job import JobState


def check(found: Layout, some: list[NodeView]) -> None:
    """What holds of every layout of these nodes."""
    boxes = found.boxes
    assert sorted(key for box in boxes for key in box.keys) == sorted(one.key for one in some)
    assert len({box.label for box in boxes}) == len(boxes)
    rows = defaultdict(list)
    for box in boxes:
        rows[box.layer].append((box.position, box.row))
    assert sorted(rows) == list(range(found.layers))
    for layer in rows.values():
        assert [position for position, _ in layer] == list(range(len(layer)))
        assert all(b - a > 0.999 for (_, a), (_, b) in pairwise(layer))
        assert min(row for _, row in layer) >= 0
    states = {one.key: one.state for one in some}
    assert all(states[key] is box.state for box in boxes for key in box.keys)
    for edge in found.edges:
        span = boxes[edge.target].layer - boxes[edge.source].layer
        assert span > 0
        assert len(edge.bends) in (0, span - 1)


@given(graphs(), st.integers(4, 40))
def test_every_layout_is_sound(some: list[NodeView], most: int) -> None:
    graph = Graph.of(some)
    check(arranged(graph, fold(graph, most, alone=0)), some)
    unfolded = arranged(graph, each_alone(graph))
    check(unfolded, some)
    keys = [box.label for box in unfolded.boxes]
    edges = {(keys[edge.source], keys[edge.target]) for edge in unfolded.edges}
    assert edges == {(other, one.key) for one in some for other in one.after}


@given(graphs())
def test_a_layout_is_the_same_every_time(some: list[NodeView]) -> None:
    assert lay_out(some) == lay_out(list(some))


def test_the_sweeps_untangle_what_can_be() -> None:
    tangled = nodes("a: ; b: ; c: ; z: a; y: b; x: c; end: x y z")
    found = lay_out(tangled)
    assert [box.label for box in found.boxes] == ["a", "b", "c", "z", "y", "x", "end"]
    crossed = lay_out(nodes("a: ; b: ; x: b; y: a"))
    first, second, *below = [box.label for box in crossed.boxes]
    assert below == (["x", "y"] if (first, second) == ("b", "a") else ["y", "x"])


def test_a_long_edge_passes_beside_the_boxes() -> None:
    found = lay_out(nodes("a: ; b: a; c: a b"))
    [way] = [edge.bends for edge in found.edges if edge.bends]
    [middle] = [box.row for box in found.boxes if box.label == "b"]
    assert abs(way[0] - middle) >= 0.74


def test_too_many_bends_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layout, "MAX_BENDS", 0)
    assert all(not edge.bends for edge in lay_out(nodes("a: ; b: a; c: a b")).edges)


def test_labels_say_what_a_fold_has_in_common_and_differ() -> None:
    running = JobState.RUNNING
    some = [node(f"r-{n}", kind="r") for n in range(50)]
    some += [node(f"q-{n}", kind="r", state=running) for n in range(50)]
    some += [node(f"sub/r-{n}", kind="r") for n in range(50)]
    assert sorted(box.label for box in lay_out(some).boxes) == ["r ×50", "r ×50 (2)", "sub/r ×50"]
    mixed = [node(f"eu/s{n}/k", kind=f"k{n}") for n in range(200)]
    mixed += [node(f"k{n}", "eu/s0/k", kind=f"k{n}") for n in range(1_200)]
    assert [box.label for box in lay_out(mixed).boxes] == ["eu/ ×200", "1200 kinds ×1,200"]


def test_an_edge_counts_the_dependencies_that_it_stands_for() -> None:
    found = lay_out(mosaic(100))
    counts = {(found.boxes[e.source].kinds, found.boxes[e.target].kinds): e for e in found.edges}
    assert counts[("fit",), ("concat",)].dependencies == 390


@pytest.mark.parametrize("some", [mosaic(250), lanes(8, 40), lanes(3, 300)], ids=len)
def test_real_shapes_are_readable_while_they_run(some: list[NodeView]) -> None:
    check(lay_out(some), some)
    assert len(lay_out(some).boxes) <= 30
    choose = random.Random(1)
    states = [JobState.SUCCEEDED, JobState.RUNNING, JobState.WAITING]
    under_way = [structs.replace(one, state=choose.choice(states)) for one in some]
    found = lay_out(under_way)
    check(found, under_way)
    assert len(found.boxes) <= MAX_FOLDS
    check(lay_out(some, folded=False), some)


def test_no_nodes_have_a_layout_too() -> None:
    assert lay_out([]) == Layout((), (), 0, 0)


def test_a_huge_graph_is_laid_out_within_its_bounds() -> None:
    choose = random.Random(1)
    some = [node(f"k{n}", kind=f"kind{n % 7}") for n in range(1_000)]
    for n in range(1_000, 100_000):
        after = {f"k{choose.randrange(n - 1_000, n)}" for _ in range(2)}
        some.append(node(f"k{n}", *after, kind=f"kind{n % 7}"))
    assert len(lay_out(some).boxes) <= MAX_FOLDS
    first = some[:20_000]
    assert len(lay_out(first, folded=False).boxes) == len(first)
