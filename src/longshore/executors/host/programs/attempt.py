"""One attempt at a program, from its folders to its report.

    allocated → (image, container) → pulling fileset: X → running → pushing fileset: X → finished

A program with a checkpoint has `restoring checkpoint` before it runs, and `saving checkpoint`
whenever it asks. Each is a step of the job. The first that goes wrong ends the attempt, and the
later ones are left out. What an end means, `core.outcomes` says.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Collection
from pathlib import Path
from time import monotonic
from typing import Final, Generic, TypeVar

from msgspec import Struct, structs

from longshore.core.outcomes import goes_on, memory_for, report_of, wanted_outputs
from longshore.errors import InvalidInput
from longshore.executors.host.failures import refused
from longshore.executors.host.programs.checkpoints import Checkpoints
from longshore.executors.host.programs.folders import FolderKeeper, Folders, variables
from longshore.executors.host.programs.output import Echo, ProgramOutput
from longshore.executors.host.programs.report_files import ProgressFile, read_result
from longshore.executors.host.programs.runner import CannotBegin, Runner, RunningProgram
from longshore.executors.output.attempt_log import AttemptLog
from longshore.model.attempt import Assignment
from longshore.model.checkpoint import CheckpointView
from longshore.model.fileset import NewVersion
from longshore.model.job import Progress, Reason
from longshore.model.log import LogLimits
from longshore.model.program import AnyProgram, Command, Outcome, ProgramEnd, PublishOn
from longshore.model.reports import (
    CrashReport,
    FailureReport,
    NotBegunReport,
    Report,
    SkipReport,
    SnoozeReport,
    SuccessReport,
)
from longshore.model.usage import Usage
from longshore.ports.files import Files, FilesFailed

P = TypeVar("P", bound=AnyProgram)

LATE_S: Final = 1.0
"""If it takes longer than this until a program begins, its worker is told when it does."""
NO_ROOM_S: Final = 5.0
"""How long an attempt waits for which the machine had no process left."""
_NO_ROOM: Final = frozenset({errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE})
_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})


class Means(Struct, Generic[P], frozen=True):
    """With what a host runs programs."""

    runner: Runner[P]
    files: Files
    folders: FolderKeeper
    limits: LogLimits
    secrets: str = ""
    """The folder of the worker's secrets."""
    echo: Echo | None = None
    on_begun: Callable[[int], None] = lambda token: None
    """Called with the token of an attempt that begins long after it was started."""


async def attempt(assignment: Assignment, program: P, log: AttemptLog, means: Means[P]) -> Report:
    """Runs a program, and answers what to report of it."""
    output = ProgramOutput(log, assignment.number, means.limits, means.echo)
    log.step("allocated")
    try:
        return await _Attempt(assignment, program, log, output, means).report()
    except CannotBegin as error:
        end = error.end
    except FilesFailed as error:
        end = ProgramEnd(error.outcome, None, str(error))
    except OSError as error:
        if error.errno in _NO_ROOM:
            note = f"this machine cannot start a process: {error.strerror}"
            return SnoozeReport(*assignment.key, NO_ROOM_S, note)
        if error.errno not in _FULL:
            raise
        end = ProgramEnd(Outcome.DISK_FULL, None, f"the worker's disk is full: {error}")
    log.step("finished")
    return _failed(assignment, program, end, output)


class _Attempt(Generic[P]):
    def __init__(
        self,
        assignment: Assignment,
        program: P,
        log: AttemptLog,
        output: ProgramOutput,
        means: Means[P],
    ) -> None:
        self._assignment = assignment
        self._program = program
        self._log = log
        self._output = output
        self._means = means
        self._checkpoints = Checkpoints(assignment, program, means.files, log, output)
        self._started = monotonic()

    async def report(self) -> Report:
        """What to report, once everything is done and removed."""
        keeper = self._means.folders
        folders = keeper.make(self._assignment, self._program, self._means.secrets)
        running = self._running(folders)
        try:
            await self._means.runner.prepare(running)
            await self._bring(folders.work)
            end = await self._run(running, folders.progress)
            return _measured(await self._end(end, folders), end.usage)
        finally:
            await self._means.runner.discard(running)
            await keeper.remove(folders)

    def _running(self, folders: Folders) -> RunningProgram[P]:
        program, assignment = self._program, self._assignment
        return RunningProgram(
            assignment,
            program,
            folders.work,
            folders.report,
            folders.secrets,
            variables(assignment, folders) | self._checkpoints.variables(folders.report),
            self._log,
            self._output,
            memory_for(program.limits, program.rules, assignment.failures),
        )

    async def _bring(self, work: Path) -> None:
        for wanted in self._program.inputs:
            self._log.step(f"pulling fileset: {wanted.called}")
            ticket = self._assignment.ticket
            await self._means.files.bring(ticket, wanted, work, self._transferred)
        await self._checkpoints.restore(work)

    async def _run(self, running: RunningProgram[P], progress_file: str) -> ProgramEnd:
        self._log.step("running")
        if monotonic() - self._started >= LATE_S:
            self._means.on_begun(self._assignment.token)
        progress = ProgressFile(progress_file, self._log)
        progress.watch()
        try:
            if self._program.checkpoint or self._assignment.timeout_s is not None:
                return await self._run_attended(running)
            return await self._means.runner.run(running)
        finally:
            progress.end()

    async def _run_attended(self, running: RunningProgram[P]) -> ProgramEnd:
        timeout_s = self._assignment.timeout_s
        attended = self._checkpoints.attended(running.folder, running.report)
        try:
            async with attended, asyncio.timeout(timeout_s):
                return await self._means.runner.run(running)
        except TimeoutError:
            words = f"took longer than its timeout of {timeout_s:g} s"
            return ProgramEnd(Outcome.TIMED_OUT, None, words)

    async def _end(self, end: ProgramEnd, folders: Folders) -> Report:
        program = self._program
        versions: tuple[NewVersion, ...] = ()
        saved: CheckpointView | None = None
        try:
            saved = await self._checkpoints.saved_after(end, folders.work)
            wanted = wanted_outputs(end, program.rules, saved)
            versions = await self._take(end, wanted, folders.work)
        except FilesFailed as error:
            if end.is_success or goes_on(end, program.rules):
                end = ProgramEnd(error.outcome, None, str(error))
            else:
                # What went wrong first counts; that its files are lost too is worth a line.
                self._output.write("stderr", f"{error}\n".encode())
        self._log.step("finished")
        if isinstance(program, Command) and not (program.inputs or versions or program.checkpoint):
            # To store its steps would take longer than such a command.
            self._log.drop_untold()
        if not end.is_success:
            return _failed(self._assignment, program, end, self._output, versions, saved)
        try:
            result = read_result(folders.result)
        except InvalidInput as error:
            return refused(self._assignment, Reason.INVALID_RESULT, str(error))
        return SuccessReport(*self._assignment.key, result, versions=versions)

    async def _take(
        self, end: ProgramEnd, wanted: Collection[PublishOn], work: Path
    ) -> tuple[NewVersion, ...]:
        versions = []
        for made in self._program.outputs:
            if made.on in wanted:
                self._log.step(f"pushing fileset: {made.fileset}")
                ticket = self._assignment.ticket
                version = await self._means.files.take(ticket, made, work, self._transferred)
                versions.append(structs.replace(version, partial=not end.is_success))
        return tuple(versions)

    def _transferred(self, done: int, total: int) -> None:
        self._log.progress(Progress(done, total, "bytes"))


def _measured(report: Report, usage: Usage | None) -> Report:
    if usage is None or isinstance(report, NotBegunReport):
        return report
    return structs.replace(report, usage=usage)


def _failed(
    assignment: Assignment,
    program: AnyProgram,
    end: ProgramEnd,
    output: ProgramOutput,
    versions: tuple[NewVersion, ...] = (),
    saved: CheckpointView | None = None,
) -> Report:
    report = report_of(assignment, end, program.rules, output.last_lines(), saved)
    assert report is not None, "a success is reported with its result"
    if isinstance(report, FailureReport | CrashReport | SkipReport) and versions:
        return structs.replace(report, versions=versions)
    return report
