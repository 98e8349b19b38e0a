"""Asks for the neighbours of a job in its group, and for the keys of jobs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple
from uuid import UUID

from longshore.client.connection import Connection, in_parts
from longshore.core.group_limits import MAX_NODES_LISTED
from longshore.model.group import Condition, Near, NodeView

MAX_PATH_JOBS: Final = 5_000
"""Of a group with more jobs nobody looks for the critical path, or for when it will end."""


class Neighbours(NamedTuple):
    """The jobs that a job of a group depends on, and those that depend on it.

    Of each at most the first thousand, in the order of the group.
    """

    after: Sequence[NodeView]
    dependents: Sequence[NodeView]
    on: Condition
    taken_from: int | None = None
    """The number of the job of an earlier run whose result it took over."""


async def neighbours(connection: Connection, group: UUID, job: UUID) -> Neighbours | None:
    """What a job depends on and what depends on it; None if it has left its group."""
    own = [node for node in await connection.nodes_near(group, [job]) if node.job == job]
    if not own:
        return None
    after, dependents = [
        await connection.nodes_near(group, [job], near) for near in (Near.AFTER, Near.DEPENDENTS)
    ]
    return Neighbours(after, dependents, own[0].on, own[0].taken_from)


async def keys_of(connection: Connection, group: UUID, jobs: Sequence[UUID]) -> dict[UUID, str]:
    """The keys of these jobs in their group."""
    found: dict[UUID, str] = {}
    for part in in_parts(jobs, MAX_NODES_LISTED) if jobs else ():
        found |= {node.job: node.key for node in await connection.nodes_near(group, part)}
    return {job: found[job] for job in jobs if job in found}
