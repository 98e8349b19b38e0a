"""What the retry of a group opens again, and what its jobs then wait for.

A retry gives a new round to jobs that have ended. Whoever depends on one of them waits for it
again. So the counters of all jobs that wait are counted anew from the edges: what an end told them
before may not be so any more.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from difflib import get_close_matches
from typing import NamedTuple
from uuid import UUID

from longshore.core.dependencies import Marks, told
from longshore.core.lifecycle import OWNED, TERMINAL
from longshore.model.group import GroupState, RetryPlan
from longshore.model.job import JobState


class NodeState(NamedTuple):
    """A node and where its job is. `after` has the places of what it depends on."""

    key: str
    state: JobState
    after: Sequence[int]


class Reopening(NamedTuple):
    """What a retry changes, by places. `running` are jobs that must end before it can."""

    reopened: list[int]
    held: list[int]
    """Jobs that were about to run, and must wait for others again."""
    running: list[int]
    counters: dict[int, tuple[int, Marks]]
    """What each job that waits from now on has left to wait for, and what it was told."""


def reopening(nodes: Sequence[NodeState], keys: Sequence[str] = ()) -> Reopening:
    """What a retry does: to all that did not succeed, or to these keys and all below them."""
    if keys:
        wanted = _below(nodes, set(keys))
    else:
        bad = TERMINAL - {JobState.SUCCEEDED}
        wanted = {place for place, node in enumerate(nodes) if node.state in bad}
    reopened = [place for place in sorted(wanted) if nodes[place].state in TERMINAL]
    running = [place for place in sorted(wanted) if nodes[place].state in OWNED]
    opened = set(reopened)
    about_to_run = (JobState.READY, JobState.DELAYED)
    held = [
        place
        for place, node in enumerate(nodes)
        if node.state in about_to_run and not opened.isdisjoint(node.after)
    ]
    counters = {
        place: counted(nodes, node.after, opened)
        for place, node in enumerate(nodes)
        if place in opened or node.state is JobState.WAITING or not opened.isdisjoint(node.after)
    }
    return Reopening(reopened, held, running, counters)


def _below(nodes: Sequence[NodeState], keys: set[str]) -> set[int]:
    """These nodes and all that depend on them. A node comes after those that it depends on."""
    found: set[int] = set()
    for place, node in enumerate(nodes):
        if node.key in keys or not found.isdisjoint(node.after):
            found.add(place)
    return found


def counted(
    nodes: Sequence[NodeState], after: Sequence[int], opened: Collection[int] = ()
) -> tuple[int, Marks]:
    """The counters of a node that depends on these places, if some of them are `opened` again."""
    unmet, marks = 0, Marks.NOTHING
    for place in after:
        state = nodes[place].state
        if place in opened or state not in TERMINAL:
            unmet += 1
        else:
            marks |= told(state)
    return unmet, marks


def retry_plan(
    group: UUID, state: GroupState, nodes: Sequence[NodeState], keys: Sequence[str]
) -> tuple[RetryPlan, Reopening]:
    """The answer to a retry, and what it changes if it is not refused."""
    found = reopening(nodes, keys)
    reopened = tuple(nodes[place].key for place in found.reopened)
    running = tuple(nodes[place].key for place in found.running)
    refused = _refusal(state, nodes, keys, reopened, running)
    return RetryPlan(group, () if refused else reopened, running, refused), found


def _refusal(
    state: GroupState,
    nodes: Sequence[NodeState],
    keys: Sequence[str],
    reopened: Sequence[str],
    running: Sequence[str],
) -> str:
    known = {node.key for node in nodes}
    for key in keys:
        if key not in known:
            near = get_close_matches(key, known, n=1)
            hint = f" (nearest: '{near[0]}')" if near else ""
            return f"the group has no job '{key}'{hint}"
    if state in (GroupState.STAGING, GroupState.CANCELLING):
        return f"the group is {state}; retry it when it has ended"
    if running:
        more = f" and {len(running) - 1} more" if len(running) > 1 else ""
        return f"'{running[0]}'{more} still runs; wait until it has ended, or cancel it"
    return "" if reopened else "there is nothing to retry: no job ended without success"
