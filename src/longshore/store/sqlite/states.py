"""The states that statements list, as SQL.

SQLite uses a partial index only if the statement has the list that the index was made with. So a
new state in one of these lists needs a numbered step of the schema too.
"""

from __future__ import annotations

from collections.abc import Container
from typing import Final

from longshore.core import lifecycle
from longshore.model.job import JobState


def _listed(states: Container[JobState]) -> str:
    return ", ".join(f"'{state}'" for state in JobState if state in states)


OWNED_LIST: Final = f"({_listed(lifecycle.OWNED)})"
"""The states of jobs that a worker owns, as `job_owned` lists them."""

LIVE_LIST: Final = f"({_listed(frozenset(JobState) - lifecycle.TERMINAL)})"
"""The states of jobs that have not ended, as `job_unique` lists them."""

ENDED_BADLY: Final = "INDEXED BY job_ended_badly WHERE"

BEHIND_KEYS: Final = "INDEXED BY job_blocked WHERE blocked_on IS NOT NULL AND state = 'ready'"
"""SQL for the ready jobs that wait behind a key of a limit."""

_INDEXES: Final = {
    JobState.WAITING: "INDEXED BY job_waiting WHERE",
    JobState.DELAYED: "INDEXED BY job_due WHERE",
    JobState.READY: "INDEXED BY job_ready WHERE blocked_on IS NULL AND",
    **dict.fromkeys(lifecycle.OWNED, f"INDEXED BY job_owned WHERE state IN {OWNED_LIST} AND"),
    **dict.fromkeys(lifecycle.TERMINAL - {JobState.SUCCEEDED}, ENDED_BADLY),
}
INDEXES: Final = {state: f"{index} state = '{state}'" for state, index in _INDEXES.items()}
"""SQL for the jobs of a state, by the index that lists them.

No index lists jobs that succeeded: a list finds them by going back from the newest job.
"""
