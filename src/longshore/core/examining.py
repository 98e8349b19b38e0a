"""What is wrong with a group that has not ended, derived from its edges.

A store counts down: each node has how many of those it depends on have not ended. The edges and the
states say the same thing again. Where the two differ although no end is still on its way to the
node, something was lost.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from typing import NamedTuple
from uuid import UUID

from longshore.core.dependencies import Marks, Waiting, becomes, may_wake
from longshore.core.lifecycle import TERMINAL
from longshore.core.reopening import Closure, NodeState, closures, counted
from longshore.model.finding import Finding, Trouble
from longshore.model.group import GroupState
from longshore.model.job import JobState

EXAMINED: tuple[GroupState, ...] = (
    GroupState.RUNNING,
    GroupState.PAUSED,
    GroupState.CANCELLING,
)
"""The states of groups in which there is something to examine."""


class NodeRecord(NamedTuple):
    """A node as a store has it. `is_unsettled` says that its end has not reached all others.

    `open` and `scope_marks` are what it has of its scope.
    """

    job: UUID
    node: NodeState
    waiting: Waiting
    is_unsettled: bool
    open: int = 0
    scope_marks: Marks = Marks.NOTHING


class EndCounts(NamedTuple):
    """How many jobs of a group have ended, and how many of these badly."""

    ended: int
    failed: int
    cancelled: int


class GroupRecord(NamedTuple):
    """A group as a store has it. `is_swept` says that its jobs are being brought in order."""

    id: UUID
    state: GroupState
    is_swept: bool
    counts: EndCounts
    nodes: Sequence[NodeRecord]


class Examined(NamedTuple):
    """What is wrong, and what is right instead."""

    findings: list[Finding]
    counters: dict[int, tuple[int, Marks]]
    """The right counters of nodes that have wrong ones, by place."""
    counts: EndCounts
    """The right counts of the group."""
    scopes: dict[int, tuple[int, Marks]]
    """What nodes should have of their scopes that have it wrong, by place."""
    closed: list[int]
    """Nodes that are closed by that, although nobody was told."""


def examined(group: GroupRecord) -> Examined:
    """Counts a group anew, and says what differs."""
    found: list[Finding] = []
    counters: dict[int, tuple[int, Marks]] = {}
    states = [record.node for record in group.nodes]
    told = closures(states)
    on_the_way = _on_the_way(group)
    scopes = _wrong_scopes(group, told, on_the_way)
    closed = [place for place in scopes if told[place].is_closed and group.nodes[place].open]
    around = _around(group, closed)
    closed = [place for place in closed if place not in around]
    scopes = {place: right for place, right in scopes.items() if place not in around}
    # What closes by a repair is told to others, as any end is: they must not count it before.
    on_the_way |= around.union(closed)
    for place, record in enumerate(group.nodes):
        if not _is_examined(record, on_the_way):
            continue
        right = counted(told, record.node.after)
        if right != (record.waiting.unmet, record.waiting.marks):
            counters[place] = right
            found.append(_wrong_count(group.id, record, right[0]))
        elif may_wake(group.state) and not group.is_swept and becomes(record.waiting):
            text = f"job '{record.node.key}' waits although it waits for nothing"
            found.append(Finding(Trouble.WAITING, text, group.id, record.job))
    found += [_wrong_scope(group, place, right[0]) for place, right in scopes.items()]
    counts = end_counts([node.state for node in states])
    return Examined([*found, *_closing(group, counts)], counters, counts, scopes, closed)


def _is_examined(record: NodeRecord, on_the_way: Collection[int]) -> bool:
    """Whether a job waits, and no end is on its way to it."""
    is_waiting = record.node.state is JobState.WAITING
    return is_waiting and not any(place in on_the_way for place in record.node.after)


def _on_the_way(group: GroupRecord) -> set[int]:
    """Nodes of which something is still to be told: of their own end, or of one in their scope."""
    found: set[int] = set()
    for place, record in enumerate(group.nodes):
        at: int | None = place if record.is_unsettled else None
        while at is not None and at not in found:
            found.add(at)
            at = group.nodes[at].node.scope
    return found


def _around(group: GroupRecord, places: Collection[int]) -> set[int]:
    """The nodes in whose scopes these are, however deep."""
    found: set[int] = set()
    for place in places:
        at = group.nodes[place].node.scope
        while at is not None and at not in found:
            found.add(at)
            at = group.nodes[at].node.scope
    return found


def _wrong_scopes(
    group: GroupRecord, told: Sequence[Closure], on_the_way: Collection[int]
) -> dict[int, tuple[int, Marks]]:
    return {
        place: (right.open, right.marks)
        for place, (record, right) in enumerate(zip(group.nodes, told, strict=True))
        if place not in on_the_way
        and (record.open, record.scope_marks) != (right.open, right.marks)
    }


def _wrong_scope(group: GroupRecord, place: int, right: int) -> Finding:
    record = group.nodes[place]
    text = (
        f"'{record.node.key}' counts {record.open} jobs that it added and that have not ended, "
        f"but there are {right}"
    )
    return Finding(Trouble.COUNT, text, group.id, record.job)


def _wrong_count(group: UUID, record: NodeRecord, right: int) -> Finding:
    text = f"job '{record.node.key}' remembers wrongly how those ended that it depends on"
    if right != record.waiting.unmet:
        text = (
            f"job '{record.node.key}' waits for {record.waiting.unmet} jobs, "
            f"but {right} of the {len(record.node.after)} it depends on have not ended"
        )
    return Finding(Trouble.COUNT, text, group, record.job)


def end_counts(states: Sequence[JobState]) -> EndCounts:
    """How many of these have ended."""
    found = Counter(states)
    ended = sum(found[state] for state in TERMINAL)
    failed = found[JobState.FAILED] + found[JobState.DEPENDENCY_FAILED]
    return EndCounts(ended, failed, found[JobState.CANCELLED])


def _closing(group: GroupRecord, counts: EndCounts) -> list[Finding]:
    if counts != group.counts:
        text = f"the group counts {_told(group.counts)}; its jobs say {_told(counts)}"
        return [Finding(Trouble.COUNT, text, group.id)]
    if counts.ended == len(group.nodes):
        text = f"the group is {group.state} although all its jobs have ended"
        return [Finding(Trouble.NOT_CLOSED, text, group.id)]
    return []


def _told(counts: EndCounts) -> str:
    return f"{counts.ended} ended, {counts.failed} failed, {counts.cancelled} cancelled"
