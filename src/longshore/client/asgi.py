"""Makes a web worker of an app. Whoever does not call it does not load what that needs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from longshore.ports import App

if TYPE_CHECKING:
    from longshore.client.web_worker import WebWorker


def asgi(
    app: App,
    *,
    gateway: str,
    host: str,
    port: int,
    max_jobs: int = 10,
    target: str = "",
    token: str = "",
) -> WebWorker:
    """The app as a web worker: an ASGI application for any server, such as uvicorn.

    When the server starts, it registers at the `gateway` (a URL) as reachable at `host` and `port`;
    when the server stops, it resigns. Jobs are given up before the lease ends that gateways tell
    it. A gateway that asks for tokens needs one of the role `worker`. A plain function cannot be
    stopped from outside: it should look at `ctx.cancelled`.

        web = longshore.asgi(app, gateway="http://127.0.0.1:7700", host="127.0.0.1", port=8000)
    """
    from longshore.client.gateway_calls import GatewayCalls
    from longshore.client.web_worker import WebWorker

    calls = GatewayCalls(gateway.rstrip("/"), token)
    return WebWorker(app, calls, host, port, max_jobs, target)
