"""Folds the nodes of a group, so that a large graph can be looked at.

Theory. A *fold* is a set of nodes that is drawn as one. There are several ways to fold, finer ones
first: nodes with the same dependencies and dependents, then nodes that depend on alike ones, then
sub-groups (the `a` of `a/b`), kinds, whole layers, and at last bands of layers. `fold` takes the
first way that leaves few enough. Nodes of one fold always have the same state, the same condition
and, except in bands, the same layer. So a fold never hides a failure, and edges between folds still
go from a lower layer to a higher one.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Final, NamedTuple

from longshore.model.group import NodeView

MAX_ALONE: Final = 20
"""A graph of so few nodes is not folded."""
MAX_FOLDS: Final = 100
"""How many nodes a folded graph has at most."""

Keys = Iterator[Hashable]
"""For each node what names its fold: nodes with equal ones are drawn as one."""


class Fold(NamedTuple):
    """Nodes that are drawn as one, by their places in the group's order."""

    layer: int
    members: tuple[int, ...]


class Graph(NamedTuple):
    """The nodes of a group; edges, layers and marks by their places.

    Nodes have the same mark if they have the same state and condition.
    """

    nodes: Sequence[NodeView]
    after: list[tuple[int, ...]]
    dependents: list[list[int]]
    layers: list[int]
    marks: list[int]

    @classmethod
    def of(cls, nodes: Sequence[NodeView]) -> Graph:
        """The graph of nodes in the group's order: each comes after those that it depends on.

        The layer of a node is the length of the longest path down to it. Dependencies that are not
        among the nodes before it are left out.
        """
        places: dict[str, int] = {}
        after: list[tuple[int, ...]] = []
        dependents: list[list[int]] = [[] for _ in nodes]
        layers: list[int] = []
        for place, node in enumerate(nodes):
            wanted = tuple(sorted({places[key] for key in node.after if key in places}))
            for other in wanted:
                dependents[other].append(place)
            after.append(wanted)
            layers.append(max((layers[other] + 1 for other in wanted), default=0))
            places[node.key] = place
        numbers: dict[Hashable, int] = {}
        marks = [numbers.setdefault((node.state, node.on), len(numbers)) for node in nodes]
        return cls(nodes, after, dependents, layers, marks)


def each_alone(graph: Graph) -> list[Fold]:
    """Every node as a fold of its own."""
    return [Fold(layer, (place,)) for place, layer in enumerate(graph.layers)]


def fold(graph: Graph, most: int = MAX_FOLDS, alone: int = MAX_ALONE) -> list[Fold]:
    """The folds, at most so many, in the order of their first nodes.

    Each way to fold costs one look at each node and edge. `most` is at least the number of states
    times that of conditions.
    """
    if len(graph.nodes) <= alone:
        return each_alone(graph)
    for way in _WAYS:
        folds = _folded(graph.layers, way(graph), most)
        if folds is not None:
            return folds
    return _bands(graph, most)


def _folded(layers: Sequence[int], keys: Keys, most: int) -> list[Fold] | None:
    """The folds that the keys make, or nothing as soon as they are too many."""
    members: dict[Hashable, list[int]] = {}
    for place, key in enumerate(keys):
        members.setdefault(key, []).append(place)
        if len(members) > most:
            return None
    return [Fold(layers[some[0]], tuple(some)) for some in members.values()]


# ways to fold


def prefix(key: str) -> str:
    """The sub-group in which a key lives: `a/b` of `a/b/c`, nothing of `c`."""
    return key.rpartition("/")[0]


def _twins(graph: Graph) -> Keys:
    """Nodes of one sub-group, kind and mark with the same dependencies and dependents."""
    for place, node in enumerate(graph.nodes):
        around = (graph.after[place], tuple(graph.dependents[place]))
        yield (prefix(node.key), node.kind, graph.marks[place], around)


def _alike(first: Keys, graph: Graph) -> Keys:
    """Nodes that a first look cannot tell apart, nor those around them."""
    numbers: dict[Hashable, int] = {}
    seen = [numbers.setdefault(key, len(numbers)) for key in first]
    for own, after, dependents in zip(seen, graph.after, graph.dependents, strict=True):
        yield (own, frozenset(seen[one] for one in after), frozenset(seen[i] for i in dependents))


def _by_kind(graph: Graph) -> Keys:
    return zip(graph.layers, graph.marks, (node.kind for node in graph.nodes), strict=True)


def _by_kind_within_subgroups(graph: Graph) -> Keys:
    return zip(_by_kind(graph), (prefix(node.key) for node in graph.nodes), strict=True)


def _by_subgroup(graph: Graph, name: Callable[[str], str] = prefix) -> Keys:
    """Nodes of a sub-group whatever their kinds are; those of none by their kinds."""
    for place, node in enumerate(graph.nodes):
        within = name(node.key)
        yield (graph.layers[place], graph.marks[place], within, "" if within else node.kind)


def _by_outer_subgroup(graph: Graph) -> Keys:
    return _by_subgroup(graph, lambda key: key.partition("/")[0] if "/" in key else "")


def _by_layer(graph: Graph) -> Keys:
    return zip(graph.layers, graph.marks, strict=True)


_WAYS: Final[Sequence[Callable[[Graph], Keys]]] = (
    _twins,
    lambda graph: _alike(_by_kind_within_subgroups(graph), graph),
    _by_subgroup,
    _by_outer_subgroup,
    lambda graph: _alike(_by_kind(graph), graph),
    _by_kind,
    _by_layer,
)
"""Finer ones first."""


def _bands(graph: Graph, most: int) -> list[Fold]:
    """One fold for each mark in each band of layers that follow each other."""
    bands = max(1, most // len(set(graph.marks)))
    width = -(-(max(graph.layers) + 1) // bands)
    layers = [layer // width for layer in graph.layers]
    folds = _folded(layers, zip(layers, graph.marks, strict=True), len(graph.nodes))
    assert folds is not None, "there are no more folds than nodes"
    return folds
