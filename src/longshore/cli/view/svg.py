"""Draws the graph of a group as SVG: a column for each layer, a box for each node or fold."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple
from xml.sax.saxutils import escape

from rich.cells import cell_len

from longshore.cli.view.graph import COLOURS, Drawing, extent, title
from longshore.cli.view.groups import short
from longshore.core.layout import Box, Edge, Layout
from longshore.core.text import visible
from longshore.model.group import Condition
from longshore.model.job import JobState

_MARGIN: Final = 24
_HEAD: Final = 68
"""The height of the title and the line below it, with the room above them."""
_ROW: Final = 54
_BOX: Final = 40
_GAP: Final = 72
_CHAR: Final = 7.3
_SMALL_CHAR: Final = 6.6
_LEAST_BOX: Final = 96
_LEAST_WIDTH: Final = 480
_ENTRY: Final = 22
"""The height of a line of the legend."""
_MAX_TITLE_CHARS: Final = 60
_MOST_KEYS: Final = 10
"""How many keys of a fold its tooltip names."""

_NO_XML: Final = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_DASHES: Final = {Condition.SUCCEEDED: "", Condition.ENDED: "2 4", Condition.FAILED: "7 4"}
_CONDITIONS: Final = {
    Condition.ENDED: "runs when all have ended",
    Condition.FAILED: "runs when one has failed",
}
_STYLE: Final = """\
text { font-family: system-ui, sans-serif; font-size: 12px; fill: #1f2937 }
.title { font-size: 17px; font-weight: 600 }
.quiet { font-size: 11px; fill: #4b5563 }
.key { font-family: ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace }
.edge { fill: none; stroke: #94a3b8; stroke-width: 1.4 }"""
_ARROW: Final = (
    '<marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" '
    'orient="auto"><path d="M 0 0.5 L 8 4 L 0 7.5 z" fill="#94a3b8"/></marker>'
)


class Column(NamedTuple):
    """From where to where the boxes of a layer go."""

    left: float
    right: float


def graph_svg(drawing: Drawing) -> str:
    """The picture, as a document that needs nothing else."""
    layout = drawing.layout
    columns = _columns(layout)
    width = max([_LEAST_WIDTH, *(column.right + _MARGIN for column in columns)])
    legend, below = _legend(layout, width)
    rows = [box.row for box in layout.boxes]
    rows += [row for edge in layout.edges for row in edge.bends]
    height = below + (max(rows) + 1) * _ROW if rows else below + _MARGIN
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" role="img" width="{width:.0f}" '
            f'height="{height:.0f}" viewBox="0 0 {width:.0f} {height:.0f}">',
            f"<title>{_escaped(title(drawing))}</title>",
            f"<style>{_STYLE}</style>",
            f"<defs>{_ARROW}</defs>",
            '<rect width="100%" height="100%" fill="#ffffff"/>',
            _text(_MARGIN, 36, short(title(drawing), _MAX_TITLE_CHARS), "title"),
            _text(_MARGIN, 56, extent(layout), "quiet"),
            *legend,
            *(_edge(edge, layout, columns, below) for edge in layout.edges),
            *(_box(box, columns[box.layer], below) for box in layout.boxes),
            "</svg>",
        ]
    )


def _columns(layout: Layout) -> list[Column]:
    widths = [float(_LEAST_BOX)] * layout.layers
    for box in layout.boxes:
        words = max(_CHAR * cell_len(short(box.label)), _SMALL_CHAR * len(box.state.value))
        widths[box.layer] = max(widths[box.layer], 20 + words)
    columns: list[Column] = []
    left = float(_MARGIN)
    for width in widths:
        columns.append(Column(left, left + width))
        left += width + _GAP
    return columns


def _box(box: Box, column: Column, top: float) -> str:
    colour = COLOURS[box.state]
    middle, width = _middle(box.row, top), column.right - column.left
    rect = _rect(column.left, middle - _BOX / 2, width, _BOX, 8, colour.fill, colour.line)
    # A second outline behind a fold: it is a stack.
    behind = _rect(column.left + 4, middle - _BOX / 2 + 4, width, _BOX, 8, colour.fill, colour.line)
    return "".join(
        [
            f"<g><title>{_escaped(_tooltip(box))}</title>",
            behind if len(box.keys) > 1 else "",
            rect,
            _text(column.left + 10, middle - 2, short(box.label), "key"),
            _text(column.left + 10, middle + 13, box.state.value, "quiet"),
            "</g>",
        ]
    )


def _rect(x: float, y: float, w: float, h: float, round: int, fill: str, line: str) -> str:
    return (
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{w:.1f}" height="{h:.1f}" rx="{round}" '
        f'fill="{fill}" stroke="{line}" stroke-width="1.5"/>'
    )


def _tooltip(box: Box) -> str:
    more = len(box.keys) - _MOST_KEYS
    keys = [*box.keys[:_MOST_KEYS], *([f"and {more:,} more"] if more > 0 else [])]
    kinds = ", ".join(short(kind) for kind in box.kinds[:_MOST_KEYS])
    return "\n".join([f"{box.label}: {box.state.value} ({kinds})", *keys])


def _middle(row: float, top: float) -> float:
    return top + row * _ROW + _BOX / 2


def _edge(edge: Edge, layout: Layout, columns: Sequence[Column], top: float) -> str:
    """A curve from box to box, straight where it passes a layer."""
    source, target = layout.boxes[edge.source], layout.boxes[edge.target]
    x, y = columns[source.layer].right, _middle(source.row, top)
    path = [f"M {x:.1f} {y:.1f}"]
    between = range(source.layer + 1, target.layer)
    stops = [(columns[at], row) for at, row in zip(between, edge.bends, strict=False)]
    for column, row in [*stops, (columns[target.layer], target.row)]:
        to = _middle(row, top)
        half = (x + column.left) / 2
        path.append(f"C {half:.1f} {y:.1f} {half:.1f} {to:.1f} {column.left:.1f} {to:.1f}")
        x, y = column.right, to
        path.append(f"H {x:.1f}")
    dashes = _DASHES[target.on]
    dashed = f' stroke-dasharray="{dashes}"' if dashes else ""
    return f'<path class="edge" d="{" ".join(path[:-1])}"{dashed} marker-end="url(#arrow)"/>'


# the legend


def _legend(layout: Layout, width: float) -> tuple[list[str], float]:
    """The states and conditions that occur, in lines, and where they end."""
    drawn: list[str] = []
    x, y = float(_MARGIN), float(_HEAD)
    for mark, words in _entries(layout):
        room = 26 + _SMALL_CHAR * len(words) + 14
        if x > _MARGIN and x + room > width - _MARGIN:
            x, y = float(_MARGIN), y + _ENTRY
        drawn.append(f'<g transform="translate({x:.1f} {y:.1f})">{mark}')
        drawn.append(f"{_text(26, 12, words, 'quiet')}</g>")
        x += room
    return drawn, y + _ENTRY + _MARGIN


def _entries(layout: Layout) -> Iterator[tuple[str, str]]:
    counts: Counter[JobState] = Counter()
    for box in layout.boxes:
        counts[box.state] += len(box.keys)
    for state, (fill, line) in COLOURS.items():
        if counts[state]:
            yield _rect(0, 1, 18, 14, 4, fill, line), f"{counts[state]:,} {state.value}"
    for on, words in _CONDITIONS.items():
        if any(box.on is on for box in layout.boxes):
            yield f'<path class="edge" d="M 0 8 H 20" stroke-dasharray="{_DASHES[on]}"/>', words


def _text(x: float, y: float, words: str, style: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" class="{style}">{_escaped(words)}</text>'


def _escaped(text: str) -> str:
    """Text as XML: without markup, and without characters that XML does not have."""
    return escape(_NO_XML.sub("\ufffd", visible(text)))
