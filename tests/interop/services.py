"""A web service under the control of a test: it answers as told, and notes what it is asked."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.request import ProxyHandler, Request, build_opener

Answer = tuple[int, Any]
_opener = build_opener(ProxyHandler({}))


def call(
    url: str, method: str, path: str, body: object = None, headers: dict[str, str] | None = None
) -> Answer:
    """The status and the document that a gateway answers."""
    data = None if body is None else json.dumps(body).encode()
    told = {**({} if body is None else {"Content-Type": "application/json"}), **(headers or {})}
    request = Request(url + path, data, told, method=method)
    try:
        with _opener.open(request, timeout=30) as answer:
            return answer.status, json.load(answer)
    except OSError as error:
        if not hasattr(error, "code"):
            raise
        return error.code, json.loads(error.read())  # type: ignore[attr-defined]


class Service:
    """Takes up to `max_jobs` jobs, and ends them when it is told to.

    `behave` may answer instead: a status with a document, or raw bytes; None leaves it as it is.
    """

    def __init__(self, kind: str, max_jobs: int = 1) -> None:
        self.kind = kind
        self.max_jobs = max_jobs
        self.jobs: dict[str, dict[str, Any]] = {}
        self.asked: list[tuple[str, str]] = []
        self.headers: list[dict[str, str]] = []
        self.posted: list[dict[str, Any]] = []
        self.stopped: list[tuple[str, str]] = []
        self.behave: Callable[[str, str], Answer | bytes | None] = lambda method, path: None
        self.answer_then_drop = False
        """Whether its next answer gets lost on the way."""
        self.id = self.secret = ""
        self._serve(0)

    def _serve(self, port: int) -> None:
        self._server = _Server(("127.0.0.1", port), _routes(self))
        self._server.daemon_threads = True
        self.port = self._server.server_port
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    # what a test does

    def register(self, url: str, **more: object) -> dict[str, Any]:
        """Registers at a gateway, for its kind."""
        me = {"hostname": "127.0.0.1", "port": self.port, "maxJobs": self.max_jobs}
        status, answer = call(
            url, "PUT", "/dispatcher/workers/", {**me, "handlers": {self.kind: {}}, **more}
        )
        assert status in (200, 201), answer
        self.id, self.secret = answer["id"], answer["secret"]
        return {"status": status, **answer}

    def finish(self, url: str, job: dict[str, Any], **more: object) -> Answer:
        """Reports the end of a job to a gateway, and forgets it."""
        path, body = f"/dispatcher/jobs/{job['id']}/result", {"token": job["token"], **more}
        answer = call(url, "PUT", path, body)
        self.jobs.pop(job["id"], None)
        return answer

    def pings(self) -> int:
        """How often it was asked for its health."""
        return sum(path == "/health_check/" for _, path in self.asked)

    def close(self) -> None:
        """Stops to listen; connections end too."""
        self._server.shutdown()
        self._server.server_close()
        self._server.cut()

    def come_back(self) -> None:
        """Listens again at the same port."""
        self._serve(self.port)

    # what a gateway asks

    def answer(self, method: str, path: str, body: bytes) -> Answer | bytes:
        self.asked.append((method, path))
        told = self.behave(method, path)
        if told is not None:
            return told
        if path == "/health_check/":
            jobs = [{"id": one["id"], "token": one["token"]} for one in self.jobs.values()]
            return 200, {"jobs": jobs}
        if method == "POST":
            return self._take(json.loads(body)), {}
        id, _, token = path.removeprefix("/jobs/").partition("?token=")
        job = self.jobs.get(id)
        if method == "DELETE":
            self.stopped.append((id, token))
            self.jobs.pop(id, None)
            return (404 if job is None else 200), {}
        return (404, {}) if job is None else (200, {"id": id, "token": job["token"]})

    def _take(self, job: dict[str, Any]) -> int:
        self.posted.append(job)
        known = self.jobs.get(job["id"])
        if known is not None and known["token"] == job["token"]:
            return 202
        if len(self.jobs) >= self.max_jobs:
            return 409
        self.jobs[job["id"]] = job
        return 202


class _Server(ThreadingHTTPServer):
    """Can end the connections that it keeps open."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._open: set[Any] = set()

    def process_request(self, request: Any, client_address: Any) -> None:
        self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self._open.discard(request)
        super().shutdown_request(request)

    def cut(self) -> None:
        for one in list(self._open):
            self.shutdown_request(one)

    def handle_error(self, request: Any, client_address: Any) -> None: ...


def _routes(service: Service) -> type[BaseHTTPRequestHandler]:
    class Routes(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _any(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            service.headers.append(dict(self.headers.items()))
            told = service.answer(self.command, self.path, body)
            if service.answer_then_drop:
                service.answer_then_drop = False
                told = b""
            if isinstance(told, bytes):
                self.wfile.write(told)
                self.close_connection = True
                return
            data = json.dumps(told[1]).encode()
            self.send_response(told[0])
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = do_DELETE = _any

        def log_message(self, *args: object) -> None: ...

    return Routes
