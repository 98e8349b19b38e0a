"""Groups in words."""

from __future__ import annotations

from longshore.model.group import Group
from longshore.model.job import JobState


def in_states(group: Group) -> str:
    """How many jobs of a group are in each state, in words."""
    counts = [(state.value, group.counts.get(state.value, 0)) for state in JobState]
    return ", ".join(f"{count:,} {state}" for state, count in counts if count) or "it has no jobs"
