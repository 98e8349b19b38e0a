"""Runs `async def` jobs, all of them in one host process."""

from __future__ import annotations

from longshore.executors.hosted import HostedExecutor
from longshore.model.worker import Pool


class CoroutineExecutor(HostedExecutor):
    """One host with up to `slots` coroutines in it. It cancels the coroutine of an abort itself."""

    pool = Pool.COROUTINE
    is_shared = True
