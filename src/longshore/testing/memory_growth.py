"""How groups of `MemoryStore` grow: what jobs add, maps, sub-groups and gates."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from uuid import UUID

from msgspec import structs

from longshore.core import effects, growth
from longshore.core.dependencies import Parent, Scope, becomes, tell_scope
from longshore.core.effects import Change
from longshore.core.lifecycle import TERMINAL
from longshore.errors import LongshoreError
from longshore.model.attempt import Attempt
from longshore.model.ends import End
from longshore.model.group import GATE, MAP, SCOPE, GateVerdict, GroupState
from longshore.model.job import JobState, Refused
from longshore.model.reports import OutboxNode
from longshore.payload.maps import Elements, elements
from longshore.payload.references import BESIDE, EVERY, NodeResult, references
from longshore.payload.values import are_same
from longshore.ports import Hint
from longshore.store.filling import by_job, fill, too_large, wanted_results
from longshore.store.group_limits import limited
from longshore.store.rows import (
    Adder,
    NodeItem,
    grown_items,
    grown_taken,
    wrong_scopes,
)
from longshore.testing.memory_reads import MemoryReads
from longshore.testing.memory_rows import GroupRow, JobRow, NodeRow, Note, new_row


class MemoryGrowth(MemoryReads, ABC):
    """What makes a group larger than it was submitted, and what counts scopes."""

    @abstractmethod
    def _holder(self, row: JobRow) -> JobRow | None: ...

    @abstractmethod
    def _apply(self, row: JobRow, change: Change, by: str = "") -> None: ...

    @abstractmethod
    def _wake(
        self, row: JobRow, change: Change | None, settled: Counter[int], groups: set[UUID]
    ) -> None: ...

    # what a job adds

    def _growth(self, row: JobRow, end: End) -> tuple[End, Sequence[NodeItem]]:
        """What an attempt adds to its group; a failure instead of its end if it may not."""
        nodes = growth.added(end)
        if not nodes:
            return end, ()
        items = self._items(row, nodes)
        return (growth.refused(end, items), ()) if isinstance(items, str) else (end, items)

    def _items(
        self, adder: JobRow, nodes: Sequence[OutboxNode], index: int = 0
    ) -> list[NodeItem] | str:
        """These as nodes of the adder's group; or why they cannot be."""
        key, jobs = (adder.node.key, self._members_of(adder)) if adder.node else (None, {})
        if (
            why := growth.why_not(key, nodes, len(jobs), self._max_group_jobs)
        ) or adder.node is None:
            return why
        where = adder.node.key, adder.node.place, adder.inherited
        who = Adder(adder.job.id, adder.job.round, *where)
        items = grown_items(who, nodes, max(jobs) + 1, index)
        if isinstance(items, str):
            return items
        taken = self._first_taken(self._groups[adder.node.group], items)
        return items if taken is None else grown_taken(taken.node)

    def _members_of(self, row: JobRow) -> Mapping[int, UUID]:
        """The jobs of its group."""
        assert row.node is not None
        return self._groups[row.node.group].jobs

    def _first_taken(self, group: GroupRow, items: Iterable[NodeItem]) -> NodeItem | None:
        """The first of new nodes whose id, key or unique key another has."""
        keys = {self._node(id).key for id in group.jobs.values()}
        unique: set[tuple[str, str]] = set()
        for item in items:
            job = item.node.job
            row = new_row(job, item.job_body, 0, self._now, JobState.WAITING)
            is_held = row.holds_its_key and self._holder(row) is not None
            own = {(job.kind, job.unique_key)} if job.unique_key is not None else set()
            if item.node.key in keys or job.id in self._jobs or is_held or own & unique:
                return item
            unique |= own
            keys.add(item.node.key)
        return None

    def _staging(self, item: NodeItem) -> UUID | None:
        """The group whose job holds a new node's unique key, if that group is not whole yet."""
        row = new_row(item.node.job, item.job_body, 0, self._now, JobState.WAITING)
        holder = self._holder(row) if row.holds_its_key else None
        return None if holder is None else self._staging_group(holder)

    def _staging_group(self, row: JobRow) -> UUID | None:
        """The group of a job, if it is not whole yet."""
        if row.node is None or self._groups[row.node.group].state is not GroupState.STAGING:
            return None
        return row.node.group

    def _count_added(self, adder: JobRow, items: Sequence[NodeItem]) -> None:
        if adder.node is not None:
            adder.node.open += sum(item.node.scope is not None for item in items)

    def _add(
        self,
        adder: JobRow,
        items: Sequence[NodeItem],
        settled: Counter[int],
        *,
        cancelled: bool = False,
    ) -> None:
        """Nodes join the group of the job that adds them, and those run that may."""
        if not items:
            return
        assert adder.node is not None
        group = self._groups[adder.node.group]
        rows = [self._join(group, item) for item in items]
        for row in rows:
            if cancelled:
                self._apply(row, effects.CANCEL[row.state], group.cancelled_by)
            elif group.state is GroupState.RUNNING:
                self._wake(row, becomes(self._waiting(row)), settled, set())
        group.must_sweep |= group.state is GroupState.CANCELLING

    def _join(self, group: GroupRow, item: NodeItem) -> JobRow:
        """A node is in a group from now on; its job waits."""
        self._last_number += 1
        [item] = limited([item], group.head.id, group.head.limit)
        row = self._new_node(group, item)
        row.job = structs.replace(row.job, number=self._last_number)
        self._jobs[row.job.id] = row
        group.jobs[item.place] = row.job.id
        return row

    def _new_node(self, group: GroupRow, item: NodeItem) -> JobRow:
        row = new_row(item.node.job, item.job_body, 0, self._now, JobState.WAITING)
        row.node = NodeRow(item.node, group.head.id, item.place, len(item.parents), item.body)
        row.job = structs.replace(row.job, group=group.head.id)
        row.rank = item.rank
        return row

    # scopes

    def _refused_scopes(self, group: GroupRow, new: Iterable[NodeItem]) -> Refused | None:
        """Why the scopes of a group that is whole with these nodes are not sound."""
        nodes = {place: self._node(id).node for place, id in group.jobs.items()}
        nodes |= {item.place: item.node for item in new}
        members = {node.scope: node.key for node in nodes.values() if node.scope is not None}
        subs = {place: node.scope for place, node in nodes.items() if node.job.kind == SCOPE}
        return wrong_scopes(group.head.id, members, subs)

    def _open_scopes(self, group: GroupRow) -> None:
        """The group is whole: its sub-groups count their members."""
        for id in group.jobs.values():
            scope = self._node(id).node.scope
            if scope is not None:
                self._node(group.jobs[scope]).open += 1

    def _tell_scope(self, row: JobRow, ended: list[Parent], groups: set[UUID]) -> None:
        """A node hears of nodes in its scope; others are to hear if it closed or has failed."""
        node = self._node(row.job.id)
        scope = Scope(node.open, node.scope_marks, node.cause, row.state in TERMINAL)
        told = tell_scope(scope, ended)
        node.open, node.scope_marks, node.cause = told.open, told.marks, told.cause
        if told.is_closed or told.is_news:
            self._unsettled.append(Note(row.job.id, is_early=not told.is_closed))
            groups.add(node.group)

    # what no worker runs

    def _to_expand(self) -> set[UUID]:
        """The groups that have maps or sub-groups which are ready."""
        ready = self._where(_is_to_expand)
        return {self._node(row.job.id).group for row in ready}

    def _expand(self, most: int, settled: Counter[int]) -> None:
        """Sub-groups that are ready end, and maps become jobs, at most so many."""
        for row in self._where(_is_to_expand):
            if row.job.kind == SCOPE:
                self._apply(row, effects.EXPANDED[row.state])
            elif most > 0:
                most -= self._expand_map(row, most, settled)

    def _expand_map(self, row: JobRow, most: int, settled: Counter[int]) -> int:
        """The next elements of a map become jobs; answers how many."""
        node = self._node(row.job.id)
        found = self._elements(row, most)
        if isinstance(found, str):
            self._apply(row, effects.of_no_expansion(found)[row.state])
            return 0
        nodes = [OutboxNode(one.key, one.job) for one in found.jobs]
        left, jobs = found.total - node.expanded, len(self._members_of(row))
        items: list[NodeItem] | str = growth.too_many(left, jobs, self._max_group_jobs)
        if jobs + left <= self._max_group_jobs:
            items = self._items(row, nodes, node.expanded)
        if isinstance(items, str):
            self._apply(row, effects.of_no_expansion(items)[row.state])
            return 0
        node.expanded += len(items)
        self._count_added(row, items)
        if node.expanded >= found.total:
            self._apply(row, effects.EXPANDED[row.state])
        self._add(row, items, settled)
        return len(items)

    def _elements(self, row: JobRow, most: int) -> Elements | str:
        """The next elements of a map, or why its list cannot become jobs."""
        job, first = row.job, self._node(row.job.id).expanded
        try:
            wanted = references(job.args) if job.options.references else ()
            keys = [one.wanted for one in wanted]
            results = by_job(self._results(row, keys)).get(job.id, {})
            return too_large(results) or elements(job.args, results, job.id, job.round, first, most)
        except LongshoreError as error:
            return str(error)

    async def open_gate(
        self, ref: UUID | int, key: str, value: bytes | None = None, by: str = ""
    ) -> GateVerdict:
        self._now = self._utc()
        group = self._find_group(ref)
        rows = [self._jobs[id] for id in (group.jobs.values() if group else ())]
        row = next((row for row in rows if row.node and row.node.key == key), None)
        if row is None:
            return GateVerdict.NOT_FOUND
        if row.job.kind != GATE:
            return GateVerdict.NOT_A_GATE
        if (change := effects.of_opening(by or "a client").get(row.state)) is not None:
            self._apply(row, change, by)
            row.job = structs.replace(row.job, result=value)
            self._hint(Hint.ENDED)
            return GateVerdict.OPENED
        if row.state is JobState.SUCCEEDED and are_same(row.job.result, value):
            return GateVerdict.ALREADY_OPEN
        is_over = row.state in TERMINAL
        return GateVerdict.ALREADY_ENDED if is_over else GateVerdict.NOT_REACHED

    # results as arguments

    def _filled(self, attempts: Sequence[Attempt]) -> list[Attempt]:
        """The attempts with the results that their arguments refer to."""
        found = []
        for job, key in wanted_results(attempts):
            found += self._results(self._jobs[job], [key])
        return fill(attempts, by_job(found))

    def _results(self, row: JobRow, keys: Iterable[str]) -> list[tuple[UUID, str, NodeResult]]:
        """What the jobs with these keys, or all in the scope of one, have come to."""
        if row.node is None:
            return []
        members = sorted(self._members_of(row).items())
        nodes = [(self._jobs[id], self._node(id)) for _, id in members]
        places = {node.key: node.place for _, node in nodes}
        found = []
        for wanted in keys:
            key = wanted
            if wanted.startswith(BESIDE):
                key = row.node.key[: row.node.key.rfind("/") + 1] + wanted.removeprefix(BESIDE)
            scope = places.get(key.removesuffix(EVERY)) if key.endswith(EVERY) else None
            for other, node in nodes:
                if node.key == key or (scope is not None and node.node.scope == scope):
                    size = len(other.job.result or b"")
                    result = NodeResult(other.state, size, other.job.result)
                    found.append((row.job.id, wanted, result))
        return found


def _is_to_expand(row: JobRow) -> bool:
    return row.state is JobState.READY and row.job.kind in (MAP, SCOPE)
