"""Sweep: jobs that no live worker owns, because a harvest died half-way."""

from __future__ import annotations

from longshore.dispatcher.commits import Commits
from longshore.ports import Store


async def sweep(store: Store, crash_limit: int, commits: Commits) -> None:
    """Frees jobs that are owned by a worker that is not alive."""
    commits.harvested(await store.sweep(crash_limit))
