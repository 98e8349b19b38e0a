"""Groups that grew, as graphs: what comes after what, with scopes as edges.

A node waits for what is in the scope of those it depends on, though no edge says so. For a picture
and for the critical path these edges are drawn: from a job to what it added, from what it added to
those that depend on the job, and from the jobs of a sub-group to the node that stands for it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from heapq import heapify, heappop, heappush
from typing import Final

from msgspec import structs

from longshore.model.group import SCOPE, NodeView

MAX_DRAWN_EDGES: Final = 100_000
"""If more edges would be drawn, those from added jobs to others are left out."""

Edges = dict[str, tuple[str, ...]]


def with_scopes(nodes: Sequence[NodeView]) -> list[NodeView]:
    """The nodes with scopes as edges, in an order in which each comes after what it depends on."""
    if not any(node.scope is not None for node in nodes):
        return list(nodes)
    edges = _drawn(nodes)
    known = {node.key: node for node in nodes}
    return [structs.replace(known[key], after=edges[key]) for key in _in_order(edges)]


def _drawn(nodes: Sequence[NodeView]) -> Edges:
    known = {node.key: node for node in nodes}
    members: dict[str, list[str]] = {}
    for node in nodes:
        if node.scope in known:
            members.setdefault(str(node.scope), []).append(node.key)
    lasts = _lasts(nodes, members, known)
    edges: Edges = {}
    for node in nodes:
        after = tuple(last for key in node.after for last in lasts.get(key, (key,)))
        if node.kind == SCOPE:
            inside = members.get(node.key, ())
            after += tuple(last for key in inside for last in lasts.get(key, (key,)))
        elif not node.after:
            after = _near(node, known)
        edges[node.key] = tuple(dict.fromkeys(after))
    if sum(map(len, edges.values())) > MAX_DRAWN_EDGES:
        return {node.key: _near(node, known) for node in nodes}
    return edges


def _near(node: NodeView, known: Mapping[str, NodeView]) -> tuple[str, ...]:
    """What a node depends on, with the job that added it."""
    scope = known.get(node.scope or "")
    return node.after if scope is None or scope.kind == SCOPE else (*node.after, scope.key)


def _lasts(
    nodes: Sequence[NodeView], members: Mapping[str, list[str]], known: Mapping[str, NodeView]
) -> dict[str, tuple[str, ...]]:
    """For each job that added others, those at whose ends it is closed; the inner jobs first.

    A job is added after the one that adds it, so those in its scope come behind it.
    """
    found: dict[str, tuple[str, ...]] = {}
    for node in reversed(nodes):
        inside = members.get(node.key)
        if inside is None or node.kind == SCOPE:
            continue
        depended_on = {key for one in inside for key in known[one].after}
        ends = (key for key in inside if key not in depended_on)
        found[node.key] = tuple(last for key in ends for last in found.get(key, (key,)))
    return found


def _in_order(edges: Edges) -> list[str]:
    """The keys, each after what it depends on; of several, the first in the group's order."""
    places = {key: place for place, key in enumerate(edges)}
    keys = list(edges)
    dependents: dict[str, list[str]] = {}
    missing = dict.fromkeys(keys, 0)
    for key, after in edges.items():
        for other in after:
            if other in places:
                dependents.setdefault(other, []).append(key)
                missing[key] += 1
    ready = [places[key] for key in keys if not missing[key]]
    heapify(ready)
    order: list[str] = []
    while ready:
        key = keys[heappop(ready)]
        order.append(key)
        for other in dependents.get(key, ()):
            missing[other] -= 1
            if not missing[other]:
                heappush(ready, places[other])
    return order
