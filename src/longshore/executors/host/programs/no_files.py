"""What a worker that reaches no gateway says of files."""

from __future__ import annotations

from pathlib import Path
from typing import NoReturn

from longshore.model.checkpoint import CheckpointView
from longshore.model.fileset import NewVersion
from longshore.model.program import Input, Outcome, Output
from longshore.ports.files import FilesFailed, OnProgress, Saving

_ADVICE = "this worker has no files_url; set it to the address of a gateway"


class NoFiles:
    """Refuses every input and output (see `ports.files.Files`)."""

    async def bring(self, ticket: str, wanted: Input, into: Path, on_progress: OnProgress) -> None:
        """Refuses an input."""
        _refuse(Outcome.INPUT_MISSING, f"fileset '{wanted.fileset}' cannot be brought: {_ADVICE}")

    async def restore(self, ticket: str, into: Path, on_progress: OnProgress) -> int | None:
        """Refuses to begin what could not be saved."""
        _refuse(Outcome.NOT_STARTED, f"it has a checkpoint, which cannot be kept: {_ADVICE}")

    async def save(
        self, ticket: str, saved: Saving, found_in: Path, on_progress: OnProgress
    ) -> CheckpointView:
        """Refuses a checkpoint."""
        _refuse(Outcome.OUTPUT_REFUSED, f"the checkpoint cannot be kept: {_ADVICE}")

    async def take(
        self, ticket: str, made: Output, found_in: Path, on_progress: OnProgress
    ) -> NewVersion:
        """Refuses an output."""
        _refuse(Outcome.OUTPUT_REFUSED, f"fileset '{made.fileset}' cannot be stored: {_ADVICE}")


def _refuse(outcome: Outcome, words: str) -> NoReturn:
    raise FilesFailed(outcome, words)
