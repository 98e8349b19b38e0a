"""The web workers that the process of a gateway attends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from time import time

from longshore.client.ids import fresh_id
from longshore.client.web_requests import WebRequests
from longshore.config import Config
from longshore.core.addresses import Allowed
from longshore.gateway.backend import Backend
from longshore.gateway.web_workers import WebWorkers
from longshore.links.outbound import Outbound
from longshore.run import machine
from longshore.wire.worker_side import Patience


@asynccontextmanager
async def attending(
    config: Config, requests: WebRequests, backend: Backend, allowed: Allowed
) -> AsyncIterator[WebWorkers]:
    """The web workers that this process attends, while the block runs."""
    async with Outbound(allowed, keep_alive=True) as outbound:
        web = WebWorkers(
            config.gateway,
            requests,
            backend,
            outbound,
            machine.SystemClock(),
            lease_s=config.dispatcher.lease_s,
            patience=_patience(config),
            utc=time,
            new_id=fresh_id,
        )
        running = asyncio.create_task(web.run())
        try:
            yield web
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            web.close()


def _patience(config: Config) -> Patience:
    settings = config.worker
    return Patience(
        settings.broker_timeout_s,
        settings.silent_periods,
        settings.abort_before_s,
        settings.kill_before_s,
        settings.resend_s,
    )
