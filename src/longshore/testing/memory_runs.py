"""New runs of groups in `MemoryStore`: what every store does in steps, without any SQL."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from uuid import UUID

from msgspec import structs

from longshore.core.group_limits import in_group, out_of_group
from longshore.core.new_run import run_plan, taken_over
from longshore.model.batch import MAX_GROUP_JOBS
from longshore.model.group import MOST_COPIED, GroupState, GroupSubmitted, RunPlan
from longshore.model.ids import derive_id
from longshore.model.job import JobState
from longshore.store.rows import unique_key_taken
from longshore.store.run_steps import (
    PlannedCopy,
    changed_meanwhile,
    is_no_run,
    packed,
    unpacked,
)
from longshore.testing.memory_groups import MemoryGroups
from longshore.testing.memory_rows import GroupRow, JobRow, NodeRow, Run, new_row


class MemoryNewRuns(MemoryGroups):
    """The verb that runs groups anew."""

    async def rerun_group(
        self,
        ref: UUID | int,
        run: UUID,
        *,
        keys: Sequence[str] = (),
        dry_run: bool = False,
        most: int = MOST_COPIED,
        max_group_jobs: int = MAX_GROUP_JOBS,
    ) -> RunPlan | None:
        self._now = self._utc()
        source, group = self._find_group(ref), self._groups.get(run)
        if dry_run or group is None:
            if source is None:
                return None
            decided = self._decide(source, keys, max_group_jobs)
            if dry_run or decided.plan.refused:
                return decided.plan
            if (key := self._key_taken(source, decided.copies)) is not None:
                return RunPlan(source.head.id, refused=unique_key_taken(key))
            group = self._begin_run(source, run, decided)
        made = group.run
        if made is None or ref not in (made.source, made.plan.group):
            raise is_no_run(run, ref)
        if group.state is GroupState.STAGING:
            if source is None or source.ended_at != made.ended_at:
                return changed_meanwhile(made.plan.group)
            copies = made.copies[len(group.jobs) :][:most]
            if (key := self._key_taken(source, copies)) is not None:
                return RunPlan(source.head.id, refused=unique_key_taken(key))
            self._copy(source, group, copies)
        answer = GroupSubmitted(run, group.number, group.state, len(group.jobs))
        return structs.replace(made.plan, run=answer)

    def _decide(self, source: GroupRow, keys: Sequence[str], max_jobs: int) -> Run:
        nodes, places = self._node_states(source), sorted(source.jobs)
        is_whole = len(nodes) >= source.head.jobs
        plan, copies = run_plan(
            source.head.id, source.state, nodes, keys, is_whole=is_whole, max_jobs=max_jobs
        )
        return Run(plan, source.number, source.ended_at, unpacked(packed(copies, places)))

    def _key_taken(self, source: GroupRow, copies: Sequence[PlannedCopy]) -> str | None:
        """A unique key that two of the jobs that run anew have, or a live job."""
        rows = [self._jobs[source.jobs[one.place]] for one in copies if not one.is_taken]
        rows = [row for row in rows if row.job.unique_key is not None]
        count = Counter((row.job.kind, row.job.unique_key) for row in rows)
        for row in rows:
            if count[row.job.kind, row.job.unique_key] > 1 or self._holder(row) is not None:
                return row.job.unique_key
        return None

    def _begin_run(self, source: GroupRow, run: UUID, decided: Run) -> GroupRow:
        self._last_number += 1
        head = structs.replace(source.head, id=run)
        self._groups[run] = GroupRow(head, self._last_number, self._now, run=decided)
        return self._groups[run]

    def _copy(self, source: GroupRow, group: GroupRow, copies: Sequence[PlannedCopy]) -> None:
        for one in copies:
            self._copy_node(source, group, one)
        group.staged_at = self._now
        if group.run is not None and len(group.jobs) == len(group.run.copies):
            group.state, group.must_sweep = GroupState.RUNNING, True

    def _copy_node(self, source: GroupRow, group: GroupRow, copy: PlannedCopy) -> None:
        original = self._jobs[source.jobs[copy.place]]
        node, id = self._node(original.job.id), derive_id(group.head.id, copy.place)
        given = structs.replace(original.submission, id=id, args=original.job.args)
        if group.head.limit is not None:
            given = in_group(out_of_group(given, source.head.id), group.head.id, group.head.limit)
        self._last_number += 1
        row = new_row(given, original.body, self._last_number, self._now, JobState.WAITING)
        known = structs.replace(node.node, job=given)
        row.node = NodeRow(known, group.head.id, copy.place, copy.unmet, node.body, open=copy.open)
        row.job = structs.replace(row.job, group=group.head.id)
        if copy.is_taken:
            self._take_over(row, original, source.number)
            row.node.expanded, row.node.taken_from = node.expanded, original.job.number
        self._jobs[id], group.jobs[copy.place] = row, id

    def _take_over(self, row: JobRow, original: JobRow, group: int) -> None:
        """The job is there as succeeded, with the result of another one."""
        row.job = structs.replace(
            row.job,
            history=(),
            result=original.job.result,
            ended_at=self._now,
            deadline_at=None,
        )
        info = taken_over(original.job.number, group)
        row.enter(JobState.SUCCEEDED, self._now, info=info)
