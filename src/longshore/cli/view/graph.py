"""The graph of a group as a table, as DOT and as JSON. `svg` draws it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

from rich.text import Text

from longshore.cli.view.groups import MAX_LABEL_CHARS, called, short
from longshore.cli.view.show import Table, View, state_style
from longshore.core.layout import Layout
from longshore.core.text import visible
from longshore.model.group import Condition, Group
from longshore.model.job import JobState

MAX_LINE_CHARS: Final = 80
"""A line of the table is no longer than this."""


class Drawing(NamedTuple):
    """A group and the layout of its nodes."""

    group: Group
    layout: Layout


class Colour(NamedTuple):
    """How a box is filled, and the line around it."""

    fill: str
    line: str


COLOURS: Final = {
    JobState.WAITING: Colour("#f3f4f6", "#9ca3af"),
    JobState.DELAYED: Colour("#ede9fe", "#8b5cf6"),
    JobState.READY: Colour("#cffafe", "#0891b2"),
    JobState.RUNNING: Colour("#dbeafe", "#2563eb"),
    JobState.CANCELLING: Colour("#ffedd5", "#ea580c"),
    JobState.SUCCEEDED: Colour("#dcfce7", "#16a34a"),
    JobState.FAILED: Colour("#fecaca", "#dc2626"),
    JobState.DEPENDENCY_FAILED: Colour("#fff1f2", "#fb7185"),
    JobState.SKIPPED: Colour("#ffffff", "#9ca3af"),
    JobState.CANCELLED: Colour("#fef9c3", "#ca8a04"),
}
"""The colours of the states in pictures."""


def title(drawing: Drawing) -> str:
    """The group, as a picture of it is called."""
    return f"{called(drawing.group)}, {drawing.group.state.value}"


def extent(layout: Layout) -> str:
    """How much a layout shows, in words."""
    folded = "" if len(layout.boxes) == layout.jobs else f", folded to {len(layout.boxes):,} nodes"
    jobs = "1 job" if layout.jobs == 1 else f"{layout.jobs:,} jobs"
    return f"{jobs} in {layout.layers:,} layer{'s' * (layout.layers != 1)}{folded}"


# a table


def graph_view(drawing: Drawing) -> View:
    """A row for each box, layer by layer, with what it depends on."""
    group, layout = drawing
    words = Text(f"{visible(called(group))} ").append(group.state.value, state_style(group.state))
    columns = ("layer", "job", "state", "after", "on")
    table = Table(columns, list(box_rows(layout)), frozenset({"layer"}))
    return View([words.append(f": {extent(layout)}", style=""), table])


def box_rows(layout: Layout, *, with_state: bool = True) -> Iterator[tuple[str, ...]]:
    """The layer, label and state of each box, what it depends on, and on which condition."""
    sources: list[list[str]] = [[] for _ in layout.boxes]
    for edge in layout.edges:
        sources[edge.target].append(layout.boxes[edge.source].label)
    for_label, for_after = _widths(layout, with_state=with_state)
    for box, after in zip(layout.boxes, sources, strict=True):
        on = "" if box.on is Condition.SUCCEEDED else box.on.value
        label = short(box.label, for_label)
        state = (box.state.value,) if with_state else ()
        yield str(box.layer + 1), label, *state, _some(after, for_after), on


def _widths(layout: Layout, *, with_state: bool) -> tuple[int, int]:
    """How many characters there are for a label, and for what it depends on."""
    states = max((len(box.state.value) + 2 for box in layout.boxes), default=0) * with_state
    room = MAX_LINE_CHARS - len("layer  ") - len("  ") - states - len("  failed")
    labels = max((len(box.label) for box in layout.boxes), default=0)
    for_label = min(labels, MAX_LABEL_CHARS, room // 2)
    return for_label, room - for_label


def _some(labels: Sequence[str], most: int) -> str:
    """As many labels as there is room for, at least one, and how many more there are."""
    if not labels:
        return ""
    room = most - len(" +99")
    shown = short(labels[0], room)
    for number, label in enumerate(labels[1:], start=1):
        if len(shown) + len(label) + 2 > room:
            return f"{shown} +{len(labels) - number}"
        shown += f", {label}"
    return shown


# DOT


def graph_dot(drawing: Drawing) -> str:
    """The graph for the tools of Graphviz."""
    layout = drawing.layout
    lines = [
        "digraph longshore {",
        f"  label={_quoted(title(drawing))}; labelloc=t; rankdir=LR;",
        '  node [shape=box, style="rounded,filled", fontname="monospace"];',
    ]
    layers: list[list[str]] = [[] for _ in range(layout.layers)]
    for number, box in enumerate(layout.boxes):
        colour = COLOURS[box.state]
        label = _quoted(f"{box.label}\n{box.state.value}")
        lines.append(
            f'  n{number} [label={label}, fillcolor="{colour.fill}", color="{colour.line}"];'
        )
        layers[box.layer].append(f"n{number};")
    lines += [f"  {{ rank=same; {' '.join(some)} }}" for some in layers]
    for edge in layout.edges:
        style = _EDGE_STYLES[layout.boxes[edge.target].on]
        lines.append(f"  n{edge.source} -> n{edge.target} [style={style}];")
    return "\n".join([*lines, "}"])


_EDGE_STYLES: Final = {
    Condition.SUCCEEDED: "solid",
    Condition.ENDED: "dotted",
    Condition.FAILED: "dashed",
}


def _quoted(text: str) -> str:
    escaped = visible(text).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


# JSON


def graph_json(drawing: Drawing) -> dict[str, Any]:
    """The layout for programs. Edges name nodes by their places in `nodes`."""
    group, layout = drawing
    return {
        "group": {
            "id": str(group.id),
            "number": group.number,
            "name": group.name,
            "state": group.state.value,
        },
        "jobs": layout.jobs,
        "layers": layout.layers,
        "nodes": [
            {
                "label": box.label,
                "layer": box.layer,
                "position": box.position,
                "row": round(box.row, 3),
                "state": box.state.value,
                "on": box.on.value,
                "count": len(box.keys),
                "kinds": box.kinds,
                "keys": box.keys,
            }
            for box in layout.boxes
        ],
        "edges": [
            {"from": edge.source, "to": edge.target, "count": edge.dependencies}
            for edge in layout.edges
        ],
    }
