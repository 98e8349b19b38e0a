"""Attempts of batched kinds in a coroutine host: they gather, share a run, and end one by one.

A run begins when it is full, when the first of its attempts has waited for `wait_s`, when every
slot of the worker is taken (so that no more can come), or when the agent says that no more come.

An attempt that is told to stop leaves while it gathers. Once the body runs, nothing can take one
job out of it: the attempt is told as stopped, and the body goes on for the others. Only if all are
told to stop, the body is cancelled. Their aborts may come one by one, as those of a timeout do, so
the first waits a moment for the others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final, Protocol

from longshore.executors.host.context import RunningContext
from longshore.executors.host.shared_run import Alike, BatchHandler, Member, SharedRun, joining
from longshore.model.attempt import Assignment, AttemptKey
from longshore.model.reports import Report
from longshore.ports import Handlers

ABORTS_TOGETHER_S: Final = 0.05


class Tells(Protocol):
    """The host, as far as it tells its agent of attempts."""

    def tell_begun(self, tokens: Sequence[int]) -> None:
        """These attempts begin now."""

    def tell_end(self, assignment: Assignment, context: RunningContext, report: Report) -> None:
        """An attempt has ended: as the report says, unless it was told to stop."""

    def tell_stopped(self, assignment: Assignment, context: RunningContext) -> None:
        """An attempt that was told to stop has ended; its body may go on."""

    def clear_after(self, context: RunningContext) -> None:
        """Nothing uses what this attempt had any more."""


def batched(handlers: Handlers) -> dict[str, BatchHandler]:
    """The kinds whose jobs share runs."""
    return {kind: one for kind, one in handlers.items() if isinstance(one, BatchHandler)}


class _Gathered(SharedRun):
    """A shared run with its timer, and its task once it has begun."""

    timer: asyncio.TimerHandle | None = None
    task: asyncio.Task[dict[int, Report]] | None = None


class Gathering:
    """All attempts of batched kinds that the host has."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, handlers: Mapping[str, BatchHandler], host: Tells
    ) -> None:
        self._loop = loop
        self._handlers = handlers
        self._host = host
        self._waiting: dict[Alike, _Gathered] = {}
        """The runs that attempts may still join."""
        self._runs: dict[int, _Gathered] = {}
        """All runs, by the token of each member."""

    def __len__(self) -> int:
        return len(self._runs)

    @property
    def waits(self) -> bool:
        """Whether attempts wait for others."""
        return bool(self._waiting)

    def add(self, assignment: Assignment, context: RunningContext) -> None:
        """An attempt comes: it waits for others, or begins with those that have waited for it."""
        handler = self._handlers[assignment.kind]
        joined = joining(assignment, context, handler)
        if isinstance(joined, tuple):
            self._join(handler, *joined)
        else:
            self._host.tell_end(assignment, context, joined)

    def _join(self, handler: BatchHandler, alike: Alike, member: Member) -> None:
        run = self._waiting.get(alike)
        if run is None:
            run = self._waiting[alike] = _Gathered(handler, alike)
            run.timer = self._loop.call_later(handler.wait_s, self._begin, run)
        run.add(member)
        self._runs[member.assignment.token] = run
        if run.is_full:
            self._begin(run)

    def begin_all(self) -> None:
        """Nothing waits any longer."""
        for run in list(self._waiting.values()):
            self._begin(run)

    def _begin(self, run: _Gathered) -> None:
        self._leave_waiting(run)
        self._host.tell_begun([*run.members])
        run.task = self._loop.create_task(run.perform(BaseException))
        run.task.add_done_callback(partial(self._over, run))

    def _leave_waiting(self, run: _Gathered) -> None:
        del self._waiting[run.alike]
        if run.timer is not None:
            run.timer.cancel()

    def _over(self, run: _Gathered, task: asyncio.Task[dict[int, Report]]) -> None:
        # A task that was cancelled before its first step has run nothing.
        error = asyncio.CancelledError() if task.cancelled() else task.exception()
        reports = task.result() if error is None else run.failed(error)
        for context in run.left_behind():
            self._host.clear_after(context)
        for token, member in run.members.items():
            del self._runs[token]
            self._host.tell_end(member.assignment, member.context, reports[token])

    def abort(self, attempt: AttemptKey) -> bool:
        """Tells an attempt to stop; answers whether it is one of these."""
        run = self._runs.get(attempt[1])
        if run is None:
            return False
        if run.task is None:
            self._leave(run, run.members[attempt[1]])
            if not run.members:
                self._leave_waiting(run)
        elif not run.task.done():
            run.members[attempt[1]].context.mark_cancelled()
            self._stop(run, run.task)
        return True

    def _leave(self, run: _Gathered, member: Member) -> None:
        member.context.mark_cancelled()
        del run.members[member.assignment.token], self._runs[member.assignment.token]
        self._host.tell_stopped(member.assignment, member.context)

    def _stop(self, run: _Gathered, task: asyncio.Task[dict[int, Report]]) -> None:
        if run.is_unwanted:
            task.cancel()
        else:
            self._loop.call_later(ABORTS_TOGETHER_S, self._let_go, run, task)

    def _let_go(self, run: _Gathered, task: asyncio.Task[dict[int, Report]]) -> None:
        """Those that are told to stop leave, unless all of them are: these wait for the body."""
        if task.done() or run.is_unwanted:
            return
        for member in [one for one in run.members.values() if one.context.cancelled]:
            self._leave(run, member)
