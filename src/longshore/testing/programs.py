"""Programs in a test kit: a declared command really runs, in the test's own process tree."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from longshore.errors import InvalidInput
from longshore.executors.host.failures import refused
from longshore.executors.host.programs.attempt import Means, attempt
from longshore.executors.host.programs.command import CommandRunner
from longshore.executors.host.programs.folders import FolderKeeper
from longshore.executors.host.programs.no_files import NoFiles
from longshore.executors.output.attempt_log import AttemptLog
from longshore.model.attempt import Assignment
from longshore.model.job import Reason
from longshore.model.log import LogLimits
from longshore.model.program import Command
from longshore.model.reports import Report
from longshore.ports import ProgramHandler
from longshore.ports.files import Files

MakeFiles = Callable[[Assignment], Files]
"""Makes what brings and takes the files of an attempt."""
GRACE_S: Final = 1.0
"""How long a command that is told to end may take in a test."""


async def run_program(
    assignment: Assignment, handler: ProgramHandler, log: AttemptLog, make_files: MakeFiles
) -> Report:
    """Runs a command here and now, as a worker does. Containers need a worker."""
    try:
        program = handler.program(assignment.args)
    except InvalidInput as error:
        return refused(assignment, Reason.INVALID_ARGUMENTS, str(error))
    if not isinstance(program, Command):
        words = f"a test kit runs no containers: '{assignment.kind}' needs a worker with an engine"
        return refused(assignment, Reason.NOT_STARTED, words)
    runner = CommandRunner(GRACE_S, is_alone=False)
    await runner.open()
    needs_files = program.inputs or program.outputs or program.checkpoint
    files = make_files(assignment) if needs_files else NoFiles()
    means = Means(runner, files, FolderKeeper(most_spare=0), LogLimits())
    return await attempt(assignment, program, log, means)
