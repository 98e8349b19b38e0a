"""A page in a developer's browser can do nothing to the API on loopback.

A real browser opens a page that tries all that a page can: from another site, from another port of
this machine, and by a name of its own that leads to 127.0.0.1.
"""

from __future__ import annotations

import http.client
import json
import queue
import re
import shutil
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from socketserver import BaseRequestHandler, BaseServer, ThreadingTCPServer
from typing import Any, TypeVar

import pytest

from longshore.testing.processes import Process, settings
from tests.system.conftest import ANY, APPS, QUICK

PAGE = Path(__file__).with_name("attack.html").read_bytes()
JOBS = "/dispatcher/jobs/"
STATUS = re.compile(rb"HTTP/1\.1 (\d{3}) ")
S = TypeVar("S", bound=BaseServer)
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


class Attacker(ThreadingHTTPServer):
    """The server of the page; `reports` has what the page found out."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.reports: queue.Queue[dict[str, str]] = queue.Queue()


class _Handler(BaseHTTPRequestHandler):
    server: Attacker

    def do_GET(self) -> None:
        self.wfile.write(page())

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(204)
        self.end_headers()
        self.server.reports.put(json.loads(body))

    def log_message(self, *_: Any) -> None:
        """Says nothing."""


def page() -> bytes:
    """The page, as a server answers it."""
    head = f"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: {len(PAGE)}\r\n"
    return f"{head}Connection: close\r\n\r\n".encode() + PAGE


class Between(ThreadingTCPServer):
    """Stands between the browser and the gateway, and notes how the gateway answers.

    If it `rebinds`, its first answer is the page. From then on its name leads to the gateway, as
    that of a site does whose name server says so.
    """

    daemon_threads = True

    def __init__(self, gateway: int, *, rebinds: bool = False) -> None:
        super().__init__(("127.0.0.1", 0), _Splice)
        self.gateway = gateway
        self.statuses: list[int] = []
        self._shows_page = threading.Semaphore(1 if rebinds else 0)

    def is_first(self, asked: bytes) -> bool:
        """Whether this request is the one that gets the page."""
        return bool(asked) and self._shows_page.acquire(blocking=False)


class _Splice(BaseRequestHandler):
    server: Between

    def handle(self) -> None:
        # Not by connections: a browser may open some before it has anything to ask.
        asked = self.request.recv(65_536)
        if self.server.is_first(asked):
            self.request.sendall(page())
            return
        with socket.create_connection(("127.0.0.1", self.server.gateway)) as gateway:
            gateway.sendall(asked)
            threading.Thread(target=_copy, args=(self.request, gateway), daemon=True).start()
            _copy(gateway, self.request, self._note)

    def _note(self, data: bytes) -> None:
        self.server.statuses += map(int, STATUS.findall(data))


def _copy(
    source: socket.socket, target: socket.socket, note: Callable[[bytes], None] | None = None
) -> None:
    """Passes on what comes, until either side has closed."""
    with suppress(OSError):
        while data := source.recv(65_536):
            if note is not None:
                note(data)
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)


@contextmanager
def serving(server: S) -> Iterator[S]:
    """A server that runs in a thread."""
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()


@pytest.fixture
def attacker() -> Iterator[Attacker]:
    with serving(Attacker()) as server:
        yield server


@pytest.fixture
def port(tmp_path: Path) -> Iterator[int]:
    """The port of HTTP of a `longshore up` with one job that is done."""
    words = ["--app", "harbour:app", "--backend", ANY, "--frontend", ANY, "--http", ANY]
    words += ["--store", f"sqlite:///{tmp_path}/store.db", *settings(**QUICK)]
    with Process("up", *words, cwd=APPS, log=tmp_path / "up.log") as process:
        found = int(process.ready().facts["http"].rpartition(":")[2])
        job = {"kind": "add", "args": {"a": 1, "b": 2}}
        assert call(found, "POST", JOBS, job)["number"] == 1
        assert call(found, "GET", f"{JOBS}1/result?wait_s=30")["state"] == "succeeded"
        yield found


def call(port: int, method: str, path: str, body: object = None) -> Any:
    """What a program gets, which may do everything."""
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=30)) as link:
        link.request(method, path, json.dumps(body), {"Content-Type": "application/json"})
        return json.loads(link.getresponse().read())


@contextmanager
def browser(folder: Path, url: str, *flags: str) -> Iterator[None]:
    """A browser that shows a page."""
    found = shutil.which("chromium") or shutil.which("chromium-browser")
    assert found, "there is no chromium; scripts/setup browser installs it"
    with (folder / "browser.log").open("wb") as log:
        profile = f"--user-data-dir={folder / 'profile'}"
        process = subprocess.Popen([found, *FLAGS, profile, *flags, url], stdout=log, stderr=log)
        try:
            yield
        finally:
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


@pytest.mark.parametrize("site", ["attacker.example", "127.0.0.1"])
def test_a_page_of_another_site_gets_nothing_and_changes_nothing(
    attacker: Attacker, port: int, tmp_path: Path, site: str
) -> None:
    """Another port of this machine is another site, too."""
    with serving(Between(port)) as between:
        victim = f"http://127.0.0.1:{between.server_address[1]}"
        found = attack(attacker, tmp_path, f"{site}:{attacker.server_port}", victim)
    check(port, found, between)


def test_a_page_whose_name_comes_to_lead_here_gets_nothing_and_changes_nothing(
    attacker: Attacker, port: int, tmp_path: Path
) -> None:
    """For the browser, page and gateway are one site. Only the name tells."""
    with serving(Between(port, rebinds=True)) as between:
        place = f"attacker.example:{between.server_address[1]}"
        found = attack(attacker, tmp_path, place, f"http://{place}")
    assert all("421" in answer for name, answer in found.items() if name.startswith("read"))
    check(port, found, between, by_name=True)


def attack(attacker: Attacker, folder: Path, place: str, victim: str) -> dict[str, str]:
    """What came of each attack of the page at this place."""
    report = f"http://attacker.example:{attacker.server_port}/report"
    names = "--host-resolver-rules=MAP attacker.example 127.0.0.1"
    with browser(folder, f"http://{place}/?victim={victim}&report={report}", names):
        return attacker.reports.get(timeout=60)


def check(port: int, found: dict[str, str], between: Between, *, by_name: bool = False) -> None:
    """No attack got anything, the gateway refused each, and no job has changed."""
    assert len(found) == 12
    for attack, answer in found.items():
        is_blind = attack in ("beacon", "forms") or answer.startswith("opaque 0 ")
        is_told = by_name and "421" in answer
        assert answer.startswith("refused") or is_blind or is_told, f"{attack}: {answer}"
    assert len(between.statuses) >= 10, "the attacks have reached the gateway"
    assert set(between.statuses) <= {403, 421}
    left = call(port, "GET", JOBS)["jobs"]
    assert [(job["number"], job["state"]) for job in left] == [(1, "succeeded")]


def test_the_api_answers_its_own_pages(attacker: Attacker, port: int, tmp_path: Path) -> None:
    """The guard lets through what a browser shows by itself, so the test above can fail."""
    url = f"http://127.0.0.1:{port}{JOBS}"
    found = shutil.which("chromium") or shutil.which("chromium-browser")
    assert found
    done = subprocess.run(
        [found, *FLAGS, f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom", url],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert "add" in done.stdout
