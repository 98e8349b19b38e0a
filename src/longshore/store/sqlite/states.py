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
