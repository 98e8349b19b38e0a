"""What the jobs of each queue wait for at a moment, by causes that their number alone tells."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

from longshore.core.timing import span
from longshore.model.depth import LaneDepth
from longshore.model.group import GATE
from longshore.model.job import JobState
from longshore.model.waited import WaitCause

CAUSES: Final = (
    WaitCause.DEPENDENCIES,
    WaitCause.DELAY,
    WaitCause.PAUSED_QUEUE,
    WaitCause.LIMIT,
    WaitCause.GATE,
    WaitCause.SLOT,
)
"""The causes that queues are told by. A backoff is a delay here, and a paused group or actor is a
dependency: the jobs that wait so are in one state."""

QueueCause = tuple[str, WaitCause]


def waiting_now(depths: Iterable[LaneDepth]) -> Counter[QueueCause]:
    """How many jobs of each queue wait for what."""
    found: Counter[QueueCause] = Counter()
    for one in depths:
        queue, ready = one.lane.queue, one.counts.get(JobState.READY, 0)
        found[queue, WaitCause.DEPENDENCIES] += one.counts.get(JobState.WAITING, 0)
        found[queue, WaitCause.DELAY] += one.counts.get(JobState.DELAYED, 0)
        if one.paused:
            found[queue, WaitCause.PAUSED_QUEUE] += ready
            continue
        behind = min(one.behind, ready)
        found[queue, WaitCause.LIMIT] += behind
        cause = WaitCause.GATE if one.lane.kind == GATE else WaitCause.SLOT
        found[queue, cause] += ready - behind
    return +found


def waited_in_words(waited: Mapping[str, float], most: int = 2) -> str:
    """What the jobs of a queue waited for longest, all together; empty if they did not."""
    longest = sorted(waited.items(), key=lambda one: (-one[1], one[0]))[:most]
    return ", ".join(f"{span(s)} {cause.replace('_', ' ')}" for cause, s in longest if s >= 1)
