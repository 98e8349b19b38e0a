"""Remembers which workers got which files, for the scheduler: what it forgets costs a transfer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from uuid import UUID

from longshore.core.scheduler import NO_INPUTS, Scheduler
from longshore.model.attempt import Attempt
from longshore.model.job import Submission
from longshore.model.worker import FileKey
from longshore.payload.needed_files import Needing, files_of, inputs_of


class FileHints:
    """Tells a scheduler about files: those that submits need, those that workers were sent."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler

    def inputs(self, submits: Sequence[Submission]) -> Mapping[int, Sequence[FileKey]]:
        """What submits need of the files that some worker has, by their places."""
        kinds, having = self._scheduler.file_kinds, self._scheduler.files.workers
        if not kinds or not having:
            return NO_INPUTS
        return {
            place: inputs_of(Needing(job.id, job.kind, job.args), kinds)
            for place, job in enumerate(submits)
            if job.kind in kinds
        }

    def gave(self, worker: UUID, attempts: Sequence[Attempt]) -> None:
        """A worker gets these attempts, and so their files."""
        kinds = self._scheduler.file_kinds
        for one in attempts if kinds else ():
            if one.kind in kinds:
                files = files_of(Needing(one.id, one.kind, one.args), kinds)
                self._scheduler.files.note(worker, files)
