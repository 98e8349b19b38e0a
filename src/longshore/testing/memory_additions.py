"""What clients add to groups of `MemoryStore` from outside."""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from collections.abc import Sequence
from uuid import UUID

from longshore.core.additions import KnownNode, keys_asked
from longshore.core.dependencies import Parent, deliver
from longshore.core.lifecycle import TERMINAL
from longshore.errors import Conflict
from longshore.model.batch import MAX_GROUP_EDGES, MAX_GROUP_JOBS
from longshore.model.group import AddedNode, GroupSubmitted
from longshore.model.job import Refused
from longshore.ports import Hint
from longshore.store.additions import Addition, Growable, added_items, is_repeat, not_added, taken
from longshore.store.rows import NodeItem
from longshore.testing.memory_growth import MemoryGrowth
from longshore.testing.memory_rows import GroupRow, JobRow


class MemoryAdditions(MemoryGrowth):
    """The verb by which clients add to groups."""

    @abstractmethod
    def _parents(self, row: JobRow) -> list[Parent]: ...

    async def add_to_group(
        self,
        ref: UUID | int,
        request: UUID,
        nodes: Sequence[AddedNode],
        *,
        max_group_jobs: int = MAX_GROUP_JOBS,
        max_group_edges: int = MAX_GROUP_EDGES,
    ) -> GroupSubmitted | Refused | None:
        self._now = self._utc()
        group = self._find_group(ref)
        if group is None:
            return None
        addition = Addition(request, nodes, max_group_jobs, max_group_edges)
        id = group.head.id
        try:
            if is_repeat(addition, self._stored(group, addition)):
                return GroupSubmitted(id, group.number, group.state, len(group.jobs))
        except Conflict as error:
            return not_added(id, error)
        items = added_items(addition, self._growable(group), self._known_nodes(group, nodes))
        if isinstance(items, Refused):
            return items
        if (item := self._first_taken(group, items)) is not None:
            return taken(id, item.node)
        self._add_all(group, items)
        return GroupSubmitted(id, group.number, group.state, len(group.jobs))

    def _stored(self, group: GroupRow, addition: Addition) -> dict[UUID, tuple[str, int]]:
        """Those of the new jobs that are there."""
        there = set(addition.ids) & set(group.jobs.values())
        return {id: (self._node(id).key, self._jobs[id].body) for id in there}

    def _growable(self, group: GroupRow) -> Growable:
        edges = sum(len(set(self._node(id).node.after)) for id in group.jobs.values())
        first = max(group.jobs, default=-1) + 1
        return Growable(group.head.id, group.state, len(group.jobs), edges, first, group.number)

    def _known_nodes(self, group: GroupRow, nodes: Sequence[AddedNode]) -> dict[str, KnownNode]:
        asked, known = keys_asked(nodes), dict[str, KnownNode]()
        for place, id in group.jobs.items():
            node, row = self._node(id), self._jobs[id]
            if node.key in asked:
                is_closed = row.state in TERMINAL and not node.open
                known[node.key] = KnownNode(place, row.job.kind, is_closed)
        return known

    def _add_all(self, group: GroupRow, items: Sequence[NodeItem]) -> None:
        """The nodes are in the group from now on, and those run that can."""
        settled = Counter[int]()
        rows = [self._join(group, item) for item in items]
        new = {row.job.id for row in rows}
        for row, item in zip(rows, items, strict=True):
            if item.node.scope is not None:
                self._node(group.jobs[item.node.scope]).open += 1
            node = self._node(row.job.id)
            heard = [one for one in self._told_by(row) if one.job not in new]
            node.unmet, node.marks, change = deliver(self._waiting(row), heard)
            self._wake(row, change, settled, set())
        self._hint(Hint.WORK)

    def _told_by(self, row: JobRow) -> list[Parent]:
        """What a new job hears of what it depends on; what is noted is told later."""
        noted = {one.job for one in self._unsettled if not one.is_early}
        parents = self._parents(row)
        return [one._replace(is_early=one.is_early or one.job in noted) for one in parents]
