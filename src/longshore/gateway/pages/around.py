"""What is around a job in its group: who its neighbours are is read once, then only their states.

A group of thousands of jobs is not read at each look at one of them.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Final
from uuid import UUID

from msgspec import structs

from longshore.client.connection import Connection, in_parts
from longshore.client.neighbours import Neighbours, neighbours
from longshore.core.limits import MAX_LISTED
from longshore.gateway.asking import asking
from longshore.model.group import Group, NodeView
from longshore.model.job import Job, JobFilter

MOST_KEPT: Final = 200
"""Of so many jobs the neighbours are kept, those that were looked at last."""

_Place = tuple[bytes | None, UUID]
"""The token of those who look, and the job."""


class Around:
    """The neighbours of the jobs that pages showed lately."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._kept: OrderedDict[_Place, tuple[int, Neighbours]] = OrderedDict()

    async def of(self, group: Group, job: UUID) -> Neighbours | None:
        """The neighbours of a job as they are now; None if its group is large."""
        place = (asking(), job)
        known = self._kept.pop(place, None)
        # A group that has more jobs, or fewer, may have others around this one.
        if known is None or known[0] != group.jobs:
            found = await neighbours(self._connection, group, job)
            if found is None:
                return None
            known = group.jobs, found
        else:
            known = group.jobs, await self._as_now(known[1])
        self._kept[place] = known
        while len(self._kept) > MOST_KEPT:
            self._kept.popitem(last=False)
        return known[1]

    async def _as_now(self, known: Neighbours) -> Neighbours:
        ids = [*dict.fromkeys(one.job for one in (*known.after, *known.dependents))]
        jobs: dict[UUID, Job] = {}
        for part in in_parts(ids, MAX_LISTED) if ids else ():
            page = await self._connection.jobs(JobFilter(ids=part, limit=len(part)))
            jobs |= {job.id: job for job in page.jobs}
        return known._replace(
            after=_as_now(known.after, jobs), dependents=_as_now(known.dependents, jobs)
        )


def _as_now(nodes: Sequence[NodeView], jobs: Mapping[UUID, Job]) -> list[NodeView]:
    return [
        structs.replace(one, state=jobs[one.job].state, open=jobs[one.job].open)
        if one.job in jobs
        else one
        for one in nodes
    ]
