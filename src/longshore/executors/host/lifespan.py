"""The time between the beginning and the orderly end of a host, and the apps' part in both.

All of it happens in one task: some resources must be closed by the task that opened them. Between
beginning and end that task waits.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AsyncExitStack
from contextvars import copy_context
from typing import Any, TypeVar

from longshore.executors.host.apps import Span, told

T = TypeVar("T")

_log = logging.getLogger(__name__)


class Lifespan:
    """Enters the apps' spans on a loop, and leaves them in reverse order."""

    def __init__(self, spans: Sequence[Span], make_loop: Callable[[], asyncio.AbstractEventLoop]):
        self._spans = spans
        self._loop = make_loop() if spans else None
        self._task: asyncio.Task[None] | None = None
        self._ending = asyncio.Event()
        self.context = copy_context()
        """The context in which the spans are entered."""

    def begin(self) -> None:
        """Enters the spans; raises what the first that cannot be entered raises."""
        if self._loop is not None:
            began: asyncio.Future[None] = self._loop.create_future()
            self._task = self._loop.create_task(self._last(began), context=self.context)
            self._loop.run_until_complete(began)

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """The result of a coroutine, run on the loop on which the apps opened their resources.

        If it is left before its end (a signal's handler raised), it is cancelled.
        """
        if self._loop is None:
            return asyncio.run(coroutine)
        task = self._loop.create_task(coroutine)
        try:
            return self._loop.run_until_complete(task)
        finally:
            if not task.done():
                task.cancel()
                self._loop.run_until_complete(asyncio.wait({task}))

    async def end_async(self) -> None:
        """Leaves the spans, for a caller on the loop; logs what goes wrong."""
        self._ending.set()
        if self._task is not None:
            await self._task

    def end(self) -> None:
        """Leaves the spans, on the loop that they were entered on."""
        if self._loop is not None:
            self._loop.run_until_complete(self.end_async())

    async def _last(self, began: asyncio.Future[None]) -> None:
        try:
            async with AsyncExitStack() as stack:
                for span in self._spans:
                    await stack.enter_async_context(span)
                began.set_result(None)
                await self._ending.wait()
        except BaseException as error:
            if began.done():
                _log.error("what the app opened could not be closed: %s", told(error))
            else:
                began.set_exception(error)
