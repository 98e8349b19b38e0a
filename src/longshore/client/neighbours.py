"""Asks for the neighbours of a job in its group."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple
from uuid import UUID

from longshore.client.connection import Connection
from longshore.model.group import Condition, Group, NodeView

MAX_PATH_JOBS: Final = 5_000
"""Of a group with more jobs nobody looks for the critical path, or for what depends on a job."""


class Neighbours(NamedTuple):
    """The jobs that a job of a group depends on, and those that depend on it."""

    after: Sequence[NodeView]
    dependents: Sequence[NodeView]
    on: Condition
    taken_from: int | None = None
    """The number of the job of an earlier run whose result it took over."""


async def neighbours(connection: Connection, group: Group, job: UUID) -> Neighbours | None:
    """What a job depends on and what depends on it; None if its group is large."""
    if group.jobs > MAX_PATH_JOBS:
        return None
    nodes = [node async for node in connection.all_nodes(group.id)]
    own = next((node for node in nodes if node.job == job), None)
    if own is None:
        return None
    wanted = set(own.after)
    return Neighbours(
        [node for node in nodes if node.key in wanted],
        [node for node in nodes if own.key in node.after],
        own.on,
        own.taken_from,
    )
