"""Markdown: tables, and ratios with their spread."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from bench.pairs import Ratio


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> list[str]:
    """A Markdown table."""
    lines = ["", "| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return lines + ["| " + " | ".join(str(cell) for cell in row) + " |" for row in rows]


def shown(ratio: Ratio | None) -> str:
    """A ratio with its spread."""
    return f"{ratio.median:.2f} ({ratio.low:.2f}–{ratio.high:.2f})" if ratio else ""


def first_line(text: str) -> str:
    """The first line of a text, as a cell of a table takes it."""
    return (text.splitlines() or [""])[0].replace("|", "/")
