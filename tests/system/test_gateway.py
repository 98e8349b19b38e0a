"""`longshore gateway` with real processes and sockets: started, supervised, drained, refused."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from longshore.testing.processes import Process, await_true, run, settings
from tests.system.conftest import ANY, APPS, QUICK, Fleet

JOBS = "/dispatcher/jobs/"


def call(url: str, method: str, path: str, body: object = None) -> tuple[int, Any]:
    """The status and the document that a gateway answers."""
    link = http.client.HTTPConnection(url.removeprefix("http://"), timeout=30)
    headers = {} if body is None else {"Content-Type": "application/json"}
    link.request(method, path, None if body is None else json.dumps(body), headers)
    with link.getresponse() as answer:
        data = answer.read()
    link.close()
    return answer.status, json.loads(data)


def done(url: str, body: object) -> Any:
    """The result of a job that is submitted over HTTP."""
    status, job = call(url, "POST", JOBS, body)
    assert status == 201, job
    status, ended = call(url, "GET", f"{JOBS}{job['id']}/result?wait_s=30")
    assert (status, ended["state"]) == (200, "succeeded"), ended
    return ended["result"]


def test_a_dispatcher_serves_http_on_each_store(fleet: Fleet) -> None:
    words = ["--store", fleet.store, "--backend", ANY, "--frontend", ANY, "--http", ANY]
    dispatcher = fleet.start("dispatcher", *words, *settings(**QUICK))
    fleet.worker(dispatcher)
    url = dispatcher.facts["http"]
    assert done(url, {"kind": "add", "args": {"a": 1, "b": 2}}) == 3
    assert call(url, "GET", "/readyz")[0] == 200
    flow = {"name": "g", "jobs": [{"key": "a", "kind": "add", "args": {"a": 1, "b": 1}}]}
    status, group = call(url, "POST", "/dispatcher/groups/", flow)
    assert status == 201
    await_true(
        lambda: call(url, "GET", f"/dispatcher/groups/{group['id']}")[1]["state"] == "succeeded",
        "the group succeeds",
    )


def test_an_open_page_shows_what_another_dispatcher_commits(fleet: Fleet) -> None:
    """The looks that time brings are an hour apart: only a hint can bring it."""
    words = ["--store", fleet.store, "--backend", ANY, "--frontend", ANY, "--http", ANY]
    words += settings(**{**QUICK, "stream_idle_poll_s": 3600})
    one, other = (fleet.start("dispatcher", *words) for _ in range(2))
    with closing(http.client.HTTPConnection(one.facts["http"][7:], timeout=30)) as tab:
        tab.request("GET", "/jobs/", headers={"Accept": "text/event-stream"})
        events = tab.getresponse()
        while b"no job matches" not in events.readline():
            pass
        status, job = call(other.facts["http"], "POST", JOBS, {"kind": "add", "delay_s": 3600})
        assert status == 201
        while f"jobs/{job['number']}".encode() not in events.readline():
            pass


@pytest.fixture
def up(tmp_path: Path) -> Iterator[Process]:
    """Everything on this machine, with HTTP."""
    words = ["--app", "harbour:app", "--backend", ANY, "--frontend", ANY, "--http", ANY]
    words += ["--store", f"sqlite:///{tmp_path}/store.db", *settings(**QUICK)]
    with Process("up", *words, cwd=APPS, log=tmp_path / "up.log") as process:
        yield process.ready()


def test_a_gateway_that_dies_is_replaced_on_the_same_port(up: Process) -> None:
    url = up.facts["http"]
    (gateway,) = children(up.pid, "gateway")
    os.kill(gateway, signal.SIGKILL)
    await_true(lambda: children(up.pid, "gateway") not in ([], [gateway]), "another one starts")
    assert done(url, {"kind": "add", "args": {"a": 2, "b": 2}}) == 4
    assert up.terminate() == 0
    assert children(up.pid, "gateway") == []


def children(pid: int, role: str) -> list[int]:
    """The processes of this role that a process has started."""
    found = []
    for one in Path("/proc").iterdir():
        if not one.name.isdigit():
            continue
        try:
            parent = (one / "stat").read_text().rpartition(") ")[2].split()[1]
            words = (one / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if parent == str(pid) and role.encode() in words:
            found.append(int(one.name))
    return found


def test_a_gateway_of_its_own_drains_what_waits(up: Process, tmp_path: Path) -> None:
    """A long poll is answered and a stream ends when the process is told to stop."""
    words = ["--connect", up.facts["frontend"], "--http", ANY]
    with Process("gateway", *words, log=tmp_path / "gateway.log") as gateway:
        url = gateway.ready().facts["http"]
        _, job = call(url, "POST", JOBS, {"kind": "add", "args": {"a": 1, "b": 1}, "delay_s": 3600})
        host = url.removeprefix("http://")
        poll, stream = (http.client.HTTPConnection(host, timeout=30) for _ in range(2))
        with closing(poll), closing(stream):
            stream.request("GET", f"{JOBS}{job['id']}/events")
            events = stream.getresponse()
            while b"delayed" not in events.readline():
                pass
            poll.request("GET", f"{JOBS}{job['id']}/result?wait_s=50")
            call(url, "GET", "/healthz")  # which is answered after the one before it has come
            gateway.signal(signal.SIGTERM)
            answer = poll.getresponse()
            assert (answer.status, json.loads(answer.read())["state"]) == (202, "delayed")
            assert b"event: end" not in events.read()
        assert gateway.wait() == 0


def test_a_taken_port_is_named_with_the_way_out(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        words = ["--backend", ANY, "--frontend", ANY, "--http", f"127.0.0.1:{port}"]
        for role in ("up", "dispatcher"):
            ended = run(role, *words, cwd=tmp_path)
            assert ended.returncode == 2
            assert f"127.0.0.1:{port}" in ended.stderr
            assert "--no-http" in ended.stderr


@pytest.mark.parametrize("address", ["0.0.0.0:0", "[::]:0", "10.0.0.1:7700", "192.0.2.7:7700"])
def test_other_machines_are_kept_away(address: str, tmp_path: Path) -> None:
    ended = run("gateway", "--http", address, cwd=tmp_path)
    assert ended.returncode == 2
    assert "other machines" in ended.stderr
