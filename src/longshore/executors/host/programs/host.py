"""The inside of a host of programs: it starts them, hears them, and kills them.

It is a coroutine host whose attempts are programs. It imports the apps only to learn what they
declare. When its agent is gone it kills all that it runs, then ends.
"""

from __future__ import annotations

import asyncio
import socket
from typing import Any, Final

from longshore.errors import InvalidInput
from longshore.executors.frames import Began, Load
from longshore.executors.host.apps import Apps, load_apps
from longshore.executors.host.call import unknown
from longshore.executors.host.context import RunningContext
from longshore.executors.host.coroutine import CoroutineHost
from longshore.executors.host.failures import raised, refused
from longshore.executors.host.forks import leave
from longshore.executors.host.programs.attempt import Means, attempt
from longshore.executors.host.programs.command import CommandRunner
from longshore.executors.host.programs.containers import container_runner
from longshore.executors.host.programs.folders import FolderKeeper
from longshore.executors.host.programs.free import FreeHandler
from longshore.executors.host.programs.gateway_files import GatewayFiles
from longshore.executors.host.programs.no_files import NoFiles
from longshore.executors.host.programs.output import Echo
from longshore.executors.host.programs.runner import Runner
from longshore.model.attempt import Assignment
from longshore.model.job import Reason
from longshore.model.program import COMMAND_KIND, CONTAINER_KIND
from longshore.model.reports import Report
from longshore.model.worker import Pool
from longshore.ports import ProgramHandler
from longshore.ports.files import Files

LEAVE_S: Final = 30.0
"""How long a host that ends tries to kill what it runs."""


class ProgramHost(CoroutineHost):
    """Runs the commands, or the containers, of a worker."""

    def __init__(self, sock: socket.socket) -> None:
        super().__init__(sock)
        self._pool = Pool.COMMAND
        self._means: Means[Any]

    def load(self, pool: Pool) -> None:
        """Makes ready to run programs, and learns which ones the apps declare."""
        self._pool = pool
        super().load(pool)

    def _apps(self, load: Load) -> Apps:
        apps = load_apps(load.app) if load.app else Apps({}, lambda pool: [])
        if not load.programs.exec:
            return apps
        kind = COMMAND_KIND if self._pool is Pool.COMMAND else CONTAINER_KIND
        return Apps({**apps.handlers, kind: FreeHandler(kind)}, apps.spans)

    def _expect(self, load: Load) -> None:
        super()._expect(load)
        runner = _runner(self._pool, load)
        self._means = Means(
            runner,
            _files(load),
            FolderKeeper(),
            load.limits,
            load.programs.secrets,
            Echo(),
            self._begins_late,
        )
        self._loop.run_until_complete(runner.open())

    async def _call(self, assignment: Assignment, context: RunningContext) -> Report:
        handler: object = self._handlers.get(assignment.kind)
        if not isinstance(handler, ProgramHandler):
            return unknown(assignment, self._handlers)
        try:
            program = handler.program(assignment.args)
        except InvalidInput as error:
            return refused(assignment, Reason.INVALID_ARGUMENTS, str(error))
        try:
            return await attempt(assignment, program, context.attempt_log(), self._means)
        except BaseException as error:
            return raised(assignment, error, None)

    def _begins_late(self, token: int) -> None:
        self._channel.send(Began(token))

    def _lose_agent(self) -> None:
        self._closing = self._loop.create_task(self._close())

    async def _close(self) -> None:
        try:
            async with asyncio.timeout(LEAVE_S):
                await self._means.runner.close()
            self._means.folders.close()
        finally:
            self._say_last()
            leave()

    def _say_last(self) -> None:
        """Called when all is killed, before the process ends."""


def _runner(pool: Pool, load: Load) -> Runner[Any]:
    if pool is Pool.COMMAND:
        return CommandRunner(load.programs.grace_s)
    return container_runner(load.programs)


def _files(load: Load) -> Files:
    """How the files of programs come and go."""
    settings = load.programs.files
    return GatewayFiles(settings) if settings.files_url else NoFiles()
