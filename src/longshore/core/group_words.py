"""Groups in words."""

from __future__ import annotations

from longshore.model.group import NOT_RUN, Group, NodeView
from longshore.model.job import Job, JobState


def shown_state(job: Job | NodeView) -> JobState:
    """The state of a job as views tell it: a map or a sub-group runs as long as its scope does.

    Its own job ends earlier: when its list became jobs, or when it was reached.
    """
    is_open = job.open and job.kind in NOT_RUN and job.state is JobState.SUCCEEDED
    return JobState.RUNNING if is_open else job.state


def shown_counts(group: Group) -> dict[str, int]:
    """How many jobs of a group are in each state that there is, as `shown_state` tells it."""
    counts = {state.value: group.counts.get(state.value, 0) for state in JobState}
    counts[JobState.SUCCEEDED.value] -= group.open
    counts[JobState.RUNNING.value] += group.open
    return counts


def in_states(group: Group) -> str:
    """How many jobs of a group are in each state, in words."""
    counts = shown_counts(group).items()
    return ", ".join(f"{count:,} {state}" for state, count in counts if count) or "it has no jobs"
