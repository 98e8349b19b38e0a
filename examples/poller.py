"""A poller that keeps to an API's rate: `python examples/poller.py`.

Starts a little HTTP server that allows four requests a second, and `longshore up` on a temporary
store with one actor that polls three feeds of it. At first the actor asks too fast, and is told so.
From then on it keeps to the rate, although the worker that has it is killed. Exits with 0 only if
that is so.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # the same modules, by their names from the repository's root
    from examples.actor_fleet import expect, fleet, kill_worker_of, run_example, watch
    from examples.poller_app import app, pollers
else:
    from actor_fleet import expect, fleet, kill_worker_of, run_example, watch
    from poller_app import app, pollers

EACH_S = 0.25
"""The API allows one request in this time."""
FEEDS = ("news", "sport", "weather")
ENOUGH = 12


class Api(ThreadingHTTPServer):
    """Counts its requests, and refuses those that come too soon after another."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), ApiRequest)
        self.began = time.monotonic()
        self.requests: list[tuple[float, str, int]] = []
        self._lock = threading.Lock()
        self._last = -EACH_S

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.server_address[1]}"

    def admit(self, path: str) -> int:
        """The status for a request that comes now."""
        with self._lock:
            now = time.monotonic() - self.began
            status = 200 if now - self._last >= EACH_S else 429
            self._last = now
            self.requests.append((now, path, status))
            return status


class ApiRequest(BaseHTTPRequestHandler):
    """One request."""

    server: Api

    def do_GET(self) -> None:
        """Answers with two new items of the feed."""
        status = self.server.admit(self.path)
        after = int(self.path.rpartition("=")[2])
        items = [] if status != 200 else [after + 1, after + 2]
        body = json.dumps({"items": items, "last": after + len(items)}).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        if status == 429:
            self.send_header("Retry-After", str(2 * EACH_S))
            self.send_header("X-Interval", str(EACH_S))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Says nothing: the example prints what it wants."""


@contextmanager
def api() -> Iterator[Api]:
    """The API, while the example runs."""
    with Api() as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def show() -> None:
    """Polls until there is enough to see."""
    with api() as server, fleet("poller_app:app"), app:
        server.began = time.monotonic()
        poller = pollers.start("api", url=server.url)
        for feed in FEEDS:
            poller.send("follow", feed=feed)
        watch(lambda: len(server.requests) >= ENOUGH // 2, "it polls")
        kill_worker_of(poller)
        watch(lambda: len(server.requests) >= ENOUGH, "it goes on polling")
        poller.pause()
        watch(lambda: poller.status() == "paused", "it is paused")
        tell(server)
        state = poller.state()
        print(f"it has {state.items} items, and waits {state.wait_s} s between two requests")
        last = dict.fromkeys(FEEDS, 0) | state.feeds
        expect(state.items == sum(last.values()), "each item was counted once")


def tell(server: Api) -> None:
    """Prints the requests; after the first refusal the rate must have been kept.

    One more may be refused: if the worker is killed during a request, another repeats it at once.
    """
    requests = server.requests[:]
    for at, path, status in requests:
        print(f"{at:7.2f} s  {status}  {path}")
    refused = [place for place, (_, _, status) in enumerate(requests) if status == 429]
    print(f"{len(requests)} requests, {len(refused)} refused")
    expect(len(refused) <= 2, "it was refused once, and then kept to the rate")


if __name__ == "__main__":
    sys.exit(run_example(show))
