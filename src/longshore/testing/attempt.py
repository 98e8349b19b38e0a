"""One attempt at a job, run in the process of the test."""

from __future__ import annotations

import asyncio
import concurrent.futures
import time
from collections.abc import Awaitable
from typing import Final, cast

from msgspec import structs

from longshore.core.devices import Devices
from longshore.core.resources import amounts_of
from longshore.executors.attempts import timed_out
from longshore.executors.host.call import Call, prepare, succeeded
from longshore.executors.host.context import Cancelled, RunningContext, enter
from longshore.executors.host.failures import raised, refused
from longshore.executors.host.programs.no_files import NoFiles
from longshore.executors.tracing import processing
from longshore.model.attempt import Assignment, Attempt
from longshore.model.job import Reason
from longshore.model.reports import CancelReport, Report
from longshore.ports import Handler, Handlers, ProgramHandler
from longshore.testing.inline_dispatcher import StillClock
from longshore.testing.programs import MakeFiles, run_program
from longshore.wire.dispatcher_side import assignment

ENDS: Final = (Exception, SystemExit, asyncio.CancelledError, Cancelled)
"""What ends an attempt when it is raised. Anything else, like Ctrl-C, ends the test."""


def _equipped(given: Assignment) -> Assignment:
    """The attempt with the devices that it needs: nothing else has any."""
    devices = Devices(amounts_of(given.resources)).take(given.token, given.resources)
    return structs.replace(given, devices=devices)


class InlineAttempt:
    """Runs a job's code with its context around it, as a worker's host process would."""

    def __init__(
        self,
        claimed: Attempt,
        handlers: Handlers,
        clock: StillClock,
        make_files: MakeFiles = lambda attempt: NoFiles(),
    ) -> None:
        self.claimed = claimed
        handler = handlers[claimed.kind]
        self.is_async = handler.is_async or isinstance(handler, ProgramHandler)
        self._assignment = _equipped(assignment(claimed))
        self.context = RunningContext(self._assignment, lambda attempt_log: None)
        self.error: BaseException | None = None
        """What the job's code raised, if it did."""
        self.over: concurrent.futures.Future[None] = concurrent.futures.Future()
        self._handlers = handlers
        self._clock = clock
        self._make_files = make_files
        self._began = time.monotonic(), clock.ahead
        self._task: asyncio.Task[Report] | None = None

    def cancel(self) -> None:
        """A coroutine is stopped at its next await; other code can only look."""
        self.context.mark_cancelled()
        if self._task is not None:
            self._task.get_loop().call_soon_threadsafe(self._task.cancel)

    def run(self) -> Report:
        """The report of a plain function, which runs here and now."""
        with processing(self._assignment) as processed:
            report = self._run()
            processed(report)
        return report

    def _run(self) -> Report:
        call = self._enter()
        if not isinstance(call, Call):
            return call
        try:
            value = call.begin()
        except ENDS as error:
            return self._judged(self._raised(error, call.handler))
        return self._judged(self._succeeded(call, value))

    async def run_async(self) -> Report:
        """The report of a coroutine, which is stopped when its timeout is over."""
        self._task = asyncio.create_task(self._perform())
        # A program has its own way to end when its time is over.
        runs_program = isinstance(self._handlers[self.claimed.kind], ProgramHandler)
        timeout_s = None if runs_program else self._assignment.timeout_s
        try:
            await asyncio.wait({self._task}, timeout=timeout_s)
            in_time = self._task.done()
        finally:
            self._task.cancel()
        await asyncio.wait({self._task})
        if not in_time and not self.context.cancelled:
            return self._timed_out()
        if self._task.cancelled():
            return self._judged(self._raised(asyncio.CancelledError(), None))
        return self._judged(self._task.result())

    async def _perform(self) -> Report:
        with processing(self._assignment) as processed:
            report = await self._call()
            processed(report)
        return report

    async def _call(self) -> Report:
        call = self._enter()
        if not isinstance(call, Call):
            return call
        if isinstance(call.handler, ProgramHandler):
            log = self.context.attempt_log()
            return await run_program(self._assignment, call.handler, log, self._make_files)
        try:
            value = await cast(Awaitable[object], call.begin())
        except ENDS as error:
            return self._raised(error, call.handler)
        return self._succeeded(call, value)

    def _enter(self) -> Call | Report:
        enter(self.context)
        if self.claimed.problem:
            return refused(self._assignment, Reason.INVALID_ARGUMENTS, self.claimed.problem)
        return prepare(self._assignment, self._handlers)

    def _succeeded(self, call: Call, value: object) -> Report:
        return succeeded(self._assignment, call.handler, self.context, value)

    def _raised(self, error: BaseException, handler: Handler | None) -> Report:
        self.error = error
        return raised(self._assignment, error, handler)

    def _judged(self, report: Report) -> Report:
        """The report, unless the attempt was told to stop or took too long."""
        if self.context.cancelled:
            return CancelReport(self.claimed.id, self.claimed.token)
        return self._timed_out() if self.has_taken_too_long else report

    @property
    def assignment(self) -> Assignment:
        """The attempt as a worker would get it."""
        return self._assignment

    @property
    def has_taken_too_long(self) -> bool:
        """Whether its timeout is over."""
        timeout_s = self._assignment.timeout_s
        return timeout_s is not None and self._took_s() > timeout_s

    def _timed_out(self) -> Report:
        self.error = None
        return timed_out(self._assignment)

    def _took_s(self) -> float:
        """Time that passed, and time that the job's code had the kit's clock pass."""
        began, ahead = self._began
        return time.monotonic() - began + (self._clock.ahead - ahead).total_seconds()
