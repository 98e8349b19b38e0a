"""What programs need of filesets, on a worker."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from msgspec import Struct

from longshore.model.checkpoint import CheckpointView
from longshore.model.fileset import NewVersion
from longshore.model.program import Input, Outcome, Output

OnProgress = Callable[[int, int], None]
"""Called with how many bytes are there, of how many in all."""


class FilesFailed(Exception):
    """Files could not be brought or taken. The attempt ends with this outcome.

    The words name the fileset, and what is missing or wrong.
    """

    def __init__(self, outcome: Outcome, words: str) -> None:
        super().__init__(words)
        self.outcome = outcome


class Saving(Struct, frozen=True):
    """Which files of an attempt's folder to save; `sequence` counts the saves of the attempt."""

    patterns: tuple[str, ...]
    sequence: int


class Files(Protocol):
    """Brings the inputs of an attempt, and takes its outputs; raises `FilesFailed`.

    `ticket` is that of the attempt.
    """

    async def bring(self, ticket: str, wanted: Input, into: Path, on_progress: OnProgress) -> None:
        """Puts the files of an input below its `path` in a folder, where they may be changed.

        `into` is the folder of the attempt itself: the way below it may hold links, which are
        refused.
        """

    async def restore(self, ticket: str, into: Path, on_progress: OnProgress) -> int | None:
        """Puts the files of the job's checkpoint where they lay; answers how many there are.

        They take the place of what is there. None if the job has no checkpoint.
        """

    async def save(
        self, ticket: str, saved: Saving, found_in: Path, on_progress: OnProgress
    ) -> CheckpointView:
        """Stores files as the checkpoint of the job: the next attempt begins with them."""

    async def take(
        self, ticket: str, made: Output, found_in: Path, on_progress: OnProgress
    ) -> NewVersion:
        """Stores the files of an output; they become a version with the end of the attempt.

        `found_in` is the folder of the attempt itself, as with `bring`: the program may have put a
        link in the place of the output's `path`.
        """
