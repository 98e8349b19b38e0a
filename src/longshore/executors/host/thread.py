"""The inside of a thread host: many plain attempts at once, each alone in its thread.

The main thread reads frames and hands out attempts. There are as many other threads as attempts
were ever there at once, and each runs one attempt after the other: what a job keeps in a
thread-local (a connection, a session) serves the next job in that thread too. All threads are
daemons: none of them can hold up the end of the process.

An abort raises `Cancelled` in the attempt's thread (see `interruption`). That may leave a lock held
or an object half changed which other attempts use too. So the agent sends this process no more
attempts after an abort, and ends it soon.
"""

from __future__ import annotations

import asyncio
import queue
import socket
import threading
import time
from collections import deque
from collections.abc import Coroutine
from typing import Any, NamedTuple, NoReturn, assert_never, cast

from longshore.executors import scratch
from longshore.executors.frames import (
    Abort,
    Close,
    Ended,
    FromHost,
    LeaseUntil,
    Load,
    NoMore,
    Recorded,
    Run,
    Stopped,
    pack,
    said,
)
from longshore.executors.host.call import Call, prepare, succeeded
from longshore.executors.host.context import Cancelled, RunningContext, enter
from longshore.executors.host.failures import raised
from longshore.executors.host.forks import is_copy, leave, leave_if_copy
from longshore.executors.host.host import Host
from longshore.executors.host.interruption import Interruption
from longshore.executors.output.attempt_log import TELL_EVERY_S, AttemptLog
from longshore.executors.tracing import processing
from longshore.model.attempt import Assignment, AttemptKey
from longshore.model.reports import NotBegunReport, Report


class _Running(NamedTuple):
    assignment: Assignment
    context: RunningContext
    interruption: Interruption


class ThreadHost(Host):
    """Runs every attempt it is given at once."""

    def __init__(self, sock: socket.socket) -> None:
        super().__init__(sock)
        self._running: dict[int, _Running] = {}
        self._waiting: queue.SimpleQueue[_Running] = queue.SimpleQueue()
        """What the next free thread begins. There is a thread for everything in `_running`."""
        self._threads = 0
        self._unsent: deque[bytes] = deque()
        self._sending = threading.Lock()
        self._news: queue.SimpleQueue[AttemptLog] = queue.SimpleQueue()

    def serve(self) -> NoReturn:
        """Runs until the agent is gone."""
        # Now: attempts may leave no room for another thread.
        threading.Thread(target=self._tell, daemon=True, name="longshore-teller").start()
        while True:
            message = self._next_message()
            match message:
                case Run(jobs=jobs):
                    for assignment in jobs:
                        self._begin(assignment)
                case Abort(attempts=attempts):
                    for attempt in attempts:
                        self._abort(attempt)
                case Close():
                    self._lifespan.end()
                    leave()
                case NoMore() | Load() | LeaseUntil() | Recorded():
                    pass
                case _:
                    assert_never(message)

    def _make_loop(self) -> asyncio.AbstractEventLoop:
        return asyncio.new_event_loop()

    def _begin(self, assignment: Assignment) -> None:
        running = _Running(assignment, self._context(assignment), Interruption())
        self._running[assignment.token] = running
        if self._threads < len(self._running):
            try:
                self._add_thread()
            except RuntimeError:  # the machine has no room for another thread
                self._end(running, NotBegunReport(*assignment.key))
                return
        self._waiting.put(running)

    def _add_thread(self) -> None:
        name = f"longshore-job-{self._threads + 1}"
        threading.Thread(target=self._work, daemon=True, name=name).start()
        self._threads += 1

    def _abort(self, attempt: AttemptKey) -> None:
        running = self._running.get(attempt[1])
        if running is not None:
            running.interruption.send(running.context.mark_cancelled)

    # in the attempt's thread

    def _work(self) -> NoReturn:
        while True:
            running = self._waiting.get()
            self._lifespan.context.copy().run(self._run, running)

    def _run(self, running: _Running) -> None:
        report: Report | None = None
        try:
            if running.interruption.open():
                report = self._perform(running.assignment, running.context)
            running.interruption.close()
        except Cancelled:
            # It came while the attempt's code was being entered or left, and does not come again.
            running.interruption.close()
        self._end(running, None if running.context.cancelled else report)

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
                # Only if the app has changed since the agent asked for its kinds.
                value = asyncio.run(cast(Coroutine[Any, Any, object], value))
        except BaseException as error:
            leave_if_copy()
            return raised(assignment, error, call.handler)
        leave_if_copy()
        return succeeded(assignment, call.handler, context, value)

    def _end(self, running: _Running, report: Report | None) -> None:
        """Tells how the attempt ended; without a report, that its abort stopped it."""
        assignment, context, _ = running
        del self._running[assignment.token]
        if (left := context.leftover()) is not None:
            scratch.remove(left)
        frame = Stopped((assignment.key,)) if report is None else Ended((report,))
        self._send_soon(*said(context.unsaid()), frame)

    def _send_soon(self, *messages: FromHost) -> None:
        """Sends at once. If another thread is sending, that one sends these too."""
        self._unsent.append(b"".join(map(pack, messages)))
        while self._unsent and self._sending.acquire(blocking=False):
            try:
                self._send_bytes(b"".join(self._unsent.popleft() for _ in range(len(self._unsent))))
            finally:
                self._sending.release()

    # what attempts say

    def _wake(self, attempt_log: AttemptLog) -> None:
        if not is_copy():  # a copy has no socket: it runs on, and tells nothing
            self._news.put(attempt_log)

    def _tell(self) -> None:
        """Sends what attempts say, so that the attempts themselves never wait for the socket."""
        while True:
            news = [self._news.get()]
            time.sleep(TELL_EVERY_S)
            while not self._news.empty():
                news.append(self._news.get())
            for attempt_log in news:
                self._send_soon(*said(attempt_log.take()))
