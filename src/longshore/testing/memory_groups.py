"""The groups of `MemoryStore`: the plainest thing that keeps the port's contract for them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Sequence
from datetime import timedelta
from uuid import UUID

from msgspec import structs

from longshore.core import effects
from longshore.core.dependencies import Parent, Waiting, becomes, deliver, group_end, may_wake
from longshore.core.effects import Change
from longshore.core.examining import EXAMINED, GroupRecord, NodeRecord, end_counts, examined
from longshore.core.lifecycle import TERMINAL
from longshore.core.reopening import NodeState, Reopening, retry_plan
from longshore.core.retention import group_bounds
from longshore.core.why import Facts
from longshore.model.attempt import Attempt
from longshore.model.finding import Finding
from longshore.model.group import (
    ENDED_GROUPS,
    MOST_SHOWN,
    Condition,
    Group,
    GroupFilter,
    GroupPart,
    GroupState,
    GroupSubmitted,
    GroupVerdict,
    NodeFacts,
    NodeView,
    RetryPlan,
)
from longshore.model.job import Ended, Job, JobState, Refused
from longshore.model.retention import GroupsPruned, Retention
from longshore.payload.references import NodeResult
from longshore.ports import Hint, Settled
from longshore.store.filling import by_job, fill, wanted_results
from longshore.store.rows import (
    ABANDONED,
    group_conflict,
    key_taken,
    node_items,
    unique_key_taken,
)
from longshore.testing.memory_reads import MemoryReads
from longshore.testing.memory_rows import GroupRow, JobRow, NodeRow, new_row


class MemoryGroups(MemoryReads, ABC):
    """The verbs of groups. Whoever ends a job of a group calls `_group_job_ended`."""

    @abstractmethod
    def _holder(self, row: JobRow) -> JobRow | None: ...

    @abstractmethod
    def _apply(self, row: JobRow, change: Change, by: str = "") -> None: ...

    # submitting

    async def submit_group(self, part: GroupPart) -> GroupSubmitted | Refused:
        self._now = self._utc()
        head = part.head
        known = self._groups.get(head.id)
        if known is not None and known.head != head:
            return group_conflict(head.id)
        group = known or GroupRow(head, self._last_number + 1, self._now)
        is_open = group.state is GroupState.STAGING
        rows = self._new_nodes(group, part) if is_open else []
        if isinstance(rows, Refused):
            return rows
        group.staged_at = self._now
        if known is None:
            self._last_number += 1
            self._groups[head.id] = group
        for row, place in rows:
            self._last_number += 1
            row.job = structs.replace(row.job, number=self._last_number)
            self._jobs[row.job.id] = row
            group.jobs[place] = row.job.id
        if is_open and len(group.jobs) == head.jobs:
            self._run(group)
        return GroupSubmitted(head.id, group.number, group.state, len(group.jobs))

    def _new_nodes(self, group: GroupRow, part: GroupPart) -> list[tuple[JobRow, int]] | Refused:
        """The rows of the nodes that are not stored yet; a refusal if one cannot be."""
        items = node_items(part)
        if isinstance(items, Refused):
            return items
        rows: list[tuple[JobRow, int]] = []
        for item in items:
            node, place = item.node, item.place
            if place in group.jobs:
                stored = self._jobs[group.jobs[place]].node
                if stored is None or stored.body != item.body:
                    return group_conflict(group.head.id)
                continue
            row = new_row(node.job, item.job_body, 0, self._now, JobState.WAITING)
            row.node = NodeRow(node, group.head.id, place, len(item.parents), item.body)
            row.job = structs.replace(row.job, group=group.head.id)
            others = [one for one, _ in rows if _same_key(one, row)]
            if others or self._holder(row) is not None or node.job.id in self._jobs:
                return key_taken(group.head.id, node.key, node.job)
            rows.append((row, place))
        return rows

    def _run(self, group: GroupRow) -> None:
        group.state = GroupState.RUNNING
        if not group.jobs:
            self._close(group)
        self._sweep_group(group, Counter())
        self._hint(Hint.WORK)

    # upkeep

    def _group_job_ended(self, row: JobRow) -> None:
        self._unsettled.append(row.job.id)

    def _deliver(self, ended: Iterable[UUID], settled: Counter[int]) -> set[UUID]:
        """These ends reach the nodes that depend on them; answers groups with more to do."""
        reached: defaultdict[UUID, list[Parent]] = defaultdict(list)
        groups: set[UUID] = set()
        for id in ended:
            row = self._jobs.get(id)
            if row is None or row.node is None:
                continue
            dependents = self._dependents(row.node)
            for child in dependents:
                reached[child].append(_parent(row, row.node))
            live = any(self._jobs[child].state not in TERMINAL for child in dependents)
            if not live or row.state in (JobState.FAILED, JobState.DEPENDENCY_FAILED):
                groups.add(row.node.group)
        for child, parents in sorted(reached.items()):
            self._tell_node(self._jobs[child], parents, settled, groups)
        return groups

    def _dependents(self, node: NodeRow) -> list[UUID]:
        group = self._groups[node.group]
        nodes = ((id, self._jobs[id].node) for id in group.jobs.values())
        return [id for id, other in nodes if other and node.place in other.node.after]

    def _tell_node(
        self, row: JobRow, parents: list[Parent], settled: Counter[int], groups: set[UUID]
    ) -> None:
        assert row.node is not None
        row.node.unmet, row.node.marks, change = deliver(self._waiting(row), parents)
        self._wake(row, change, settled, groups)

    def _waiting(self, row: JobRow) -> Waiting:
        assert row.node is not None
        return row.node.waiting(row.job.run_at, self._now)

    def _wake(
        self, row: JobRow, change: Change | None, settled: Counter[int], groups: set[UUID]
    ) -> None:
        """Makes a change to a job that waits, if its group lets it."""
        assert row.node is not None
        if change is None or row.state is not JobState.WAITING:
            return
        if not change.ends and not may_wake(self._groups[row.node.group].state):
            return
        self._apply(row, change)
        if change.state is JobState.READY:
            settled[row.lane.hash] += 1
            self._woken.append(row)
        if change.ends:
            groups.add(row.node.group)

    def _sweep_group(self, group: GroupRow, settled: Counter[int]) -> set[UUID]:
        """Brings every job of a group to where the group's state wants it."""
        groups: set[UUID] = set()
        for id in list(group.jobs.values()):
            row = self._jobs[id]
            assert row.node is not None
            if group.state is GroupState.CANCELLING and row.state in effects.CANCEL:
                self._apply(row, effects.CANCEL[row.state], group.cancelled_by)
                groups.add(group.head.id)
            elif group.state is GroupState.PAUSED:
                if row.state in effects.HOLD:
                    self._apply(row, effects.HOLD[row.state])
            else:
                self._wake(row, becomes(self._waiting(row)), settled, groups)
        group.must_sweep = False
        return groups

    async def settle(self, groups: Collection[UUID] = (), most: int = 1000) -> Settled:
        self._now = self._utc()
        ready, before = Counter[int](), self._ended_ids()
        ended, self._unsettled = self._unsettled[:most], self._unsettled[most:]
        more = self._deliver(ended, ready)
        for group in self._groups.values():
            if group.must_sweep:
                more |= self._sweep_group(group, ready)
        looked_at = [self._groups[id] for id in groups or [*self._groups] if id in self._groups]
        closed = [group for group in looked_at if self._ends(group)]
        unswept = {id for id, group in self._groups.items() if group.must_sweep}
        again = {self._group_of(id) for id in self._unsettled} | more | unswept
        again -= {group.head.id for group in closed}
        new = self._ended_ids() - before
        jobs = [row.job for id, row in self._jobs.items() if id in new]
        outcomes = [Ended(job.id, job.state, job.result, job.error) for job in jobs]
        outcomes += [Ended(one.head.id, JobState(one.state.value)) for one in closed]
        self._hint(*[Hint.WORK] * bool(ready), *[Hint.ENDED] * bool(outcomes), Hint.CANCEL)
        delayed = any(row.state is JobState.DELAYED for row in self._jobs.values())
        return Settled(ready, delayed, tuple(outcomes), frozenset(again))

    def _ended_ids(self) -> set[UUID]:
        return {id for id, row in self._jobs.items() if row.state in TERMINAL and row.node}

    def _group_of(self, job: UUID) -> UUID:
        node = self._jobs[job].node
        assert node is not None
        return node.group

    def _ends(self, group: GroupRow) -> bool:
        """Ends a group that has no live job; asks for a sweep if a failure cancels the rest."""
        counts = self._counts(group)
        failed = counts[JobState.FAILED] + counts[JobState.DEPENDENCY_FAILED]
        if group.state in ENDED_GROUPS or group.state is GroupState.STAGING:
            return False
        if len(group.jobs) == sum(counts[state] for state in TERMINAL):
            self._close(group)
            return True
        if failed and group.head.fail_fast and group.state is GroupState.RUNNING:
            group.state, group.must_sweep = GroupState.CANCELLING, True
        return False

    def _close(self, group: GroupRow) -> None:
        counts = self._counts(group)
        failed = counts[JobState.FAILED] + counts[JobState.DEPENDENCY_FAILED]
        cancelled = counts[JobState.CANCELLED]
        group.state = group_end(failed, cancelled, by_user=bool(group.cancelled_by))
        group.ended_at = self._now

    def _counts(self, group: GroupRow) -> Counter[JobState]:
        return Counter(self._jobs[id].state for id in group.jobs.values())

    async def cancel_group(self, ref: UUID | int, by: str = "") -> GroupVerdict:
        group = self._find_group(ref)
        if group is None:
            return GroupVerdict.NOT_FOUND
        if group.state in ENDED_GROUPS:
            return GroupVerdict.ALREADY_ENDED
        group.state, group.must_sweep = GroupState.CANCELLING, True
        group.cancelled_by = by or "a client"
        return GroupVerdict.CANCELLING

    async def pause_group(self, ref: UUID | int, paused: bool) -> GroupVerdict:
        group = self._find_group(ref)
        if group is None:
            return GroupVerdict.NOT_FOUND
        if group.state in ENDED_GROUPS:
            return GroupVerdict.ALREADY_ENDED
        if group.state not in (GroupState.RUNNING, GroupState.PAUSED):
            return GroupVerdict.NOT_RUNNING
        group.state, group.must_sweep = _paused(paused), True
        return GroupVerdict(group.state.value)

    async def retry_group(
        self,
        ref: UUID | int,
        by: str = "",
        request: UUID | None = None,
        *,
        keys: Sequence[str] = (),
        dry_run: bool = False,
    ) -> RetryPlan | None:
        self._now = self._utc()
        group = self._find_group(ref)
        if group is None:
            return None
        if request in group.retries:
            return group.retries[request]
        rows = [self._jobs[group.jobs[place]] for place in sorted(group.jobs)]
        nodes = [_node_state(row, row.node) for row in rows if row.node]
        plan, found = retry_plan(group.head.id, group.state, nodes, keys)
        if not plan.refused and not dry_run:
            taken = [rows[place] for place in found.reopened if self._holder(rows[place])]
            if taken:
                return RetryPlan(group.head.id, refused=unique_key_taken(taken[0].job.unique_key))
            self._reopen(group, rows, found, by, request)
            if request is not None:
                group.retries[request] = plan
        return plan

    def _reopen(
        self,
        group: GroupRow,
        rows: Sequence[JobRow],
        found: Reopening,
        by: str,
        request: UUID | None,
    ) -> None:
        for place in found.reopened:
            row = rows[place]
            self._apply(row, effects.of_group_retry(row.job.round, by, request)[row.state], by)
        for place in found.held:
            self._apply(rows[place], effects.HOLD[rows[place].state])
        for place, (unmet, marks) in found.counters.items():
            node = rows[place].node
            assert node is not None
            node.unmet, node.marks = unmet, marks
        self._unsettled = [id for id in self._unsettled if self._group_of(id) != group.head.id]
        group.state = GroupState.PAUSED if group.state is GroupState.PAUSED else GroupState.RUNNING
        group.must_sweep, group.ended_at, group.cancelled_by = True, None, ""

    # what time brings

    async def prune_groups(
        self, kept: Retention, *, most: int = 1000, dry_run: bool = False
    ) -> GroupsPruned:
        now, bounds = self._utc(), group_bounds(kept)
        past = [
            one
            for one in self._groups.values()
            if one.ended_at is not None
            and not one.is_gone
            and one.state in bounds
            and (now - one.ended_at).total_seconds() >= bounds[one.state]
        ]
        if dry_run:
            return GroupsPruned(len(past), sum(len(one.jobs) for one in past), done=True)
        gone = next((one for one in self._groups.values() if one.is_gone), None)
        if gone is not None:
            return GroupsPruned(0, self._remove_some(gone, most), done=False)
        for one in past:
            one.is_gone = True
        return GroupsPruned(len(past), 0, done=not past)

    def _remove_some(self, group: GroupRow, most: int) -> int:
        """Removes some jobs of a group, and with the last of them the group."""
        places = sorted(group.jobs)[:most]
        ids = {group.jobs.pop(place) for place in places}
        for row in [self._jobs.pop(id) for id in ids]:
            self._emptied[row.lane.hash] = row.lane
        self._logs = {key: said for key, said in self._logs.items() if key[0] not in ids}
        self._unsettled = [id for id in self._unsettled if id not in ids]
        if not group.jobs:
            del self._groups[group.head.id]
        return len(ids)

    async def cancel_abandoned(self, older_than_s: float, most: int = 100) -> list[UUID]:
        since = self._utc() - timedelta(seconds=older_than_s)
        staging = [one for one in self._groups.values() if one.state is GroupState.STAGING]
        old = [one.head.id for one in staging if one.staged_at <= since][:most]
        for id in old:
            await self.cancel_group(id, ABANDONED)
        return old

    async def examine_group(self, group: UUID, *, repair: bool = False) -> list[Finding]:
        self._now = self._utc()
        row = self._find_group(group)
        if row is None or row.state not in EXAMINED:
            return []
        rows = [self._jobs[row.jobs[place]] for place in sorted(row.jobs)]
        records = [self._record(one) for one in rows]
        counts = end_counts([one.state for one in rows])
        found = examined(GroupRecord(group, row.state, row.must_sweep, counts, records))
        if not repair or not found.findings:
            return found.findings
        for place, (unmet, marks) in found.counters.items():
            node = rows[place].node
            assert node is not None
            node.unmet, node.marks = unmet, marks
        row.must_sweep = True
        return [structs.replace(one, repaired=True) for one in found.findings]

    def _record(self, row: JobRow) -> NodeRecord:
        assert row.node is not None
        waiting, is_unsettled = self._waiting(row), row.job.id in self._unsettled
        return NodeRecord(row.job.id, _node_state(row, row.node), waiting, is_unsettled)

    def _filled(self, attempts: Sequence[Attempt]) -> list[Attempt]:
        """The attempts with the results that their arguments refer to."""
        found = []
        for job, key in wanted_results(attempts):
            node = self._jobs[job].node
            group = self._groups[node.group].jobs.values() if node else ()
            for other in (self._jobs[id] for id in group):
                if other.node is not None and other.node.node.key == key:
                    size = len(other.job.result or b"")
                    found.append((job, key, NodeResult(other.state, size, other.job.result)))
        return fill(attempts, by_job(found))

    # showing

    def _find_group(self, ref: UUID | int) -> GroupRow | None:
        shown = (one for one in self._groups.values() if not one.is_gone)
        return next((one for one in shown if ref in (one.head.id, one.number)), None)

    async def group(self, ref: UUID | int) -> Group | None:
        group = self._find_group(ref)
        if group is None:
            return None
        counts = {state.value: count for state, count in self._counts(group).items()}
        return structs.replace(_shown(group), counts=counts)

    async def groups(self, wanted: GroupFilter) -> list[Group]:
        found = [_shown(one) for one in self._groups.values() if _matches(one, wanted)]
        return sorted(found, key=lambda one: -one.number)[: wanted.limit]

    async def nodes(self, group: UUID, after: int = -1, most: int = 1000) -> list[NodeView]:
        row = self._find_group(group)
        places = sorted(place for place in (row.jobs if row else ()) if place > after)[:most]
        return [self._node_view(self._jobs[row.jobs[place]], row) for place in places if row]

    def _node_view(self, row: JobRow, group: GroupRow) -> NodeView:
        assert row.node is not None
        node = row.node.node
        keys = [self._jobs[group.jobs[place]].node for place in node.after]
        return NodeView(
            key=node.key,
            job=row.job.id,
            number=row.job.number,
            kind=row.job.kind,
            state=row.state,
            after=tuple(other.node.key for other in keys if other),
            on=Condition(node.on),
            unmet=row.node.unmet,
        )

    async def explain(self, job: Job) -> Facts:
        facts = await super().explain(job)
        return structs.replace(facts, node=self._node_facts(self._jobs[job.id]))

    def _node_facts(self, row: JobRow) -> NodeFacts | None:
        if row.node is None or self._groups[row.node.group].is_gone:
            return None
        group, node = self._groups[row.node.group], row.node.node
        others = [self._jobs[group.jobs[place]] for place in node.after if place in group.jobs]
        live = [one for one in others if one.state not in TERMINAL][:MOST_SHOWN]
        return NodeFacts(
            key=node.key,
            group=_shown(group),
            on=Condition(node.on),
            after=len(node.after),
            unmet=row.node.unmet,
            waits_for=tuple((one.node.node.key, one.state) for one in live if one.node),
        )


def _node_state(row: JobRow, node: NodeRow) -> NodeState:
    return NodeState(node.node.key, row.state, sorted(set(node.node.after)))


def _paused(paused: bool) -> GroupState:
    return GroupState.PAUSED if paused else GroupState.RUNNING


def _parent(row: JobRow, node: NodeRow) -> Parent:
    return Parent(row.job.id, node.group, node.node.key, row.job.number, row.state, row.job.error)


def _same_key(one: JobRow, other: JobRow) -> bool:
    key = other.job.unique_key
    return key is not None and (one.job.kind, one.job.unique_key) == (other.job.kind, key)


def _shown(group: GroupRow) -> Group:
    head = group.head
    return Group(
        id=head.id,
        number=group.number,
        name=head.name,
        state=group.state,
        jobs=head.jobs,
        fail_fast=head.fail_fast,
        labels=head.labels,
        created_at=group.created_at,
        ended_at=group.ended_at,
        cancelled_by=group.cancelled_by,
    )


def _matches(group: GroupRow, wanted: GroupFilter) -> bool:
    return (
        not group.is_gone
        and (not wanted.states or group.state in wanted.states)
        and wanted.name in (None, group.head.name)
        and (wanted.before is None or group.number < wanted.before)
    )
