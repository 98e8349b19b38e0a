"""Which workers have which files at hand: memory of a dispatcher, bounded, that it may lose.

A worker to which a job was sent has the job's inputs in its cache soon, what the job makes too. So
a job that needs the same files goes there, if a slot is free. If the memory is wrong, that costs a
transfer, which a job of another worker costs as well.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final
from uuid import UUID

from longshore.model.worker import FileKey

MOST_FILES: Final = 10_000
"""So many jobs and filesets are remembered: those that were needed last."""
MOST_WORKERS: Final = 16
"""So many workers for each: those that got it last."""
ANYWHERE: Final = 3
"""Every third attempt goes by free slots alone: perhaps it is the worker that is to blame."""


class FilesSent:
    """The workers to which jobs with these files went, by job and by fileset."""

    def __init__(self) -> None:
        self.workers: dict[FileKey, dict[UUID, None]] = {}

    def note(self, worker: UUID, files: Iterable[FileKey]) -> None:
        """A worker gets these files."""
        for file in files:
            having = self.workers.pop(file, {})
            having.pop(worker, None)
            having[worker] = None
            if len(having) > MOST_WORKERS:
                del having[next(iter(having))]
            self.workers[file] = having
            if len(self.workers) > MOST_FILES:
                del self.workers[next(iter(self.workers))]


def nearest(
    job: UUID,
    attempts: int,
    needed: Sequence[FileKey],
    workers: Mapping[FileKey, Collection[UUID]],
    free: Collection[UUID],
) -> UUID | None:
    """The free worker that had this job, otherwise the one that has most of what it needs.

    Of equal ones, the first. None if none of them has anything, and every third time: `attempts`
    counts those before.
    """
    if (attempts + 1) % ANYWHERE == 0:
        return None
    if (mine := _newest(workers.get(job, ()), free)) is not None:
        return mine
    having = [some for file in needed if (some := workers.get(file))]
    if not having:
        return None
    counts = {worker: sum(worker in some for some in having) for worker in free}
    best = max(counts, key=counts.__getitem__, default=None)
    return best if best is not None and counts[best] else None


def _newest(having: Collection[UUID], free: Collection[UUID]) -> UUID | None:
    return next((worker for worker in reversed([*having]) if worker in free), None)
