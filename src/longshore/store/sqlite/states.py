"""The states that statements list, as SQL.

SQLite uses a partial index only for the very list that the index was made with: a state more in one
of these is a numbered step of the schema too.
"""

from __future__ import annotations

from collections.abc import Container
from typing import Final

from longshore.core import lifecycle
from longshore.model.job import JobState


def _listed(states: Container[JobState]) -> str:
    return ", ".join(f"'{state}'" for state in JobState if state in states)


OWNED_LIST: Final = f"({_listed(lifecycle.OWNED)})"
"""The jobs that a worker has, as `job_owned` lists them."""

LIVE_LIST: Final = f"({_listed(frozenset(JobState) - lifecycle.TERMINAL)})"
"""The jobs that are not over, as `job_unique` lists them."""
