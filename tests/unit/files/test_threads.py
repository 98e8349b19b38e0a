"""Work in a thread is over when the task that waits for it is."""

from __future__ import annotations

import asyncio
import threading

import pytest

from longshore.files.threads import IsStopped, Stopped, in_thread


async def test_a_cancelled_task_ends_when_its_thread_has() -> None:
    began, ended = threading.Event(), threading.Event()

    def work(is_stopped: IsStopped) -> None:
        began.set()
        while not is_stopped():
            ended.wait(0.001)
        ended.set()
        raise Stopped

    task = asyncio.create_task(in_thread(work))
    await asyncio.to_thread(began.wait)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended.is_set()
