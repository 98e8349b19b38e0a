"""The jobs around a job of a group, in lines and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from longshore.cli.outlook import Neighbours
from longshore.cli.view.groups import short
from longshore.model.group import Condition, NodeView

MOST_SHOWN: Final = 8


def neighbour_lines(found: Neighbours | None) -> list[tuple[str, str]]:
    """What a job depends on, and what depends on it."""
    if found is None:
        return []
    on = "" if found.on is Condition.SUCCEEDED else f", on {found.on.value}"
    after = _listed(found.after)
    return [("depends on", after and f"{after}{on}"), ("needed by", _listed(found.dependents))]


def _listed(nodes: Sequence[NodeView]) -> str:
    shown = [f"'{short(node.key)}' ({node.state.value})" for node in nodes[:MOST_SHOWN]]
    more = len(nodes) - MOST_SHOWN
    return ", ".join(shown) + (f" and {more:,} more" if more > 0 else "")


def neighbours_json(found: Neighbours | None) -> dict[str, Any]:
    """The same for `--json`: null where nobody looked."""
    if found is None:
        return {"after": None, "on": None, "dependents": None}
    return {
        "after": [_brief(node) for node in found.after],
        "on": found.on.value,
        "dependents": [_brief(node) for node in found.dependents],
    }


def _brief(node: NodeView) -> dict[str, Any]:
    return {
        "key": node.key,
        "id": str(node.job),
        "number": node.number,
        "kind": node.kind,
        "state": node.state.value,
    }
