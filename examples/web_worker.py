"""A web worker in one file, with Python's standard library only: no part of Longshore is used.

    $ longshore up &
    $ python examples/web_worker.py --gateway http://127.0.0.1:7700 --port 8001
    $ longshore submit word_count text="to be or not to be" --wait

It answers four routes: GET /health_check/, POST /jobs/, GET /jobs/ID, DELETE /jobs/ID. It tells a
gateway where it is, runs what it is given, and reports how that ended.
"""

from __future__ import annotations

import argparse
import hashlib
import hmac
import json
import signal
import sys
import threading
import time
import urllib.error
import urllib.request
import uuid
from collections import Counter
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Document = dict[str, Any]


def word_count(stop: threading.Event, text: str) -> dict[str, int]:
    """Counts words."""
    return dict(Counter(text.split()))


def wait(stop: threading.Event, seconds: float) -> str:
    """Waits, or stops early. Every job of a web worker must look at `stop` now and then."""
    return "stopped" if stop.wait(seconds) else "waited"


def fail(stop: threading.Event, words: str = "as it was told") -> None:
    """Fails."""
    raise RuntimeError(words)


HANDLERS: dict[str, Callable[..., object]] = {"word_count": word_count, "wait": wait, "fail": fail}


class WebWorker:
    """The jobs of this process, and its registration at a gateway."""

    def __init__(self, gateway: str, host: str, port: int, max_jobs: int) -> None:
        self.gateway, self.host, self.port, self.max_jobs = gateway, host, port, max_jobs
        self.lock = threading.Lock()
        self.jobs: dict[str, Document] = {}
        self.answered: dict[int, float] = {}
        self.stop_at = float("inf")
        self.adoption = 0
        self.id = self.secret = ""

    # the gateway

    def register(self) -> None:
        """Says where this worker is and what it can do; asks again until a gateway answers."""
        me = {
            "hostname": self.host,
            "port": self.port,
            "maxJobs": self.max_jobs,
            "handlers": {kind: {} for kind in HANDLERS},
            "instance": uuid.uuid4().hex,
        }
        while not self.id:
            status, answer = self.ask("PUT", "/dispatcher/workers/", me)
            if status in (200, 201):
                self.id, self.secret = answer["id"], answer["secret"]
            elif status and status != 503:
                sys.exit(f"the gateway refused the registration: {answer}")
            else:
                time.sleep(0.2)

    def ask(self, method: str, path: str, body: Document | None = None) -> tuple[int, Document]:
        """The status and the JSON of a gateway's answer; status 0 if there is none."""
        data = b"" if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"} if data else {}
        if self.secret:
            headers |= {"Longshore-Worker": self.id, **self.signed(method, path, data)}
        request = urllib.request.Request(self.gateway + path, data or None, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=15) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            return error.code, json.loads(error.read() or b"{}")
        except (OSError, ValueError):
            return 0, {}

    def signed(self, method: str, path: str, body: bytes, speaker: str = "worker") -> Document:
        """The headers that sign a message; none before the registration is answered."""
        if not self.secret:
            return {}
        now = str(int(time.time()))
        said = "\n".join((speaker, method, path, now, hashlib.sha256(body).hexdigest()))
        made = hmac.new(self.secret.encode(), said.encode(), hashlib.sha256).hexdigest()
        return {"Longshore-Time": now, "Longshore-Signature": made}

    # jobs

    def take(self, job: Document) -> int:
        """202 if it runs from now on, or did already; 409 if there is no room."""
        with self.lock:
            known = self.jobs.get(job["id"])
            if known is not None and known["token"] == job["token"]:
                return 202
            if not self.id or len(self.jobs) >= self.max_jobs or job["kind"] not in HANDLERS:
                return 409
            job["stop"] = threading.Event()
            self.jobs[job["id"]] = job
        threading.Thread(target=self.run, args=(job,), daemon=True).start()
        return 202

    def run(self, job: Document) -> None:
        """Runs a job, and reports its end until a gateway has taken it or refused it."""
        try:
            result = HANDLERS[job["kind"]](job["stop"], **job["args"])
            end = {"status": "cancelled" if job["stop"].is_set() else "succeeded", "result": result}
        except Exception as error:
            words = {"type": type(error).__name__, "message": str(error)}
            end = {"status": "failed", "error": words}
        path = f"/dispatcher/jobs/{job['id']}/result"
        while self.jobs.get(job["id"]) is job:
            status, _ = self.ask("PUT", path, {"token": job["token"], **end})
            if 200 <= status < 500 and status != 408:
                break
            time.sleep(0.5)
        # Only now: while it is listed, nobody else gets the job.
        self.forget(job)

    def forget(self, job: Document) -> None:
        with self.lock:
            if self.jobs.get(job["id"]) is job:
                del self.jobs[job["id"]]

    def stop(self, id: str, token: str) -> int:
        """Stops a job; 202 if that takes a moment."""
        job = self.jobs.get(id)
        if job is None or str(job["token"]) != token:
            return 404
        job["stop"].set()
        return 202

    # the lease

    def is_late(self, adoption: int) -> bool:
        """Whether a gateway speaks that was frozen while another one took over."""
        with self.lock:
            if adoption > self.adoption:
                self.adoption, self.answered = adoption, {}
            return adoption < self.adoption

    def health(self, check: int, counted: int, lease_s: float) -> Document:
        """What runs here. An answer that counted lets it run on for `lease_s` after it was sent."""
        with self.lock:
            self.answered = {no: at for no, at in self.answered.items() if no >= counted}
            if counted in self.answered:
                self.stop_at = self.answered[counted] + lease_s - min(5.0, lease_s / 3)
            self.answered[check] = time.monotonic()
            jobs = [{"id": job["id"], "token": job["token"]} for job in self.jobs.values()]
        return {"jobs": jobs}

    def keep_lease(self) -> None:
        """Stops all jobs before others may get them: nobody asked for so long."""
        while True:
            time.sleep(0.5)
            if time.monotonic() > self.stop_at:
                for job in list(self.jobs.values()):
                    job["stop"].set()


def routes(worker: WebWorker) -> type[BaseHTTPRequestHandler]:
    """The four routes."""

    class Routes(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            if self.is_late():
                return
            if self.path == "/health_check/":
                told = [self.headers.get(f"Longshore-{n}") or 0 for n in ("Check", "Counted")]
                lease_s = float(self.headers.get("Longshore-Lease-S") or 0)
                self.answer(200, worker.health(int(told[0]), int(told[1]), lease_s))
                return
            job = worker.jobs.get(self.path.removeprefix("/jobs/"))
            self.answer(200, {"id": job["id"], "token": job["token"]}) if job else self.answer(404)

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            if self.is_late():
                return
            self.answer(worker.take(json.loads(body)))

        def do_DELETE(self) -> None:
            if self.is_late():
                return
            id, _, token = self.path.removeprefix("/jobs/").partition("?token=")
            self.answer(worker.stop(id, token))

        def is_late(self) -> bool:
            if not worker.is_late(int(self.headers.get("Longshore-Adoption") or 0)):
                return False
            self.answer(409)
            return True

        def answer(self, status: int, document: Document | None = None) -> None:
            body = json.dumps(document or {}).encode()
            self.send_response(status)
            for name, value in worker.signed(self.command, self.path, body).items():
                self.send_header(name, value)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: object) -> None: ...

    return Routes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gateway", default="http://127.0.0.1:7700")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--max-jobs", type=int, default=4)
    given = parser.parse_args()
    worker = WebWorker(given.gateway, given.host, given.port, given.max_jobs)
    server = ThreadingHTTPServer((given.host, given.port), routes(worker))
    worker.port = server.server_port
    signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=server.shutdown).start())
    threading.Thread(target=worker.keep_lease, daemon=True).start()
    serving = threading.Thread(target=server.serve_forever, daemon=True)
    serving.start()
    worker.register()
    print(f"registered as {worker.id} at port {worker.port}", flush=True)
    serving.join()
    worker.ask("DELETE", f"/dispatcher/workers/{worker.id}")


if __name__ == "__main__":
    main()
