"""How `MemoryStore` forgets what is over."""

from __future__ import annotations

from collections import Counter
from datetime import datetime

from longshore.core.lifecycle import OWNED
from longshore.core.retention import Seen, Walk
from longshore.model.retention import Pruned, Retention
from longshore.testing.memory_reads import MemoryReads
from longshore.testing.memory_rows import JobRow


class MemoryPruning(MemoryReads):
    """The verbs that remove jobs and workers. Lanes stay: they once held a job."""

    async def prune(
        self, kept: Retention, *, after: int = 0, most: int = 1000, dry_run: bool = False
    ) -> Pruned:
        """Removes ended jobs past their bounds, of the next `most` jobs after a number."""
        now = self._utc()
        walk = Walk(kept, Counter(row.state for row in self._jobs.values()), after)
        later = [row for row in self._jobs.values() if row.number > after]
        looked_at = [] if walk.over else later[:most]
        places = walk.through([_seen(row, now) for row in looked_at])
        gone = [looked_at[place] for place in places]
        if not dry_run:
            self._remove(gone)
        removed = dict(Counter(row.state for row in gone))
        return Pruned(removed, walk.up_to, walk.over or len(later) <= most)

    def _remove(self, gone: list[JobRow]) -> None:
        ids = {row.id for row in gone}
        for row in gone:
            self._emptied[row.lane.hash] = row.lane
            del self._jobs[row.id]
        for key in [key for key in self._logs if key[0] in ids]:
            del self._logs[key]

    async def forget_workers(self, older_than_s: float, most: int = 1000) -> int:
        """Removes workers that ended so long ago and own no job; answers how many."""
        now = self._utc()
        owners = {row.worker for row in self._jobs.values() if row.state in OWNED}
        gone = [
            worker
            for worker, row in self._workers.items()
            if not row.alive and row.ended_at is not None and worker not in owners
            if (now - row.ended_at).total_seconds() >= older_than_s
        ][:most]
        for worker in gone:
            del self._workers[worker]
        return len(gone)

    async def forget_lanes(self, most: int = 1000) -> int:
        """Removes lanes that hold no job any more; answers how many."""
        used = {row.lane.hash for row in self._jobs.values()}
        gone = [hash for hash in self._emptied if hash not in used][:most]
        for hash in gone:
            del self._emptied[hash]
        return len(gone)


def _seen(row: JobRow, now: datetime) -> Seen:
    ended_s = None if row.ended_at is None else (now - row.ended_at).total_seconds()
    return Seen(row.number, row.state, (now - row.created_at).total_seconds(), ended_s)
