"""What runs one program to its end: `command` on this machine, `container` in an engine."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from msgspec import Struct

from longshore.executors.host.programs.output import ProgramOutput
from longshore.executors.output.attempt_log import AttemptLog
from longshore.model.attempt import Assignment
from longshore.model.program import AnyProgram, ProgramEnd

P = TypeVar("P", bound=AnyProgram)


class RunningProgram(Struct, Generic[P], frozen=True):
    """One attempt at a program. Its arguments are filled in."""

    assignment: Assignment
    program: P
    folder: Path
    """The program's own folder: it may write there and nowhere else."""
    report: Path
    """The folder with the files by which a program tells its result and how far it is."""
    secrets: Path | None
    """The folder with its secrets, if it has some."""
    environ: Mapping[str, str]
    """Variables for it, beside those that it names itself; paths are as this machine has them."""
    log: AttemptLog
    """For steps and progress."""
    output: ProgramOutput
    """Takes what it prints."""
    memory_bytes: int | None = None
    """How much memory this attempt may use."""


class CannotBegin(Exception):
    """A program cannot be begun: this is how its attempt ends."""

    def __init__(self, end: ProgramEnd) -> None:
        super().__init__(end.words)
        self.end = end


class Runner(Protocol[P]):
    """Runs programs of one sort, any number at once.

    Of each, `prepare` is called first, then its inputs are brought into its folder, then `run`, and
    `discard` in any case.
    """

    async def open(self) -> None:
        """Makes ready, and removes what a dead predecessor left running."""

    async def prepare(self, running: RunningProgram[P]) -> None:
        """Makes ready what a program needs beside its files: its image, its container.

        Raises `CannotBegin` if that is not possible.
        """

    async def run(self, running: RunningProgram[P]) -> ProgramEnd:
        """Runs a program until nothing of it is left, and answers how it ended.

        If the task is cancelled, it asks the program to end, kills whatever is left of it after
        the grace that it was made with, and only then lets the cancellation through.
        """

    async def discard(self, running: RunningProgram[P]) -> None:
        """Removes whatever `prepare` and `run` left."""

    async def close(self) -> None:
        """Kills all that still runs."""
