"""A receiver of callbacks: a web server of the standard library on loopback."""

from __future__ import annotations

import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple


class Got(NamedTuple):
    """A request that came."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


Answer = Callable[[BaseHTTPRequestHandler], None]


def status(code: int, **headers: str) -> Answer:
    """Answers with a status and nothing else."""

    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(code)
        for name, value in headers.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.end_headers()

    return answer


class Receiver:
    """Keeps all requests. The first are answered with `answers`, one each; all others with 204."""

    def __init__(self, *answers: Answer, port: int = 0) -> None:
        self.got: list[Got] = []
        self.answers = list(answers)
        self.going_on = threading.Event()
        """What an answer that waits waits for."""
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def _take(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                headers = {name.lower(): value for name, value in self.headers.items()}
                receiver.got.append(Got(self.command, self.path, headers, body))
                answer = receiver.answers.pop(0) if receiver.answers else status(204)
                answer(self)

            do_POST = do_PUT = do_GET = do_DELETE = _take

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self._server.daemon_threads = True
        self.port = self._server.server_port
        self.url = f"http://127.0.0.1:{self.port}/hook"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()

    def waits(self, handler: BaseHTTPRequestHandler) -> None:
        """An answer that does not come before `going_on`."""
        self.going_on.wait(60)

    def __enter__(self) -> Receiver:
        return self

    def __exit__(self, *_: object) -> None:
        self.going_on.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
