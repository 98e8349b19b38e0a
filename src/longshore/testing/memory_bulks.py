"""Bulks in `MemoryStore`."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import assert_never
from uuid import UUID

from msgspec import structs

from longshore.core import bulks as rules
from longshore.core.effects import CANCEL
from longshore.core.lanes import lane_of
from longshore.model.bulk import (
    BulkAction,
    BulkAdvance,
    BulkPage,
    BulkRun,
    BulkState,
    NewBulk,
)
from longshore.model.job import CancelVerdict, Refused, RetryVerdict
from longshore.ports import Hint
from longshore.store.bulk_rows import too_many_bulks
from longshore.testing.memory_reads import MemoryReads
from longshore.testing.memory_rows import JobRow


class MemoryBulks(MemoryReads):
    """The verbs about bulks, over a list."""

    @abstractmethod
    async def cancel(
        self, refs: Sequence[UUID | int], by: str = ""
    ) -> list[tuple[UUID | None, CancelVerdict]]:
        """Cancels jobs."""

    @abstractmethod
    async def retry(
        self, refs: Sequence[UUID | int], by: str = "", request: UUID | None = None
    ) -> list[tuple[UUID | None, RetryVerdict]]:
        """Opens a new round for jobs."""

    async def put_bulk(self, new: NewBulk, most: int) -> BulkRun | Refused:
        if (known := await self.bulk(new.id)) is not None:
            return known
        if len(await self.running_bulks()) >= most:
            return too_many_bulks(new, most)
        number = max(self._bulks, default=0) + 1
        made = rules.begun(new, number, self._last_number, self._utc())
        self._bulks[number] = made
        ended = [one.number for one in self._bulks.values() if one.ended_at is not None]
        for number in sorted(ended)[: -rules.BULKS_KEPT]:
            del self._bulks[number]
        return made

    async def bulk(self, ref: UUID | int) -> BulkRun | None:
        found = (one for one in self._bulks.values() if ref in (one.number, one.new.id))
        return next(found, None)

    async def bulks(self, before: int | None = None, most: int = 50) -> list[BulkRun]:
        found = [one for one in self._bulks.values() if before is None or one.number < before]
        return sorted(found, key=lambda one: one.number, reverse=True)[:most]

    async def running_bulks(self) -> list[BulkRun]:
        return [one for one in self._bulks.values() if one.state is BulkState.RUNNING]

    async def stop_bulk(self, ref: UUID | int, by: str = "") -> BulkRun | None:
        known = await self.bulk(ref)
        if known is not None:
            known = self._bulks[known.number] = rules.stopped(known, by, self._utc())
        return known

    async def advance_bulk(self, page: BulkPage) -> BulkAdvance | None:
        known = await self.bulk(page.bulk)
        if known is None or known.version != page.version or known.state is not BulkState.RUNNING:
            return None
        found = (await self.jobs(rules.look_again(known, page))).jobs if page.jobs else ()
        meant = [job for job in found if rules.is_meant(known.new, job)]
        refused = [(job.number, why) for job in meant if (why := rules.why_not(known.new, job))]
        rows = [self._jobs[job.id] for job in meant if not rules.why_not(known.new, job)]
        ends = tuple(row.job.id for row in rows if row.state in CANCEL and CANCEL[row.state].ends)
        taken = await self._act(known, rows)
        count = len(rows) - len(taken)
        after = rules.advanced(known, page, count, refused + taken, (), self._utc())
        self._bulks[known.number] = after
        if known.new.action is not BulkAction.CANCEL:
            self._hint(Hint.WORK)
            return BulkAdvance(after, is_ready=count > 0)
        stops = tuple(row.job.id for row in rows if row.job.id not in ends)
        return BulkAdvance(after, ends, stops)

    async def _act(self, bulk: BulkRun, rows: Sequence[JobRow]) -> list[tuple[int, str]]:
        """Does the action; answers the jobs whose unique key was taken."""
        new, ids, by = bulk.new, [row.job.id for row in rows], rules.done_by(bulk)
        match new.action:
            case BulkAction.CANCEL:
                await self.cancel(ids, by)
            case BulkAction.RETRY:
                verdicts = [verdict for _, verdict in await self.retry(ids, by)]
                return [
                    (row.job.number, rules.KEY_TAKEN)
                    for row, verdict in zip(rows, verdicts, strict=True)
                    if verdict is not RetryVerdict.RETRIED
                ]
            case BulkAction.PRIORITY:
                for row in rows:
                    row.job = structs.replace(row.job, priority=new.priority)
            case BulkAction.MOVE:
                assert new.queue is not None
                for row in rows:
                    row.job = structs.replace(row.job, queue=new.queue)
                    self._emptied[row.lane.hash] = row.lane
                    row.lane = lane_of(new.queue, row.job.kind, row.job.target)
            case BulkAction.DELETE:
                for row in rows:
                    self._drop_job(row)
            case _:
                assert_never(new.action)
        return []
