"""How a process stops: at the first signal in good order, at the second at once."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

SIGNALS = (signal.SIGTERM, signal.SIGINT)
INTERRUPTED = 130


@contextmanager
def stop_signals(
    in_order: Callable[[], object], at_once: Callable[[], object] | None = None
) -> Iterator[None]:
    """While the block runs, the first SIGTERM or SIGINT calls `in_order`, the second `at_once`.

    Without `at_once`, the second cancels the task that entered the block. The third ends the
    process.
    """
    loop = asyncio.get_running_loop()
    task = asyncio.current_task()
    assert task is not None
    answers = iter([in_order, at_once or task.cancel])

    def ask() -> None:
        next(answers, lambda: os._exit(INTERRUPTED))()

    for number in SIGNALS:
        loop.add_signal_handler(number, ask)
    try:
        yield
    finally:
        for number in SIGNALS:
            loop.remove_signal_handler(number)


async def first_of(*events: Awaitable[object]) -> None:
    """Returns when the first of several is done, and cancels the others. Raises its error."""
    tasks = [asyncio.ensure_future(event) for event in events]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
