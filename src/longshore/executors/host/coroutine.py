"""The inside of a coroutine host: many attempts on one event loop.

Each attempt is a task. An abort cancels the task and marks its context: the mark tells an aborted
attempt from one that other code cancelled. What attempts say and how they end is gathered and sent
once for each turn of the loop. Attempts of batched kinds share tasks (see `gathering`).
"""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from collections.abc import Awaitable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NoReturn, assert_never, cast

from msgspec import Struct

from longshore.executors import scratch
from longshore.executors.channel import Channel
from longshore.executors.frames import (
    Abort,
    Began,
    Close,
    Ended,
    LeaseUntil,
    Load,
    NoMore,
    Recorded,
    Run,
    Stopped,
    ToHost,
    portions,
    said,
)
from longshore.executors.host.call import Call, prepare, succeeded
from longshore.executors.host.context import RunningContext, enter
from longshore.executors.host.failures import raised
from longshore.executors.host.forks import leave, leave_if_copy
from longshore.executors.host.gathering import Gathering, batched
from longshore.executors.host.host import Host
from longshore.executors.output.attempt_log import TELL_EVERY_S, AttemptLog
from longshore.executors.tracing import processing
from longshore.model.attempt import Assignment, AttemptKey
from longshore.model.job import LogEntry
from longshore.model.reports import Report

PYTHONS_THREADS = min(32, (os.cpu_count() or 1) + 4)
"""How many threads an event loop has if nothing else is said."""


class _Running(Struct, frozen=True):
    task: asyncio.Task[None]
    context: RunningContext


class CoroutineHost(Host):
    """Runs every attempt it is given at once, and tells of their ends in batches."""

    def __init__(self, sock: socket.socket) -> None:
        super().__init__(sock)
        self._loop = _new_event_loop()
        self._closing: asyncio.Task[None] | None = None
        self._thread = threading.get_ident()
        self._running: dict[int, _Running] = {}
        self._reports: list[Report] = []
        self._stopped: list[AttemptKey] = []
        self._entries: list[LogEntry] = []
        self._news: list[AttemptLog] = []
        self._is_flush_due = False

    def serve(self) -> NoReturn:
        """Runs until the agent is gone. Tasks that jobs left behind cannot end it."""
        asyncio.set_event_loop(self._loop)
        self._batched = batched(self._handlers)
        self._gathering = Gathering(self._loop, self._batched, self)
        self._loop.call_soon(self._attach)
        while True:
            try:
                self._loop.run_forever()
            except (SystemExit, KeyboardInterrupt):
                leave_if_copy()

    def _expect(self, load: Load) -> None:
        # Each job may be in one `asyncio.to_thread`: Python's few threads would hold most up.
        # `leave` does not wait for threads.
        self._slots = load.slots
        count = max(load.slots, PYTHONS_THREADS)
        self._loop.set_default_executor(ThreadPoolExecutor(count, "longshore-to-thread"))

    def _make_loop(self) -> asyncio.AbstractEventLoop:
        return self._loop

    def _attach(self) -> None:
        self._channel = Channel(self._sock, self._unpacker, self._receive, self._lose_agent)

    def _lose_agent(self) -> None:
        """The agent is gone: nothing can be told any more."""
        leave()

    def _receive(self, messages: list[ToHost]) -> None:
        for message in messages:
            self._handle(message)

    def _handle(self, message: ToHost) -> None:
        match message:
            case Run(jobs=jobs):
                for assignment in jobs:
                    self._begin(assignment)
                # After the first step of each: the loop keeps the order.
                self._loop.call_soon(self._end_unbegun, jobs)
                if self._gathering.waits and not self._has_room():
                    self._gathering.begin_all()
            case Abort(attempts=attempts):
                for attempt in attempts:
                    self._abort(attempt)
            case NoMore():
                self._gathering.begin_all()
            case Close():
                self._closing = self._loop.create_task(self._close())
            case Load() | LeaseUntil() | Recorded():
                pass
            case _:
                assert_never(message)

    async def _close(self) -> None:
        await self._lifespan.end_async()
        leave()

    def _begin(self, assignment: Assignment) -> None:
        context = self._context(assignment)
        if assignment.kind in self._batched:
            self._gathering.add(assignment, context)
            return
        task = self._loop.create_task(self._perform(assignment, context))
        self._running[assignment.token] = _Running(task, context)

    def _has_room(self) -> bool:
        """Whether the agent may send more attempts before one of these ends."""
        return len(self._running) + len(self._gathering) < self._slots

    def _abort(self, attempt: AttemptKey) -> None:
        if self._gathering.abort(attempt):
            return
        running = self._running.get(attempt[1])
        if running is not None and running.task.cancel():
            running.context.mark_cancelled()

    def _end_unbegun(self, jobs: Sequence[Assignment]) -> None:
        """Ends the attempts that were cancelled before their first step: they cannot do it."""
        for assignment in jobs:
            running = self._running.get(assignment.token)
            if running is not None and running.task.done():
                cancelled = raised(assignment, asyncio.CancelledError(), None)
                self._end(assignment, running.context, cancelled)

    async def _perform(self, assignment: Assignment, context: RunningContext) -> None:
        enter(context)
        with processing(assignment) as processed:
            report = await self._call(assignment, context)
            processed(report)
        self._end(assignment, context, report)

    async def _call(self, assignment: Assignment, context: RunningContext) -> Report:
        call = prepare(assignment, self._handlers)
        if not isinstance(call, Call):
            return call
        try:
            value = call.begin()
            if call.handler.is_async:
                value = await cast(Awaitable[object], value)
        except BaseException as error:
            leave_if_copy()
            return raised(assignment, error, call.handler)
        leave_if_copy()
        return succeeded(assignment, call.handler, context, value)

    def _end(self, assignment: Assignment, context: RunningContext, report: Report) -> None:
        del self._running[assignment.token]
        self.tell_end(assignment, context, report)

    def tell_end(self, assignment: Assignment, context: RunningContext, report: Report) -> None:
        """Tells how an attempt ended; only that it did, if it was told to stop."""
        if context.cancelled:
            self.tell_stopped(assignment, context)
        else:
            self._entries += context.unsaid()
            self._reports.append(report)
            self._flush_soon()
        # Last: it fails if jobs left no thread for it, and the end is told all the same.
        if context.leftover() is not None:
            self.clear_after(context)

    def tell_stopped(self, assignment: Assignment, context: RunningContext) -> None:
        """Tells that an attempt which was told to stop has ended."""
        self._entries += context.unsaid()
        self._stopped.append(assignment.key)
        self._flush_soon()

    def tell_begun(self, tokens: Sequence[int]) -> None:
        """Tells that attempts begin which have waited for each other."""
        self._channel.send(*map(Began, tokens))

    def clear_after(self, context: RunningContext) -> None:
        """Removes the scratch folder of an attempt that has ended."""
        if (left := context.leftover()) is not None:
            self._loop.run_in_executor(None, scratch.remove, left)

    def _flush_soon(self) -> None:
        if not self._is_flush_due:
            self._is_flush_due = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._is_flush_due = False
        entries, self._entries = self._entries, []
        reports, self._reports = self._reports, []
        stopped, self._stopped = self._stopped, []
        self._deliver(entries, reports, stopped)

    def _deliver(
        self,
        entries: Sequence[LogEntry],
        reports: Sequence[Report],
        stopped: Sequence[AttemptKey],
    ) -> None:
        # What an attempt said goes before its end: afterwards nobody listens.
        self._channel.send(
            *said(entries), *map(Ended, portions(reports)), *map(Stopped, portions(stopped))
        )

    def _wake(self, attempt_log: AttemptLog) -> None:
        if threading.get_ident() == self._thread:
            self._hear(attempt_log)
        else:
            self._loop.call_soon_threadsafe(self._hear, attempt_log)

    def _hear(self, attempt_log: AttemptLog) -> None:
        if not self._news:
            self._loop.call_later(TELL_EVERY_S, self._tell)
        self._news.append(attempt_log)

    def _tell(self) -> None:
        news, self._news = self._news, []
        for attempt_log in news:
            self._entries += attempt_log.take()
        self._flush_soon()


def _new_event_loop() -> asyncio.AbstractEventLoop:
    """The fastest event loop that is installed."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()
