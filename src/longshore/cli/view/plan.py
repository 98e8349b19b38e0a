"""What a file of a group describes, before anything is submitted: as a table and as JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.text import Text

from longshore.cli.view.graph import box_rows
from longshore.cli.view.show import Table, View
from longshore.client import jsonable
from longshore.core.folding import MAX_ALONE
from longshore.core.graph import layers
from longshore.core.layout import Layout, lay_out
from longshore.model.group import GATE, MAP, SCOPE, Condition, GroupHead, Node, NodeView
from longshore.model.job import JobState, Submission
from longshore.payload.maps import read_map
from longshore.payload.values import unpack


def plan_json(head: GroupHead, nodes: Sequence[Node]) -> dict[str, Any]:
    """What a file describes, in the order in which it would start."""
    layer = _layer_of(nodes)
    return {
        "name": head.name,
        "fail_fast": head.fail_fast,
        "labels": list(head.labels),
        "jobs": [
            {
                "layer": layer[node.key],
                "key": node.key,
                "kind": node.job.kind,
                **_plan_arguments(node),
                "after": [nodes[place].key for place in node.after],
                "scope": None if node.scope is None else nodes[node.scope].key,
                "on": node.on.value,
                "queue": node.job.queue,
            }
            for node in nodes
        ],
    }


def plan_view(head: GroupHead, nodes: Sequence[Node]) -> View:
    """What a file describes, in layers: those of one depend only on those above.

    Of many jobs, those that are alike are one row.
    """
    if len(nodes) > MAX_ALONE:
        return _folded(head, nodes)
    layer = _layer_of(nodes)
    rows = [
        (
            str(layer[node.key]),
            node.key,
            _kind_words(node.job),
            ", ".join(nodes[place].key for place in node.after),
            node.on.value if node.on is not Condition.SUCCEEDED else "",
        )
        for node in sorted(nodes, key=lambda node: layer[node.key])
    ]
    title = _title(head, nodes, max(layer.values(), default=0))
    return View([title, Table(("layer", "key", "kind", "after", "on"), rows, frozenset({"layer"}))])


def _folded(head: GroupHead, nodes: Sequence[Node]) -> View:
    layout = _laid_out(nodes)
    title = _title(head, nodes, layout.layers)
    if len(layout.boxes) < len(nodes):
        title.append(f" (folded to {len(layout.boxes):,} rows; --json has every job)")
    rows = list(box_rows(layout, with_state=False))
    return View([title, Table(("layer", "job", "after", "on"), rows, frozenset({"layer"}))])


def _title(head: GroupHead, nodes: Sequence[Node], layers: int) -> Text:
    jobs, edges = len(nodes), sum(len(node.after) for node in nodes)
    words = f"{head.name}: {jobs:,} job{'s' * (jobs != 1)} in {layers:,} layer{'s' * (layers != 1)}"
    depend = f"{edges:,} dependenc{'y' if edges == 1 else 'ies'}"
    return Text(f"{words}, {depend}; nothing was submitted")


def _laid_out(nodes: Sequence[Node]) -> Layout:
    """The layout that the group would have before any of it runs."""
    return lay_out(
        [
            NodeView(
                key=node.key,
                job=node.job.id,
                number=place,
                kind=_kind_words(node.job),
                state=JobState.WAITING,
                after=tuple(nodes[at].key for at in node.after),
                on=node.on,
                scope=None if node.scope is None else nodes[node.scope].key,
            )
            for place, node in enumerate(nodes)
        ]
    )


def _plan_arguments(node: Node) -> dict[str, Any]:
    """The arguments of a job, or of all jobs of a map and what it goes over."""
    if node.job.kind != MAP:
        return {"args": jsonable.plain(unpack(node.job.args))}
    over, pattern = read_map(node.job.args)
    mapped = {"kind": pattern.job.kind, "parameter": pattern.parameter, "over": over}
    return {"args": jsonable.plain(unpack(pattern.job.args)), "map": jsonable.plain(mapped)}


def _kind_words(job: Submission) -> str:
    """What a node of a group is, in a table."""
    if job.kind == GATE:
        return "(gate)"
    if job.kind == SCOPE:
        return "(sub-group)"
    if job.kind != MAP:
        return job.kind
    over, pattern = read_map(job.args)
    return (
        f"{pattern.job.kind} ×{len(over):,}" if isinstance(over, list) else f"{pattern.job.kind} ×…"
    )


def _layer_of(nodes: Sequence[Node]) -> Mapping[str, int]:
    edges = {node.key: [nodes[place].key for place in node.after] for node in nodes}
    for node in nodes:
        if node.scope is not None:
            edges[nodes[node.scope].key].append(node.key)
    return {key: number for number, some in enumerate(layers(edges), 1) for key in some}
