"""Folding: which nodes of a group are drawn as one, and which never are."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st
from tests.unit.core.graphs import graphs, node, nodes

from longshore.core.folding import MAX_ALONE, MAX_FOLDS, Graph, each_alone, fold
from longshore.model.group import NodeView
from longshore.model.job import JobState


def folded(some: Sequence[NodeView], most: int = MAX_FOLDS) -> list[list[str]]:
    """The keys of each fold, however few nodes there are."""
    return [
        [some[place].key for place in one.members] for one in fold(Graph.of(some), most, alone=0)
    ]


def test_the_layer_of_a_node_is_the_longest_path_to_it() -> None:
    graph = Graph.of(nodes("a: ; b: a; c: ; d: b c; e: c"))
    assert graph.layers == [0, 1, 0, 2, 1]


def test_what_is_not_among_the_nodes_before_is_no_dependency() -> None:
    assert Graph.of(nodes("a: b; b: a x")).after == [(), (0,)]


def test_nodes_with_the_same_dependencies_and_dependents_are_one() -> None:
    fan = [node("a"), *(node(f"r-{n}", "a", kind="r") for n in range(100))]
    fan.append(node("z", *(f"r-{n}" for n in range(100))))
    assert [len(keys) for keys in folded(fan)] == [1, 100, 1]


def test_a_small_graph_is_not_folded() -> None:
    few = [node(f"r-{n}", kind="r") for n in range(MAX_ALONE)]
    assert fold(Graph.of(few)) == each_alone(Graph.of(few))
    assert len(fold(Graph.of([*few, node("r-last", kind="r")]))) == 1


def test_other_kinds_states_conditions_and_subgroups_stay_apart() -> None:
    root = node("a", state=JobState.FAILED)
    alike = [node(key, "a", kind="r") for key in ("b", "c")]
    others = [
        node("kind", "a", kind="s"),
        node("state", "a", kind="r", state=JobState.RUNNING),
        node("on", "a", kind="r", on="failed"),
        node("sub/r", "a", kind="r"),
    ]
    assert folded([root, *alike, *others]) == [
        ["a"],
        ["b", "c"],
        ["kind"],
        ["state"],
        ["on"],
        ["sub/r"],
    ]


def test_parallel_chains_fold_to_one_chain() -> None:
    some = [node("a")]
    for n in range(60):
        some += [node(f"x{n}", "a", kind="x"), node(f"y{n}", f"x{n}", kind="y")]
    assert [len(keys) for keys in folded(some)] == [1, 60, 60]


def test_subgroups_fold_before_kinds_do() -> None:
    """With too many kinds a sub-group is one box a layer, the outer one if there are many."""
    some = [node(f"eu/k{n}", kind=f"k{n}") for n in range(80)]
    some += [node(f"us/k{n}", kind=f"k{n}") for n in range(80)]
    assert [(keys[0], len(keys)) for keys in folded(some)] == [("eu/k0", 80), ("us/k0", 80)]
    deep = [node(f"eu/s{n}/k", kind=f"k{n}") for n in range(120)]
    assert [len(keys) for keys in folded(deep)] == [120]


def test_many_kinds_fold_to_their_layer() -> None:
    some = [node(f"k{n}", kind=f"k{n}") for n in range(MAX_FOLDS + 1)]
    some.append(node("failed", kind="k1", state=JobState.FAILED))
    assert [len(keys) for keys in folded(some)] == [MAX_FOLDS + 1, 1]


def test_a_long_chain_folds_to_bands_of_layers() -> None:
    chain = [node("k0")]
    chain += [node(f"k{n}", f"k{n - 1}") for n in range(1, 100_000)]
    folds = fold(Graph.of(chain))
    assert len(folds) == MAX_FOLDS
    assert [one.layer for one in folds] == list(range(MAX_FOLDS))


@given(graphs(), st.integers(1, 40))
def test_every_node_is_in_one_fold_and_none_joins_states(some: list[NodeView], most: int) -> None:
    graph = Graph.of(some)
    folds = fold(graph, most, alone=0)
    marks = [{(some[place].state, some[place].on) for place in one.members} for one in folds]
    assert sorted(place for one in folds for place in one.members) == list(range(len(some)))
    assert all(len(one) == 1 for one in marks)
    assert len(folds) <= max(most, len(set().union(*marks)))
