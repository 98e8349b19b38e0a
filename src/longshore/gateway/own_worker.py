"""The worker that a gateway is itself: it runs what Longshore does over HTTP, such as callbacks."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from longshore.worker.agent import Worker

log = logging.getLogger("longshore.gateway")

JOIN_AGAIN_S = 30.0
"""How long a gateway waits after dispatchers sent its worker away; keys may be set meanwhile."""


class OwnWorker:
    """Keeps a worker attending until it is told to stop. The gateway answers HTTP all the same."""

    def __init__(self, make: Callable[[], Worker]) -> None:
        self._make = make
        self._worker = make()
        self._stopping = asyncio.Event()

    async def run(self) -> None:
        """Works until `stop`, then hands back what it runs."""
        while True:
            try:
                await self._worker.run()
            except Exception:
                log.exception("the worker of this gateway broke")
            if self._stopping.is_set():
                return
            log.warning("no callbacks are sent from here; joining again in %g s", JOIN_AGAIN_S)
            try:
                async with asyncio.timeout(JOIN_AGAIN_S):
                    await self._stopping.wait()
                return
            except TimeoutError:
                self._worker = self._make()

    def stop(self) -> None:
        """Takes no more, finishes what runs or hands it back, and leaves."""
        self._stopping.set()
        self._worker.drain()
