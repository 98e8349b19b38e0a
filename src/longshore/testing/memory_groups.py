"""The groups of `MemoryStore`: the plainest thing that keeps the port's contract for them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import timedelta
from uuid import UUID

from msgspec import structs

from longshore.core import effects
from longshore.core.dependencies import Marks, Parent, becomes, deliver, group_end, may_become
from longshore.core.effects import Change
from longshore.core.examining import EXAMINED, GroupRecord, NodeRecord, end_counts, examined
from longshore.core.group_words import shown_state
from longshore.core.lifecycle import TERMINAL
from longshore.core.reopening import NodeState, Reopening, retry_plan
from longshore.core.retention import group_bounds
from longshore.core.same_body import is_node
from longshore.core.why import Facts
from longshore.model.batch import MAX_GROUP_JOBS
from longshore.model.finding import Finding
from longshore.model.group import (
    ENDED_GROUPS,
    MOST_SHOWN,
    NOT_RUN,
    SCOPE,
    Condition,
    Group,
    GroupFilter,
    GroupPart,
    GroupProgress,
    GroupState,
    GroupSubmitted,
    GroupVerdict,
    Near,
    NodeFacts,
    NodeView,
    RetryPlan,
)
from longshore.model.job import Ended, Job, JobState, Refused
from longshore.model.notice import Notice
from longshore.model.retention import GroupsPruned, Retention
from longshore.ports import Hint, Settled
from longshore.store.rows import (
    ABANDONED,
    NodeItem,
    group_conflict,
    key_taken,
    node_items,
    unique_key_taken,
)
from longshore.testing.memory_additions import MemoryAdditions
from longshore.testing.memory_rows import GroupRow, JobRow, NodeRow, Note

NewCounts = Mapping[int, tuple[int, Marks]]
"""For each node, how many it waits for, and what the ends of the others told it."""


class MemoryGroups(MemoryAdditions):
    """The verbs of groups. Whoever ends a job of a group calls `_group_job_ended`."""

    # submitting

    async def submit_group(self, part: GroupPart) -> GroupSubmitted | Refused:
        self._now = self._utc()
        return self._submit_group(part, Counter())

    def _submit_group(self, part: GroupPart, ready: Counter[int]) -> GroupSubmitted | Refused:
        head = part.head
        known = self._groups.get(head.id)
        if known is not None and (known.head != head or known.run):
            return group_conflict(head.id)
        group = known or GroupRow(head, self._last_number + 1, self._now)
        is_open = group.state is GroupState.STAGING
        items = self._new_items(group, part) if is_open else []
        if isinstance(items, Refused):
            return items
        is_whole = is_open and len(group.jobs) + len(items) == head.jobs
        if is_whole and (refused := self._refused_scopes(group, items)):
            return refused
        group.staged_at = self._now
        if known is None:
            self._last_number += 1
            self._groups[head.id] = group
        for item in items:
            self._join(group, item)
        if is_whole:
            self._run(group, ready)
        return GroupSubmitted(head.id, group.number, group.state, len(group.jobs))

    def _new_items(self, group: GroupRow, part: GroupPart) -> list[NodeItem] | Refused:
        """The nodes that are not stored yet; a refusal if one cannot be."""
        items = node_items(part)
        if isinstance(items, Refused):
            return items
        for item in items:
            stored = group.jobs.get(item.place)
            if stored is not None and not is_node(item.node, item.body, self._node(stored).body):
                return group_conflict(group.head.id)
        new = [item for item in items if item.place not in group.jobs]
        taken = self._first_taken(group, new)
        if taken is not None:
            return key_taken(group.head.id, taken.node.key, taken.node.job, self._staging(taken))
        return new

    def _run(self, group: GroupRow, ready: Counter[int]) -> None:
        group.state = GroupState.RUNNING
        self._open_scopes(group)
        if not group.jobs:
            self._close(group)
        self._sweep_group(group, ready)
        self._hint(Hint.WORK)

    # upkeep

    def _group_job_ended(self, row: JobRow) -> None:
        if not self._node(row.job.id).open:
            self._unsettled.append(Note(row.job.id))

    def _deliver(self, notes: Sequence[Note], settled: Counter[int]) -> set[UUID]:
        """Nodes that closed reach those that depend on them, and the scopes that they are in.

        Answers groups with more to do.
        """
        reached: defaultdict[UUID, list[Parent]] = defaultdict(list)
        scopes: defaultdict[UUID, list[Parent]] = defaultdict(list)
        groups: set[UUID] = set()
        rows = [(note, self._jobs[note.job]) for note in notes]
        dependents = self._dependents({self._group_of(note) for note in notes})
        for note, row in rows:
            node = self._node(row.job.id)
            parent, group = _parent(row, node, note.is_early), self._groups[node.group]
            for child in dependents[row.job.id]:
                reached[child].append(parent)
            if node.node.scope is not None:
                scopes[group.jobs[node.node.scope]].append(parent)
            live = any(self._jobs[child].state not in TERMINAL for child in dependents[row.job.id])
            if not live or row.state in (JobState.FAILED, JobState.DEPENDENCY_FAILED):
                groups.add(node.group)
        for scope, parents in sorted(scopes.items()):
            self._tell_scope(self._jobs[scope], parents, groups)
        for child, parents in sorted(reached.items()):
            self._tell_node(self._jobs[child], parents, settled, groups)
        return groups

    def _dependents(self, groups: Iterable[UUID]) -> defaultdict[UUID, list[UUID]]:
        """The jobs that depend on each job of these groups."""
        found: defaultdict[UUID, list[UUID]] = defaultdict(list)
        for group in (self._groups[id] for id in groups):
            for id in group.jobs.values():
                for place in set(self._node(id).node.after) & group.jobs.keys():
                    found[group.jobs[place]].append(id)
        return found

    def _parents(self, row: JobRow) -> list[Parent]:
        """What a job depends on, as it would hear of it now."""
        node = self._node(row.job.id)
        jobs = self._groups[node.group].jobs
        found = []
        for place in set(node.node.after) & jobs.keys():
            one, own = self._jobs[jobs[place]], self._node(jobs[place])
            found.append(_parent(one, own, bool(own.open) or one.state not in TERMINAL))
        return found

    def _tell_node(
        self, row: JobRow, parents: list[Parent], settled: Counter[int], groups: set[UUID]
    ) -> None:
        node = self._node(row.job.id)
        node.unmet, node.marks, change = deliver(self._waiting(row), parents)
        self._wake(row, change, settled, groups)

    def _wake(
        self, row: JobRow, change: Change | None, settled: Counter[int], groups: set[UUID]
    ) -> None:
        """Makes a change to a job that waits, if its group lets it."""
        assert row.node is not None
        if change is None or row.state is not JobState.WAITING:
            return
        if not may_become(self._groups[row.node.group].state, change):
            return
        self._apply(row, change)
        if change.state is JobState.READY and row.job.kind not in NOT_RUN:
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
                change = becomes(self._waiting(row), self._parents(row))
                self._wake(row, change, settled, groups)
        group.must_sweep = False
        return groups

    async def settle(
        self,
        groups: Collection[UUID] = (),
        most: int = 1000,
        max_group_jobs: int = MAX_GROUP_JOBS,
    ) -> Settled:
        self._now, self._max_group_jobs = self._utc(), max_group_jobs
        ready, before = Counter[int](), self._ended_ids()
        notes, self._unsettled = self._unsettled[:most], self._unsettled[most:]
        more = self._deliver(notes, ready)
        for group in self._groups.values():
            if group.must_sweep:
                more |= self._sweep_group(group, ready)
        self._expand(most, ready)
        more |= self._to_expand()
        looked_at = [self._groups[id] for id in groups or [*self._groups] if id in self._groups]
        closed = [group for group in looked_at if self._ends(group)]
        unswept = {id for id, group in self._groups.items() if group.must_sweep}
        again = {self._group_of(note) for note in self._unsettled} | more | unswept
        again -= {group.head.id for group in closed}
        new = self._ended_ids() - before
        jobs = [row.job for id, row in self._jobs.items() if id in new]
        outcomes = [Ended(job.id, job.state, job.result, job.error) for job in jobs]
        outcomes += [Ended(one.head.id, JobState(one.state.value)) for one in closed]
        self._hint(*[Hint.WORK] * bool(ready), *[Hint.ENDED] * bool(outcomes), Hint.CANCEL)
        delayed = any(row.state is JobState.DELAYED for row in self._jobs.values())
        watched = any(group.head.watchers for group in closed)
        return Settled(ready, delayed, tuple(outcomes), frozenset(again), watched, len(closed))

    def _ended_ids(self) -> set[UUID]:
        return {id for id, row in self._jobs.items() if row.state in TERMINAL and row.node}

    def _group_of(self, note: Note) -> UUID:
        return self._node(note.job).group

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
        if group.head.watchers:
            how = group.round, JobState(group.state.value), None, None
            self._notices.append(Notice(group.head.id, *how, group.head.watchers, is_group=True))

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
        self._note_pause(group.head.id, False, self._utc())
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
        self._note_pause(group.head.id, paused, self._utc())
        return GroupVerdict(group.state.value)

    async def is_sweeping(self, ref: UUID | int) -> bool:
        group = self._find_group(ref)
        return group is not None and group.must_sweep

    async def retry_group(
        self,
        ref: UUID | int,
        by: str = "",
        request: UUID | None = None,
        *,
        keys: Sequence[str] = (),
        args: bytes | None = None,
        dry_run: bool = False,
    ) -> RetryPlan | None:
        self._now = self._utc()
        group = self._find_group(ref)
        if group is None:
            return None
        if request in group.retries:
            return group.retries[request]
        rows = self._rows_of(group)
        plan, found = retry_plan(group.head.id, group.state, self._node_states(group), keys)
        if not plan.refused and not dry_run:
            taken = [rows[place] for place in found.reopened if self._holder(rows[place])]
            if taken:
                return RetryPlan(group.head.id, refused=unique_key_taken(taken[0].job.unique_key))
            self._reopen(group, rows, found, by, request)
            for row in rows if args is not None else ():
                if row.node is not None and row.node.key in keys:
                    row.job = structs.replace(row.job, args=args)
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
            self._node(row.job.id).expanded, self._node(row.job.id).taken_from = 0, None
        for place in found.held:
            self._apply(rows[place], effects.HOLD[rows[place].state])
        self._count_anew(rows, found.counters, found.scopes)
        retired = [rows[place] for place in found.retired]
        for row in retired:
            if row.state in effects.CANCEL:
                self._apply(row, effects.CANCEL[row.state], by)
        self._unsettled = [
            note for note in self._unsettled if self._group_of(note) != group.head.id
        ]
        for row in retired:
            del group.jobs[self._node(row.job.id).place]
            row.node, row.job = None, structs.replace(row.job, group=None)
        group.state = GroupState.PAUSED if group.state is GroupState.PAUSED else GroupState.RUNNING
        group.round += group.ended_at is not None
        group.must_sweep, group.ended_at, group.cancelled_by = True, None, ""

    def _count_anew(self, rows: Sequence[JobRow], counters: NewCounts, scopes: NewCounts) -> None:
        """Nodes have these counters: of what they depend on, and of what is in their scopes."""
        for place, (unmet, marks) in counters.items():
            node = self._node(rows[place].job.id)
            node.unmet, node.marks = unmet, marks
        for place, (open, marks) in scopes.items():
            node = self._node(rows[place].job.id)
            node.open, node.scope_marks = open, marks
            node.cause = node.cause if marks else None

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
        self._unsettled = [note for note in self._unsettled if note.job not in ids]
        for row in [self._jobs.pop(id) for id in ids]:
            self._emptied[row.lane.hash] = row.lane
        self._logs = {key: said for key, said in self._logs.items() if key[0] not in ids}
        self._files.forget_logs(ids)
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
        rows, states = self._rows_of(row), self._node_states(row)
        records = [self._record(*one) for one in zip(rows, states, strict=True)]
        counts = end_counts([one.state for one in rows])
        found = examined(GroupRecord(group, row.state, row.must_sweep, counts, records))
        if not repair or not found.findings:
            return found.findings
        self._count_anew(rows, found.counters, found.scopes)
        self._unsettled += [Note(rows[place].job.id) for place in found.closed]
        row.must_sweep = True
        return [structs.replace(one, repaired=True) for one in found.findings]

    async def group_progress(self, after: int = 0, most: int = 1000) -> list[GroupProgress]:
        live = [one for one in self._groups.values() if one.ended_at is None and one.number > after]
        return [
            GroupProgress(one.head.id, one.number, one.state, self._ended_jobs(one))
            for one in sorted(live, key=lambda one: one.number)[:most]
        ]

    def _ended_jobs(self, group: GroupRow) -> int:
        return sum(count for state, count in self._counts(group).items() if state in TERMINAL)

    def _record(self, row: JobRow, state: NodeState) -> NodeRecord:
        node, id = self._node(row.job.id), row.job.id
        is_unsettled = any(note.job == id for note in self._unsettled)
        scope = node.open, node.scope_marks
        return NodeRecord(id, state, self._waiting(row), is_unsettled, *scope)

    def _rows_of(self, group: GroupRow) -> list[JobRow]:
        return [self._jobs[group.jobs[place]] for place in sorted(group.jobs)]

    def _node_states(self, group: GroupRow) -> list[NodeState]:
        """The nodes as the core sees them: places that are free are left out."""
        index = {place: at for at, place in enumerate(sorted(group.jobs))}
        return [
            NodeState(
                key=node.key,
                state=self._jobs[group.jobs[place]].state,
                after=sorted(index[at] for at in set(node.node.after) & index.keys()),
                scope=None if node.node.scope is None else index.get(node.node.scope),
                adds=node.node.job.kind != SCOPE,
                is_added=place >= group.head.jobs,
            )
            for place, node in ((one, self._node(group.jobs[one])) for one in index)
        ]

    # showing

    async def group(self, ref: UUID | int) -> Group | None:
        group = self._find_group(ref)
        if group is None:
            return None
        counts = {state.value: count for state, count in self._counts(group).items()}
        shown = [self._jobs[id].shown for id in group.jobs.values()]
        is_open = [one.state is not shown_state(one) for one in shown]
        taken = [self._node(id).taken_from for id in group.jobs.values()]
        return structs.replace(
            _shown(group),
            counts=counts,
            open=sum(is_open),
            taken_over=len(taken) - taken.count(None),
        )

    async def groups(self, wanted: GroupFilter) -> list[Group]:
        found = [_shown(one) for one in self._groups.values() if _matches(one, wanted)]
        return sorted(found, key=lambda one: -one.number)[: wanted.limit]

    async def nodes(self, group: UUID, after: int = -1, most: int = 1000) -> list[NodeView]:
        row = self._find_group(group)
        places = sorted(row.jobs if row else ())[after + 1 :][:most]
        return [self._node_view(self._jobs[row.jobs[place]], row) for place in places if row]

    async def nodes_near(
        self, group: UUID, jobs: Sequence[UUID], near: Near, most: int = 1000
    ) -> list[NodeView]:
        row = self._find_group(group)
        if row is None:
            return []
        places = {id: place for place, id in row.jobs.items()}
        own = {places[job] for job in jobs if job in places}
        after = {place: set(self._node(id).node.after) for place, id in row.jobs.items()}
        found = {
            Near.THESE: own,
            Near.AFTER: set[int]().union(*(after[place] for place in own)) & row.jobs.keys(),
            Near.DEPENDENTS: {place for place, others in after.items() if others & own},
        }[near]
        return [self._node_view(self._jobs[row.jobs[at]], row) for at in sorted(found)[:most]]

    def _node_view(self, row: JobRow, group: GroupRow) -> NodeView:
        node = self._node(row.job.id)
        scope = node.node.scope
        return NodeView(
            key=node.key,
            job=row.job.id,
            number=row.job.number,
            kind=row.job.kind,
            state=row.state,
            after=tuple(self._keys(group, node.node.after)),
            on=Condition(node.node.on),
            unmet=node.unmet,
            scope=next(iter(self._keys(group, () if scope is None else (scope,))), None),
            open=node.open,
            taken_from=node.taken_from,
        )

    def _keys(self, group: GroupRow, places: Iterable[int]) -> list[str]:
        """The keys of the nodes at these places, as far as there are any yet."""
        return [self._node(group.jobs[at]).key for at in places if at in group.jobs]

    async def explain(self, job: Job) -> Facts:
        facts = await super().explain(job)
        return structs.replace(facts, node=self._node_facts(self._jobs[job.id]))

    def _is_closed(self, row: JobRow) -> bool:
        return row.state in TERMINAL and not self._node(row.job.id).open

    def _node_facts(self, row: JobRow) -> NodeFacts | None:
        if row.node is None or self._groups[row.node.group].is_gone:
            return None
        group, node = self._groups[row.node.group], row.node.node
        others = [self._jobs[group.jobs[place]] for place in node.after if place in group.jobs]
        live = [one for one in others if not self._is_closed(one)][:MOST_SHOWN]
        return NodeFacts(
            key=node.key,
            group=_shown(group),
            on=Condition(node.on),
            after=len(node.after),
            unmet=row.node.unmet,
            waits_for=tuple((one.node.node.key, one.state) for one in live if one.node),
            taken_from=row.node.taken_from,
        )


def _paused(paused: bool) -> GroupState:
    return GroupState.PAUSED if paused else GroupState.RUNNING


def _parent(row: JobRow, node: NodeRow, is_early: bool) -> Parent:
    who = row.job.id, node.group, node.key, row.job.number
    scope = node.scope_marks, node.cause, is_early
    return Parent(*who, row.state, row.job.error, *scope)


def _shown(group: GroupRow) -> Group:
    head = group.head
    return Group(
        id=head.id,
        number=group.number,
        name=head.name,
        state=group.state,
        jobs=max(head.jobs, len(group.jobs)),
        fail_fast=head.fail_fast,
        labels=head.labels,
        created_at=group.created_at,
        ended_at=group.ended_at,
        cancelled_by=group.cancelled_by,
        run_of=None if group.run is None else group.run.source,
        round=group.round,
        watchers=head.watchers,
        limit=head.limit,
    )


def _matches(group: GroupRow, wanted: GroupFilter) -> bool:
    return (
        not group.is_gone
        and (not wanted.states or group.state in wanted.states)
        and wanted.name in (None, group.head.name)
        and (wanted.before is None or group.number < wanted.before)
    )
