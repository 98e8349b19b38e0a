"""Runs `async def` jobs, all of them in one host process."""

from __future__ import annotations

from longshore.executors.shared import SharedExecutor
from longshore.model.worker import Pool


class CoroutineExecutor(SharedExecutor):
    """One host with up to `slots` coroutines in it. It cancels the coroutine of an abort itself."""

    pool = Pool.COROUTINE
