"""An app as a web worker under uvicorn: `asgi_worker.py GATEWAY`."""

from __future__ import annotations

import asyncio
import socket
import sys
import threading
import time

import uvicorn

import longshore

app = longshore.App("asgi")


@app.resource
async def factor():  # type: ignore[no-untyped-def]
    """Opened once for all jobs of the process."""
    yield 3


@app.job
async def triple(n: int, factor: int = longshore.GIVEN) -> int:
    """In the event loop."""
    await asyncio.sleep(0)
    return factor * n


@app.job
def where(ctx: longshore.Context) -> dict[str, object]:
    """In a thread."""
    is_main = threading.current_thread() is threading.main_thread()
    return {"main": is_main, "attempt": ctx.attempt}


@app.job(retries=2, backoff_s=0.01)
async def falter(ctx: longshore.Context) -> int:
    """Succeeds at its third attempt."""
    if ctx.attempt < 3:
        raise RuntimeError("not yet")
    return ctx.attempt


@app.job
async def linger() -> None:
    """Until it is stopped."""
    await asyncio.sleep(60)


@app.job
def linger_plain(ctx: longshore.Context) -> None:
    """Until it is told to stop."""
    while not ctx.cancelled:
        time.sleep(0.02)


@app.job
async def doze(ctx: longshore.Context) -> str:
    """Snoozes once."""
    if ctx.attempt == 1:
        raise longshore.Snooze(after_s=0.05)
    return "awake"


@app.job
async def spawn(ctx: longshore.Context) -> None:
    """Wants what a web worker cannot do."""
    ctx.submit(triple.call(n=1))


if __name__ == "__main__":
    listening = socket.create_server(("127.0.0.1", 0))
    port = listening.getsockname()[1]
    web = longshore.asgi(app, gateway=sys.argv[1], host="127.0.0.1", port=port, max_jobs=4)
    config = uvicorn.Config(web, log_level="warning")
    uvicorn.Server(config).run([listening])
