"""The checkpoint of a program: brought before it begins, and saved when it asks.

A program asks by exiting with 85, and while it runs by making the file `LONGSHORE_CHECKPOINT`. The
file is removed when the checkpoint is saved: until then, the program should leave its files alone.
One that cannot be saved while the program runs is a line in its log, and the file goes all the
same: the program runs on, with the checkpoint that it had.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Final

from longshore.executors.host.programs.output import ProgramOutput
from longshore.executors.output.attempt_log import AttemptLog
from longshore.model.attempt import Assignment
from longshore.model.checkpoint import CheckpointView
from longshore.model.job import Progress
from longshore.model.program import CHECKPOINT_CODE, AnyProgram, Outcome, ProgramEnd
from longshore.ports.files import Files, FilesFailed, OnProgress, Saving

ASKED: Final = "checkpoint"
"""The name of the file by which a program asks."""
LOOK_EVERY_S: Final = 0.2


class Checkpoints:
    """The checkpoints of one attempt; nothing of all this if its program has no patterns."""

    def __init__(
        self,
        assignment: Assignment,
        program: AnyProgram,
        files: Files,
        log: AttemptLog,
        output: ProgramOutput,
    ) -> None:
        self._ticket = assignment.ticket
        self._patterns = program.checkpoint
        self._files = files
        self._log = log
        self._output = output
        self._sequence = count(1)

    def variables(self, report: Path) -> dict[str, str]:
        """What a program with a checkpoint finds in its environment."""
        return {"LONGSHORE_CHECKPOINT": str(report / ASKED)} if self._patterns else {}

    async def restore(self, work: Path) -> None:
        """Puts the files of the last checkpoint where they lay."""
        if not self._patterns:
            return
        self._log.step("restoring checkpoint")
        await self._files.restore(self._ticket, work, self._transferred)

    async def saved_after(self, end: ProgramEnd, work: Path) -> CheckpointView | None:
        """What is saved of a program that asked so by its end; raises `FilesFailed`."""
        asked = end.outcome is Outcome.EXIT and end.number == CHECKPOINT_CODE
        return await self._save(work, self._transferred) if asked and self._patterns else None

    @asynccontextmanager
    async def attended(self, work: Path, report: Path) -> AsyncIterator[None]:
        """Saves whenever the program asks, while the block runs."""
        if not self._patterns:
            yield
            return
        looking = asyncio.create_task(self._attend(work, report / ASKED))
        try:
            yield
        finally:
            looking.cancel()
            await asyncio.gather(looking, return_exceptions=True)

    async def _attend(self, work: Path, asked: Path) -> None:
        is_answered = True
        while is_answered:
            await asyncio.sleep(LOOK_EVERY_S)
            if _is_there(asked):
                await self._save_running(work)
                is_answered = _is_removed(asked)

    async def _save_running(self, work: Path) -> None:
        try:
            await self._save(work, _untold)
        except (FilesFailed, OSError) as error:
            self._output.write("stderr", f"no checkpoint was saved: {error}\n".encode())
        else:
            self._log.step("running")

    async def _save(self, work: Path, on_progress: OnProgress) -> CheckpointView:
        self._log.step("saving checkpoint")
        saving = Saving(self._patterns, next(self._sequence))
        return await self._files.save(self._ticket, saving, work, on_progress)

    def _transferred(self, done: int, total: int) -> None:
        self._log.progress(Progress(done, total, "bytes"))


def _untold(done: int, total: int) -> None:
    """While a program runs, the progress that is shown is its own."""


def _is_there(asked: Path) -> bool:
    return os.path.lexists(asked)


def _is_removed(asked: Path) -> bool:
    """Removes the file by which a program asked. A folder in its place would be asked for ever."""
    try:
        os.unlink(asked)
    except FileNotFoundError:
        pass
    except OSError:
        return False
    return True
