"""The files of a worker that has a gateway, made ready when a program first needs some.

Most programs need none, and the client of gateways takes a while to import.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from longshore.config import FileSettings
from longshore.errors import LongshoreError
from longshore.model.checkpoint import CheckpointView
from longshore.model.fileset import NewVersion
from longshore.model.program import Input, Outcome, Output
from longshore.ports.files import FilesFailed, OnProgress, Saving

if TYPE_CHECKING:
    from longshore.files.worker_files import WorkerFiles


class GatewayFiles:
    """Brings inputs from gateways, and takes outputs there (see `ports.files.Files`)."""

    def __init__(self, settings: FileSettings) -> None:
        self._settings = settings
        self._opened: WorkerFiles | None = None

    async def bring(self, ticket: str, wanted: Input, into: Path, on_progress: OnProgress) -> None:
        """Puts the files of an input into an attempt's folder."""
        await self._files().bring(ticket, wanted, into, on_progress)

    async def restore(self, ticket: str, into: Path, on_progress: OnProgress) -> int | None:
        """Puts the files of the job's checkpoint into an attempt's folder."""
        return await self._files().restore(ticket, into, on_progress)

    async def save(
        self, ticket: str, saved: Saving, found_in: Path, on_progress: OnProgress
    ) -> CheckpointView:
        """Stores files of an attempt's folder for the next attempt."""
        return await self._files().save(ticket, saved, found_in, on_progress)

    async def take(
        self, ticket: str, made: Output, found_in: Path, on_progress: OnProgress
    ) -> NewVersion:
        """Stores the files of an output in an attempt's folder."""
        return await self._files().take(ticket, made, found_in, on_progress)

    def _files(self) -> WorkerFiles:
        if self._opened is None:
            from longshore.files.worker_files import FileTerms, WorkerFiles

            try:
                self._opened = WorkerFiles(FileTerms.of(self._settings))
            except LongshoreError as error:
                raise FilesFailed(Outcome.TRANSFER_FAILED, str(error)) from None
        return self._opened
