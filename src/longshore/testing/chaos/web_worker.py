"""A web worker: `python -m longshore.testing.chaos.web_worker GATEWAY PORT`."""

from __future__ import annotations

import sys

import uvicorn

import longshore
from longshore import Context
from longshore.testing.chaos.app import Body
from longshore.testing.servers import HOST

app = longshore.App("chaos-web")


@app.job
async def web_step(ctx: Context, ms: int) -> dict[str, str]:
    """A coroutine in a web service."""
    return await Body(ctx).run(ms)


def main(gateway: str, port: int) -> None:
    """Serves until it is ended."""
    web = longshore.asgi(app, gateway=gateway, host=HOST, port=port, max_jobs=4)
    uvicorn.Server(uvicorn.Config(web, host=HOST, port=port, log_level="warning")).run()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
