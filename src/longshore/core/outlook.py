"""What is still to come of a group, by earlier runs of its kinds, and what a failure cost it.

Theory. A forecast plays the rest of the group through: each job takes as long as its kind did on
average, a job that runs what is left of that, and a free slot takes the first job that can run. It
knows no delays, no retries, no other groups and nobody who opens gates; so it says *about*.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import ceil
from typing import Final, NamedTuple
from uuid import UUID

from longshore.core.graph import longest_chain, makespan
from longshore.core.lifecycle import TERMINAL
from longshore.core.run_times import expected, weight
from longshore.model.group import GATE, SCOPE, Condition, NodeView
from longshore.model.job import JobState
from longshore.model.run_time import RunTime
from longshore.model.worker import Capacity

_INSTANT: Final = frozenset({GATE, SCOPE})
"""Kinds of nodes that take no time by themselves."""


class Forecast(NamedTuple):
    """How long a group still takes, about, on so many slots."""

    left_s: float
    path_s: float
    """How long the jobs on the critical path take, one after the other."""
    work_s: float
    """How long all its jobs take, one after the other."""
    slots: int
    known: int
    """Of how many kinds earlier runs are known."""
    kinds: int
    """Of how many kinds its jobs are that have not ended."""


class Cost(NamedTuple):
    """How many jobs a failure kept from running, and how many it cancelled (`fail_fast`)."""

    could_not_run: int
    cancelled: int


def remaining(nodes: Iterable[NodeView]) -> list[NodeView]:
    """The jobs that have not ended, in the order of the group."""
    return [node for node in nodes if node.state not in TERMINAL]


def critical_path(live: Sequence[NodeView], times: Mapping[str, RunTime]) -> tuple[str, ...]:
    """The longest chain of these jobs: by expected run time, or by number if none is known."""
    seconds = _seconds(live, times, {})
    weights = {key: weight(one) for key, one in seconds.items()}
    return tuple(longest_chain({node.key: node.after for node in live}, weights))


def forecast(
    live: Sequence[NodeView],
    times: Mapping[str, RunTime],
    ran_s: Mapping[UUID, float],
    slots: int,
) -> Forecast | None:
    """When these jobs will have ended, about; None where nothing is known of their kinds.

    `ran_s` says how long jobs that run did so far.
    """
    seconds = _seconds(live, times, ran_s)
    if not seconds or slots < 1:
        return None
    slots = min(slots, len(live))
    after = {node.key: node.after for node in live}
    chain = longest_chain(after, {key: weight(one) for key, one in seconds.items()})
    kinds = {node.kind for node in live} - _INSTANT
    return Forecast(
        left_s=makespan(after, seconds, slots),
        path_s=sum(seconds[key] for key in chain),
        work_s=sum(seconds.values()),
        slots=slots,
        known=len(kinds & times.keys()),
        kinds=len(kinds),
    )


def _seconds(
    live: Sequence[NodeView], times: Mapping[str, RunTime], ran_s: Mapping[UUID, float]
) -> dict[str, float]:
    """How long each job will still run; empty if nothing is known of their kinds."""
    by_kind = expected((node.kind for node in live if node.kind not in _INSTANT), times)
    if not by_kind:
        return {}
    return {
        node.key: 0.0
        if _needs_a_failure(node) or node.kind in _INSTANT
        else max(0.0, by_kind[node.kind] - ran_s.get(node.job, 0.0))
        for node in live
    }


def _needs_a_failure(node: NodeView) -> bool:
    """Whether a job will only run if another fails: that is not expected."""
    return node.on is Condition.FAILED and node.state is JobState.WAITING


def usable_slots(live: Sequence[NodeView], capacity: Capacity) -> int:
    """How many jobs of these can run at once: as many as do, and what is free for their kinds."""
    kinds = {node.kind for node in live}
    free: dict[str, int] = {}
    for one in capacity.kinds:
        if one.kind in kinds:
            free[one.pool] = max(one.free, free.get(one.pool, 0))
    running = sum(node.state is JobState.RUNNING for node in live)
    return running + sum(free.values())


def cost(nodes: Sequence[NodeView], failed: str, *, fail_fast: bool) -> Cost:
    """What the failure of this job cost its group."""
    lost = lost_with(nodes, failed)
    cancelled = sum(node.state is JobState.CANCELLED for node in nodes) if fail_fast else 0
    return Cost(len(lost), cancelled)


def lost_with(nodes: Sequence[NodeView], failed: str) -> list[NodeView]:
    """The jobs that could not run because this one failed, in the order of the group."""
    lost, found = {failed}, []
    for node in nodes:
        if node.state is JobState.DEPENDENCY_FAILED and not lost.isdisjoint(node.after):
            lost.add(node.key)
            found.append(node)
    return found


def about(seconds: float) -> str:
    """A forecast in words, no more exact than it is: 40 s, 4 min, 2 h 10 min, 3 d 4 h."""
    if seconds < 60:
        return f"{max(1, ceil(seconds))} s"
    minutes = round(seconds / 60)
    if minutes < 60:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours < 24 else f"{hours // 24} d {hours % 24} h"
