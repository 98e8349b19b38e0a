"""What is told of a lost worker, to a command and to a URL, and what may go wrong there."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import sys
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from standardwebhooks import Webhook

from longshore.config import LOST_VARIABLES, load
from longshore.core.addresses import allowed
from longshore.errors import ConfigError
from longshore.links.hook import MOST_AT_ONCE, MOST_WAITING, LostHook
from longshore.model.worker import LostWorker, MachineInfo, WorkerInfo
from longshore.testing.processes import await_true

MACHINE = MachineInfo("i-0abc", "10.0.0.7", "203.0.113.7")
INFO = WorkerInfo(id=UUID(int=5), name="dock\0-1", host="crane", machine=MACHINE)
LOST = LostWorker(INFO, 3, "not heard of for 15 s")
NOW = datetime.now(UTC)


@pytest.fixture(autouse=True)
def _now(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test has its own time: a receiver refuses what is five minutes old."""
    monkeypatch.setattr(sys.modules[__name__], "NOW", datetime.now(UTC))


def hook(what: str, secret: str = "", within_s: float = 10.0) -> LostHook:
    here = allowed([], loopback=True)
    return LostHook(
        what, secret, lambda: NOW, variables=LOST_VARIABLES, allowed=here, within_s=within_s
    )


def script(folder: Path, text: str) -> str:
    path = folder / "hook script.py"
    path.write_text(text)
    return f"{sys.executable} '{path}'"


def has_ended(pid: int) -> bool:
    stat = Path(f"/proc/{pid}/stat")
    return not stat.exists() or stat.read_text().rsplit(")", 1)[1].split()[0] == "Z"


class Receiver:
    """A web server on loopback that remembers what was posted."""

    def __init__(self) -> None:
        self.posts: list[tuple[dict[str, str], bytes]] = []
        self.status = 204
        self.hang = threading.Event()
        self.hang.set()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                receiver.posts.append((dict(self.headers), body))
                receiver.hang.wait(30)
                self.send_response(receiver.status)
                self.send_header("Location", "/elsewhere")
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                pass

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/lost"
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.01,))
        self.thread.start()

    def close(self) -> None:
        self.hang.set()
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    one = Receiver()
    yield one
    one.close()


async def test_a_command_is_run_with_who_was_lost_in_its_environment(tmp_path: Path) -> None:
    body = (
        "import json, os\n"
        f"names = {LOST_VARIABLES!r}\n"
        f"open({str(tmp_path / 'out')!r}, 'w').write(json.dumps([os.environ[n] for n in names]))\n"
    )
    lost = hook(script(tmp_path, body))
    lost(LOST)
    await lost.close()
    said = json.loads((tmp_path / "out").read_text())
    machine = ["i-0abc", "10.0.0.7", "203.0.113.7"]
    assert said == [str(UUID(int=5)), "dock-1", "crane", "not heard of for 15 s", "3", *machine]


def test_the_variables_of_the_hook_are_not_taken_for_settings() -> None:
    assert LOST_VARIABLES[0] == "LONGSHORE_WORKER_ID"
    assert load(environ=dict.fromkeys(LOST_VARIABLES, "x")) == load(environ={})


async def test_no_shell_reads_the_command(tmp_path: Path) -> None:
    lost = hook(f"{sys.executable} -c 'import sys; open(sys.argv[1], \"w\")' '{tmp_path}/$(id);x'")
    lost(LOST)
    await lost.close()
    assert (tmp_path / "$(id);x").exists()


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (f"{sys.executable} -c 'raise SystemExit(7)'", "ended with code 7"),
        ("/nowhere/at-all", "No such file"),
    ],
)
async def test_a_command_that_fails_is_logged(
    command: str, words: str, caplog: pytest.LogCaptureFixture
) -> None:
    lost = hook(command)
    lost(LOST)
    await lost.close()
    assert words in caplog.text
    assert str(UUID(int=5)) in caplog.text


async def test_a_command_that_hangs_is_killed_with_its_children(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    body = (
        "import os, signal, sys\n"
        "child = os.fork()\n"
        f"child and open({str(tmp_path / 'pid')!r}, 'w').write(str(child))\n"
        "signal.pause()\n"
    )
    lost = hook(script(tmp_path, body), within_s=1.5)
    lost(LOST)
    await lost.close()
    assert "took longer than 1.5 s" in caplog.text
    child = int((tmp_path / "pid").read_text())
    await_true(lambda: has_ended(child), "the child was killed with its parent")


async def test_a_url_is_posted_to_and_what_is_said_is_signed(receiver: Receiver) -> None:
    lost = hook(receiver.url, "hush")
    lost(LOST)
    await lost.close()
    [(headers, body)] = receiver.posts
    said = Webhook(base64.b64encode(b"hush").decode())
    assert said.verify(body, headers) == {
        "type": "worker.lost",
        "timestamp": NOW.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        "data": {
            "worker": str(UUID(int=5)),
            "name": "dock\0-1",
            "host": "crane",
            "session": 3,
            "reason": "not heard of for 15 s",
            "instance_id": "i-0abc",
            "private_ip": "10.0.0.7",
            "public_ip": "203.0.113.7",
        },
    }
    assert headers["webhook-id"] == f"{UUID(int=5)}-3"


async def test_a_secret_as_receivers_have_it_is_taken_too(receiver: Receiver) -> None:
    secret = "whsec_" + base64.b64encode(b"some key").decode()
    lost = hook(receiver.url, secret)
    lost(LOST)
    await lost.close()
    [(headers, body)] = receiver.posts
    assert Webhook(secret).verify(body, headers)


async def test_a_url_that_is_not_allowed_is_not_called(
    receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    lost = LostHook(receiver.url, "hush", lambda: NOW, variables=LOST_VARIABLES)
    lost(LOST)
    await lost.close()
    assert "127.0.0.1 is a loopback address" in caplog.text
    assert not receiver.posts


@pytest.mark.parametrize(
    ("url", "secret"), [("http://user:word@example.com", "x"), ("http://example.com", "whsec_&")]
)
def test_a_url_or_a_secret_that_cannot_work_is_refused_at_once(url: str, secret: str) -> None:
    with pytest.raises(ConfigError):
        hook(url, secret)


@pytest.mark.parametrize("status", [302, 404, 500])
async def test_a_url_that_refuses_is_logged_and_no_redirect_is_followed(
    receiver: Receiver, status: int, caplog: pytest.LogCaptureFixture
) -> None:
    receiver.status = status
    lost = hook(receiver.url, "hush")
    lost(LOST)
    await lost.close()
    assert f"answered {status}" in caplog.text
    assert len(receiver.posts) == 1


async def test_a_url_where_nobody_answers_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    lost = hook("http://127.0.0.1:9/", "hush")
    lost(LOST)
    await lost.close()
    assert "Connection refused" in caplog.text


async def test_a_url_that_hangs_is_given_up_and_blocks_nobody(
    receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    receiver.hang.clear()
    lost = hook(receiver.url, "hush", within_s=0.2)
    lost(LOST)
    async with asyncio.timeout(5):
        await lost.close()
    receiver.hang.set()
    assert "0.2 s" in caplog.text


async def test_a_mass_of_losses_is_bounded(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)
    running = 0
    most = 0

    class Counting(LostHook):
        async def _run(self, lost: LostWorker) -> None:
            nonlocal running, most
            running += 1
            most = max(most, running)
            await asyncio.sleep(0)
            running -= 1

    lost = Counting("true", "", lambda: NOW, variables=LOST_VARIABLES)
    for _ in range(MOST_WAITING + 5):
        lost(LOST)
    await lost.close()
    assert most == MOST_AT_ONCE
    assert caplog.text.count("too many wait") == 5


def test_what_cannot_be_run_is_refused_at_once() -> None:
    with pytest.raises(ConfigError, match="set on_worker_lost_secret"):
        hook("https://example.org/lost")
    with pytest.raises(ConfigError, match="no command line: No closing quotation"):
        hook("reboot 'now")
    with pytest.raises(ConfigError, match="names no command"):
        hook("  ")
