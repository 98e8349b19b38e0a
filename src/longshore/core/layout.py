"""Where the nodes of a group are drawn: one layout for the terminal, for pictures and for pages.

Theory. A node's layer is the length of the longest path down to it, so each edge goes from a lower
layer to a higher one. An edge that passes layers gets a *bend* in each of them, so that it has a
way between the boxes. The order within a layer comes from sweeps: each box goes to the mean place
of its neighbours, first along the edges, then against them, and the order with the fewest crossings
stays. Then each box gets a row near those of its neighbours.

Cost. All steps are linear in nodes and edges, apart from sorting, and the work of sweeps is
bounded. 100,000 nodes with 200,000 edges take about one second folded, and four unfolded.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from longshore.core.folding import Fold, Graph, each_alone, fold, prefix
from longshore.core.grown import with_scopes
from longshore.model.group import Condition, NodeView
from longshore.model.job import JobState

SWEEPS: Final = 12
"""How often the order within the layers is improved."""
MAX_SWEPT: Final = 1_000_000
"""How many boxes and edges all sweeps together look at. Larger graphs get fewer sweeps, or one."""
MAX_BENDS: Final = 50_000
"""If long edges would need more bends than this, none has any."""
MAX_COUNTED: Final = 5_000
"""In a graph with more edges nobody counts crossings, and the order of the last sweep stays."""
_BEND_ROWS: Final = 0.5
"""The room of a bend within its layer; that of a box is 1."""


class Box(NamedTuple):
    """One node, or several that are drawn as one. No two boxes have the same label."""

    label: str
    layer: int
    position: int
    """The place in the order of its layer, from 0 on."""
    row: float
    """Where it is within its layer, 0 or more. Boxes of one layer are at least 1 apart."""
    state: JobState
    on: Condition
    kinds: tuple[str, ...]
    keys: tuple[str, ...]


class Edge(NamedTuple):
    """`target` depends on `source`; both are places in `Layout.boxes`."""

    source: int
    target: int
    dependencies: int
    """How many dependencies between nodes it stands for."""
    bends: tuple[float, ...]
    """The rows at which it passes the layers in between, or nothing."""


class Layout(NamedTuple):
    """Boxes by layer and position, and the edges between them."""

    boxes: tuple[Box, ...]
    edges: tuple[Edge, ...]
    layers: int
    jobs: int


def lay_out(nodes: Sequence[NodeView], *, folded: bool = True) -> Layout:
    """The layout of a group's nodes, given in the group's order.

    Folded, it has at most `folding.MAX_FOLDS` boxes.
    """
    graph = Graph.of(with_scopes(nodes))
    return arranged(graph, fold(graph) if folded else each_alone(graph))


def arranged(graph: Graph, folds: Sequence[Fold]) -> Layout:
    """The layout of a graph that is folded like this."""
    counts = _edges(graph, folds)
    links = _Links(folds, counts)
    order = _ordered(links)
    rows = _rows(links, order)
    return _layout(graph.nodes, folds, links, order, rows, counts)


def _edges(graph: Graph, folds: Sequence[Fold]) -> Counter[tuple[int, int]]:
    """The edges between folds, each with the number of dependencies that it stands for."""
    inside = [0] * len(graph.nodes)
    for number, one in enumerate(folds):
        for place in one.members:
            inside[place] = number
    pairs = (
        (inside[other], inside[place]) for place, after in enumerate(graph.after) for other in after
    )
    # Within a band of layers, edges are not drawn.
    return Counter(pair for pair in pairs if folds[pair[0]].layer < folds[pair[1]].layer)


class _Links:
    """The folds and the bends, by numbers, and how they are linked from layer to layer."""

    def __init__(self, folds: Sequence[Fold], edges: Iterable[tuple[int, int]]) -> None:
        self.boxes = len(folds)
        self.layer = [one.layer for one in folds]
        self.above: list[list[int]] = [[] for _ in folds]
        self.below: list[list[int]] = [[] for _ in folds]
        self.ways: dict[tuple[int, int], list[int]] = {}
        self._bends: dict[tuple[int, int], int] = {}
        pairs = list(edges)
        spans = sum(self.layer[target] - self.layer[source] - 1 for source, target in pairs)
        for source, target in pairs:
            self._add(source, target, has_bends=spans <= MAX_BENDS)

    def _add(self, source: int, target: int, *, has_bends: bool) -> None:
        between = range(self.layer[source] + 1, self.layer[target]) if has_bends else ()
        way = [source]
        for layer in between:
            way.append(self._bend(source, layer, way[-1]))
        self._link(way[-1], target)
        self.ways[source, target] = way[1:]

    def _bend(self, source: int, layer: int, before: int) -> int:
        """The bend in a layer that all edges from this source share."""
        found = self._bends.get((source, layer))
        if found is None:
            found = self._bends[source, layer] = len(self.layer)
            self.layer.append(layer)
            self.above.append([])
            self.below.append([])
            self._link(before, found)
        return found

    def _link(self, upper: int, lower: int) -> None:
        self.above[lower].append(upper)
        self.below[upper].append(lower)

    def size(self) -> int:
        """How many boxes, bends and links there are."""
        return len(self.layer) + sum(map(len, self.above))

    def in_layers(self) -> list[list[int]]:
        """Everything by layer, in the order of the numbers."""
        layers: list[list[int]] = [[] for _ in range(max(self.layer, default=-1) + 1)]
        for number, layer in enumerate(self.layer):
            layers[layer].append(number)
        return layers


# the order within layers


def _ordered(links: _Links) -> list[list[int]]:
    """The layers in the order with the fewest crossings that the sweeps found."""
    size = links.size()
    layers = links.in_layers()
    best, fewest = layers, _crossings(links, layers)
    for sweep in range(_passes(size, SWEEPS)):
        if not fewest:
            break
        layers = _swept(links, layers, down=sweep % 2 == 0)
        crossings = _crossings(links, layers)
        if crossings <= fewest:
            best, fewest = layers, crossings
    return best


def _passes(size: int, most: int) -> int:
    return max(1, min(most, MAX_SWEPT // max(1, size)))


def _swept(links: _Links, layers: list[list[int]], *, down: bool) -> list[list[int]]:
    """The layers, each sorted by where its neighbours in those before it are."""
    near = links.above if down else links.below
    at = [0.0] * len(links.layer)
    for layer in layers:
        _place(layer, at)
    swept = []
    for layer in layers if down else reversed(layers):
        wanted = {one: _mean([at[other] for other in near[one]], at[one]) for one in layer}
        swept.append(sorted(layer, key=wanted.__getitem__))
        _place(swept[-1], at)
    return swept if down else swept[::-1]


def _place(layer: Sequence[int], at: list[float]) -> None:
    for position, one in enumerate(layer):
        at[one] = (position + 0.5) / len(layer)


def _mean(values: Sequence[float], default: float) -> float:
    return sum(values) / len(values) if values else default


def _crossings(links: _Links, layers: Sequence[Sequence[int]]) -> int:
    """How many links cross, or 1 in a graph that is too large to count."""
    if links.size() > MAX_COUNTED:
        return 1
    at = {one: position for layer in layers for position, one in enumerate(layer)}
    found = 0
    for layer in layers[1:]:
        passed: list[int] = []
        for one in layer:
            ends = sorted(at[other] for other in links.above[one])
            found += sum(len(passed) - bisect_right(passed, end) for end in ends)
            for end in ends:
                insort(passed, end)
    return found


# the rows


def _rows(links: _Links, layers: Sequence[Sequence[int]]) -> list[float]:
    """A row for each box and bend: in the order of its layer, near those of its neighbours."""
    rows = [0.0] * len(links.layer)
    for layer in layers:
        for one, row in zip(layer, _apart(links, layer, [0.0] * len(layer)), strict=True):
            rows[one] = row
    both = [[*above, *below] for above, below in zip(links.above, links.below, strict=True)]
    for near in (links.above, links.below, both)[: _passes(links.size(), 3)]:
        for layer in layers if near is not links.below else reversed(layers):
            wanted = [_mean([rows[other] for other in near[one]], rows[one]) for one in layer]
            for one, row in zip(layer, _apart(links, layer, wanted), strict=True):
                rows[one] = row
    least = min(rows, default=0.0)
    return [row - least for row in rows]


def _apart(links: _Links, layer: Sequence[int], wanted: Sequence[float]) -> list[float]:
    """Rows as near to the wanted ones as they can be without overlap, in this order.

    What is too near to its predecessor moves together with it, to the mean of what both want.
    """
    rooms = [1.0 if one < links.boxes else _BEND_ROWS for one in layer]
    offsets = [0.0]
    for room, following in pairwise(rooms):
        offsets.append(offsets[-1] + (room + following) / 2)
    blocks: list[tuple[float, int]] = []
    for row, offset in zip(wanted, offsets, strict=False):
        total, count = row - offset, 1
        while blocks and blocks[-1][0] / blocks[-1][1] >= total / count:
            total, count = total + blocks[-1][0], count + blocks[-1][1]
            blocks.pop()
        blocks.append((total, count))
    means = [total / count for total, count in blocks for _ in range(count)]
    return [mean + offset for mean, offset in zip(means, offsets, strict=False)]


# the answer


def _layout(
    nodes: Sequence[NodeView],
    folds: Sequence[Fold],
    links: _Links,
    order: Sequence[Sequence[int]],
    rows: Sequence[float],
    counts: Counter[tuple[int, int]],
) -> Layout:
    boxes: list[Box] = []
    numbers: dict[int, int] = {}
    labels: Counter[str] = Counter()
    for layer in order:
        inside = [one for one in layer if one < links.boxes]
        for position, one in enumerate(inside):
            numbers[one] = len(boxes)
            members = [nodes[place] for place in folds[one].members]
            label = _unique(_label(members), labels)
            boxes.append(_box(members, label, folds[one].layer, position, rows[one]))
    edges = (
        Edge(numbers[a], numbers[b], count, tuple(rows[bend] for bend in links.ways[a, b]))
        for (a, b), count in counts.items()
    )
    return Layout(tuple(boxes), tuple(sorted(edges)), len(order), len(nodes))


def _box(members: Sequence[NodeView], label: str, layer: int, position: int, row: float) -> Box:
    first = members[0]
    kinds = tuple(dict.fromkeys(node.kind for node in members))
    keys = tuple(node.key for node in members)
    return Box(label, layer, position, row, first.state, first.on, kinds, keys)


def _label(members: Sequence[NodeView]) -> str:
    """The key of one node; of several, what they have in common and how many they are."""
    if len(members) == 1:
        return members[0].key
    kinds = {node.kind for node in members}
    scopes = {node.scope for node in members}
    scope = members[0].scope
    if len(kinds) == len(scopes) == 1 and scope is not None and _are_elements(members):
        return f"{scope} ×{len(members):,}"
    subgroup = _shared_prefix({prefix(node.key) for node in members})
    kind = members[0].kind if len(kinds) == 1 else "" if subgroup else f"{len(kinds)} kinds"
    return f"{subgroup}{kind} ×{len(members):,}"


def _are_elements(members: Sequence[NodeView]) -> bool:
    """Whether these are elements of a map, whose keys are numbers below that of the map."""
    return all(node.key.rpartition("/")[2].isdecimal() for node in members)


def _shared_prefix(prefixes: set[str]) -> str:
    """The innermost sub-group that has all of these, with its slash, or nothing."""
    shared = []
    for parts in zip(*(one.split("/") for one in prefixes if one), strict=False):
        if len(set(parts)) > 1:
            break
        shared.append(f"{parts[0]}/")
    return "" if "" in prefixes else "".join(shared)


def _unique(label: str, seen: Counter[str]) -> str:
    seen[label] += 1
    return label if seen[label] == 1 else f"{label} ({seen[label]})"
