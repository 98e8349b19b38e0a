"""The jobs around a job of a group, in lines and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from longshore.cli.view.groups import short
from longshore.client.neighbours import Neighbours
from longshore.core.group_limits import MAX_NODES_LISTED
from longshore.core.group_words import shown_state
from longshore.model.group import Condition, NodeView

MOST_SHOWN: Final = 8


def neighbour_lines(found: Neighbours | None) -> list[tuple[str, str]]:
    """What a job depends on, and what depends on it."""
    if found is None:
        return []
    on = "" if found.on is Condition.SUCCEEDED else f", on {found.on.value}"
    after = _listed(found.after)
    taken = "" if found.taken_from is None else f"job {found.taken_from}"
    return [
        ("taken over from", taken),
        ("depends on", after and f"{after}{on}"),
        ("needed by", _listed(found.dependents)),
    ]


def _listed(nodes: Sequence[NodeView]) -> str:
    shown = [f"'{short(node.key)}' ({shown_state(node).value})" for node in nodes[:MOST_SHOWN]]
    more = len(nodes) - MOST_SHOWN
    at_least = "at least " if len(nodes) >= MAX_NODES_LISTED else ""
    return ", ".join(shown) + (f" and {at_least}{more:,} more" if more > 0 else "")


def neighbours_json(found: Neighbours | None) -> dict[str, Any]:
    """The same for `--json`: null for a job that has left its group."""
    if found is None:
        return {"after": None, "on": None, "dependents": None, "taken_from": None}
    return {
        "after": [_brief(node) for node in found.after],
        "on": found.on.value,
        "dependents": [_brief(node) for node in found.dependents],
        "taken_from": found.taken_from,
    }


def _brief(node: NodeView) -> dict[str, Any]:
    return {
        "key": node.key,
        "id": str(node.job),
        "number": node.number,
        "kind": node.kind,
        "state": shown_state(node).value,
    }
