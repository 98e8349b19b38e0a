"""The graph of a group as SVG: a column for each layer, a box for each job or fold.

Colours are classes, so that the style of the page decides; a box has the place of its node as its
id, so that the browser can colour it anew without a new drawing.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from longshore.core.job_query import term
from longshore.core.layout import Box, Edge, Layout
from longshore.gateway.pages import parts
from longshore.gateway.pages.html import Attribute, Html, h
from longshore.model.group import Condition

_ROW: Final = 50
_BOX: Final = 38
_GAP: Final = 64
_CHAR: Final = 7.4
_SMALL_CHAR: Final = 5.9
_LEAST: Final = 92
_MARGIN: Final = 16
_MOST_CHARS: Final = 34
_MOST_KEYS: Final = 10
_DASHES: Final = {Condition.SUCCEEDED: None, Condition.ENDED: "2 4", Condition.FAILED: "7 4"}


class Drawn(NamedTuple):
    """What a drawing needs beside the layout."""

    root: str
    group: int
    numbers: Mapping[str, int]
    """The numbers of jobs by their keys."""
    path: Sequence[str]
    """The keys on the critical path."""
    plain: bool
    """Whether boxes have no colours: the browser gets these apart."""


def graph(layout: Layout, drawn: Drawn) -> Html:
    """The drawing."""
    columns = _columns(layout)
    width = max((right for _, right in columns), default=200.0) + _MARGIN
    rows = [box.row for box in layout.boxes]
    rows += [row for edge in layout.edges for row in edge.bends]
    height = 2 * _MARGIN + (max(rows, default=0) + 1) * _ROW
    critical = _critical(layout, drawn.path)
    body = [
        [_edge(one, layout, columns, critical) for one in layout.edges],
        [_box(one, at, columns[one.layer], drawn) for at, one in enumerate(layout.boxes)],
    ]
    return h(
        "svg",
        body,
        viewbox=f"0 0 {width:.0f} {height:.0f}",
        width=f"{width:.0f}",
        height=f"{height:.0f}",
        role="group",
        aria_label=f"The graph: {layout.jobs:,} jobs in {layout.layers:,} layers",
    )


def states(layout: Layout) -> str:
    """The states of all boxes in order, for the browser."""
    return ",".join(box.state.value for box in layout.boxes)


def _columns(layout: Layout) -> list[tuple[float, float]]:
    widths = [float(_LEAST)] * layout.layers
    for box in layout.boxes:
        words = max(_CHAR * len(_short(box.label)), _SMALL_CHAR * len(box.state.value))
        widths[box.layer] = max(widths[box.layer], 22 + words)
    columns, left = [], float(_MARGIN)
    for width in widths:
        columns.append((left, left + width))
        left += width + _GAP
    return columns


def _short(text: str) -> str:
    return text if len(text) <= _MOST_CHARS else f"{text[: _MOST_CHARS - 1]}…"


def _middle(row: float) -> float:
    return _MARGIN + row * _ROW + _BOX / 2


def _box(box: Box, at: int, column: tuple[float, float], drawn: Drawn) -> Html:
    left, right = column
    middle = _middle(box.row)
    state = "waiting" if drawn.plain else box.state.value
    outline: dict[str, Attribute] = {"width": f"{right - left:.1f}", "height": _BOX, "rx": 7}
    y = middle - _BOX / 2
    behind = (
        h("rect", x=f"{left + 4:.1f}", y=f"{y + 4:.1f}", class_=f"g-box f-{state}", **outline)
        if len(box.keys) > 1
        else None
    )
    return h(
        "a",
        h("title", _tooltip(box)),
        behind,
        h("rect", x=f"{left:.1f}", y=f"{y:.1f}", class_=f"g-box f-{state}", **outline),
        h("text", _short(box.label), x=f"{left + 10:.1f}", y=f"{middle - 2:.1f}"),
        h(
            "text",
            "" if drawn.plain else box.state.value.replace("_", " "),
            x=f"{left + 10:.1f}",
            y=f"{middle + 12:.1f}",
            class_="g-quiet",
        ),
        href=_where(box, drawn),
        id=f"n-{at}",
    )


def _where(box: Box, drawn: Drawn) -> str:
    if len(box.keys) == 1 and box.keys[0] in drawn.numbers:
        return parts.url(drawn.root, "jobs", drawn.numbers[box.keys[0]])
    kind = f" {term('kind', box.kinds[0])}" if len(box.kinds) == 1 else ""
    return parts.jobs_url(drawn.root, f"group:{drawn.group} state:{box.state.value}{kind}")


def _tooltip(box: Box) -> str:
    more = len(box.keys) - _MOST_KEYS
    keys = [*box.keys[:_MOST_KEYS], *([f"and {more:,} more"] if more > 0 else [])]
    return "\n".join([f"{box.label} ({', '.join(box.kinds[:_MOST_KEYS])})", *keys])


def _critical(layout: Layout, path: Sequence[str]) -> Collection[tuple[int, int]]:
    place = {key: at for at, box in enumerate(layout.boxes) for key in box.keys}
    known = [place[key] for key in path if key in place]
    return set(pairwise(known))


def _edge(
    edge: Edge,
    layout: Layout,
    columns: Sequence[tuple[float, float]],
    critical: Collection[tuple[int, int]],
) -> Html:
    """A curve from box to box, straight where it passes a layer."""
    source, target = layout.boxes[edge.source], layout.boxes[edge.target]
    x, y = columns[source.layer][1], _middle(source.row)
    path = [f"M{x:.0f} {y:.0f}"]
    between = range(source.layer + 1, target.layer)
    stops = [(columns[at], row) for at, row in zip(between, edge.bends, strict=False)]
    for (left, right), row in [*stops, (columns[target.layer], target.row)]:
        to, half = _middle(row), (x + left) / 2
        path.append(f"C{half:.0f} {y:.0f} {half:.0f} {to:.0f} {left:.0f} {to:.0f}")
        path.append(f"H{right:.0f}")
        x, y = right, to
    is_critical = (edge.source, edge.target) in critical
    return h(
        "path",
        d="".join(path[:-1]),
        class_="g-edge g-path" if is_critical else "g-edge",
        stroke_dasharray=_DASHES[target.on],
    )
