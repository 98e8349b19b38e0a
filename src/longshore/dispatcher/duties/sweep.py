"""Sweep: frees jobs whose worker is not alive, because a harvest stopped half-way."""

from __future__ import annotations

from longshore.dispatcher.commits import Commits
from longshore.ports import Store


async def sweep(store: Store, crash_limit: int, commits: Commits) -> None:
    """Frees jobs whose worker is not alive."""
    commits.harvested(await store.sweep(crash_limit))
