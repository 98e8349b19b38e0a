"""Bulks and their plans as JSON, for the command line and HTTP."""

from __future__ import annotations

from typing import Any

from longshore.client.jsonable import plain
from longshore.core.bulks import search_words, share
from longshore.model.bulk import BulkPlan, BulkRun, NewBulk, Refusal


def bulk_json(bulk: BulkRun) -> dict[str, Any]:
    """A bulk, and how far it is."""
    return {
        "id": str(bulk.new.id),
        "number": bulk.number,
        **_asked(bulk.new),
        "state": bulk.state.value,
        "by": bulk.new.by,
        "created_at": plain(bulk.created_at),
        "ended_at": plain(bulk.ended_at),
        "stopped_by": bulk.stopped_by,
        "progress": round(share(bulk), 4),
        "expected": bulk.new.expected,
        "matched": bulk.matched,
        "done": bulk.done,
        "refused": [_refusal(one) for one in bulk.refused],
    }


def plan_json(new: NewBulk, plan: BulkPlan) -> dict[str, Any]:
    """What a bulk would do, as far as it was counted."""
    return {
        **_asked(new),
        "plan": True,
        "matched": plan.matched,
        "complete": plan.go_on is None,
        "would": plan.would,
        "states": {state.value: count for state, count in sorted(plan.states.items())},
        "refused": [_refusal(one) for one in plan.refused],
    }


def _asked(new: NewBulk) -> dict[str, Any]:
    words = search_words(new.wanted)
    return {
        "action": new.action.value,
        "priority": new.priority,
        "queue": new.queue,
        "query": words,
    }


def _refusal(one: Refusal) -> dict[str, Any]:
    return {"why": one.why, "count": one.count, "jobs": list(one.examples)}
