"""The inside of a child host: one attempt at a time, in the main thread, interruptible.

Attempts come from the queue (see `attempt_queue`), large ones by the stream. The process tells of
each end before it reads the next attempt: so the attempt that it has read and not told of is the
one to blame if it dies.

How a running attempt is aborted. The agent sends an `Abort` frame, then SIGTERM. The signal only
means "look at your socket"; the frame says which attempt is meant. So a signal that comes late, or
from another process, finds no frame for the attempt that runs now, and does nothing. A signal that
comes before its frame does nothing either: the agent repeats it for as long as it waits.

`_exposed` is the attempt whose code runs at this moment. Only then does the signal handler touch
the socket: at any other time the main loop reads it.
"""

from __future__ import annotations

import asyncio
import contextvars
import queue
import select
import signal
import socket
import threading
import time

# Not that of `signal`: it makes enums of handlers, which takes longer than a short job.
from _signal import signal as set_handler  # type: ignore[import-not-found]
from collections.abc import Coroutine
from types import FrameType
from typing import Any, NamedTuple, NoReturn, assert_never, cast

import msgspec

from longshore.executors import scratch
from longshore.executors.attempt_queue import AttemptReader
from longshore.executors.frames import (
    Abort,
    Close,
    Ended,
    LeaseUntil,
    Load,
    NoMore,
    Recorded,
    Run,
    Stopped,
    ToHost,
    said,
)
from longshore.executors.host.call import Call, prepare, succeeded
from longshore.executors.host.context import Cancelled, RunningContext, enter
from longshore.executors.host.failures import raised
from longshore.executors.host.forks import is_copy, leave, leave_if_copy
from longshore.executors.host.host import Host
from longshore.executors.host.wear import Wear
from longshore.executors.output.attempt_log import TELL_EVERY_S, AttemptLog
from longshore.executors.tracing import processing
from longshore.model.attempt import Assignment, AttemptKey
from longshore.model.reports import Report


class _Exposed(NamedTuple):
    assignment: Assignment
    context: RunningContext


class ChildHost(Host):
    """Runs the attempts it is given one after the other."""

    def __init__(self, sock: socket.socket, queue_sock: socket.socket) -> None:
        super().__init__(sock)
        self._attempts = AttemptReader(queue_sock)
        self._exposed: _Exposed | None = None
        self._is_looking = False
        self._handler = self._on_sigterm
        self._sending = threading.Lock()
        self._news: queue.SimpleQueue[AttemptLog] = queue.SimpleQueue()
        self._teller: threading.Thread | None = None

    def serve(self) -> NoReturn:
        """Runs until the agent is gone."""
        polls = select.poll()
        polls.register(self._sock, select.POLLIN)
        polls.register(self._attempts.sock, select.POLLIN)
        while self._wear.worn < 1:
            if (assignment := self._take()) is not None:
                self._run(assignment)
            elif self._inbox:
                self._handle(self._inbox.popleft())
            elif self._sock.fileno() in dict(polls.poll()):
                self._read()
        while True:
            self._handle(self._next_message())

    def _take(self) -> Assignment | None:
        try:
            return self._attempts.take()
        except (OSError, msgspec.DecodeError):  # a job closed the descriptor, or put others there
            leave()

    def _handle(self, message: ToHost) -> None:
        match message:
            case Run(jobs=jobs):
                for assignment in jobs:
                    self._run(assignment)
            case Close():
                self._lifespan.end()
                leave()
            case Abort() | NoMore() | Load() | LeaseUntil() | Recorded():
                pass  # an abort that came after its attempt's end
            case _:
                assert_never(message)

    def _expect(self, load: Load) -> None:
        self._wear = Wear(load.max_jobs, load.max_mb)

    def _make_loop(self) -> asyncio.AbstractEventLoop:
        # The standard one: a signal's handler ends what runs on it by raising.
        return asyncio.new_event_loop()

    def _run(self, assignment: Assignment) -> None:
        # Before every attempt: the last one may have set its own handler or streams.
        set_handler(signal.SIGTERM, self._handler)
        self._set_streams()
        context = self._context(assignment)
        report = contextvars.copy_context().run(self._attempt, assignment, context)
        leave_if_copy()
        if (left := context.leftover()) is not None:
            scratch.remove(left)
        self._wear.count()
        frame = (
            Stopped((assignment.key,))
            if report is None
            else Ended((report,), time.monotonic(), self._wear.worn)
        )
        with self._sending:
            self._send(*said(context.unsaid()), frame)

    def _attempt(self, assignment: Assignment, context: RunningContext) -> Report | None:
        """The attempt's report; None if it was stopped by its abort."""
        if self._is_aborted(assignment.key):
            return None
        report: Report | None = None
        try:
            self._exposed = _Exposed(assignment, context)
            report = self._perform(assignment, context)
            self._exposed = None
        except Cancelled:
            pass  # it came while the attempt's code was being entered or left
        return None if context.cancelled else report

    def _perform(self, assignment: Assignment, context: RunningContext) -> Report:
        enter(context)
        with processing(assignment) as processed:
            report = self._call(assignment, context)
            processed(report)
        return report

    def _call(self, assignment: Assignment, context: RunningContext) -> Report:
        call = prepare(assignment, self._handlers)
        if not isinstance(call, Call):
            return call
        try:
            value = call.begin()
            if call.handler.is_async:
                value = self._lifespan.run(cast(Coroutine[Any, Any, object], value))
        except BaseException as error:
            return raised(assignment, error, call.handler)
        return succeeded(assignment, call.handler, context, value)

    def _on_sigterm(self, number: int, frame: FrameType | None) -> None:
        exposed = self._exposed
        if exposed is None or self._is_looking:
            return
        self._is_looking = True
        self._read(socket.MSG_DONTWAIT)
        self._is_looking = False
        if self._is_aborted(exposed.assignment.key):
            self._exposed = None
            exposed.context.mark_cancelled()
            raise Cancelled(f"job {exposed.assignment.number} was told to stop")

    def _is_aborted(self, attempt: AttemptKey) -> bool:
        return any(isinstance(m, Abort) and attempt in m.attempts for m in self._inbox)

    def _wake(self, attempt_log: AttemptLog) -> None:
        if is_copy():
            return  # a copy has no socket: it runs on, and tells nothing
        if self._teller is None:
            self._teller = threading.Thread(target=self._tell, daemon=True, name="longshore-teller")
            self._teller.start()
        self._news.put(attempt_log)

    def _tell(self) -> None:
        """Sends what attempts say, so that the attempt itself never waits for the socket."""
        while True:
            attempt_log = self._news.get()
            time.sleep(TELL_EVERY_S)
            with self._sending:
                self._send(*said(attempt_log.take()))
