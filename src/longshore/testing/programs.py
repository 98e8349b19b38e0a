"""Programs in a test kit: a declared command really runs, in the test's own process tree."""

from __future__ import annotations

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

GRACE_S: Final = 1.0
"""How long a command that is told to end may take in a test."""


async def run_program(assignment: Assignment, handler: ProgramHandler, log: AttemptLog) -> Report:
    """Runs a command here and now, as a worker does. Containers and files need a worker."""
    try:
        program = handler.program(assignment.args)
    except InvalidInput as error:
        return refused(assignment, Reason.INVALID_ARGUMENTS, str(error))
    if not isinstance(program, Command):
        words = f"a test kit runs no containers: '{assignment.kind}' needs a worker with an engine"
        return refused(assignment, Reason.NOT_STARTED, words)
    runner = CommandRunner(GRACE_S, is_alone=False)
    await runner.open()
    means = Means(runner, NoFiles(), FolderKeeper(most_spare=0), LogLimits())
    return await attempt(assignment, program, log, means)
