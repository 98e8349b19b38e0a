"""`longshore.asgi(app)` under a real server, behind a real gateway."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from longshore.testing.processes import await_true
from tests.interop.services import call
from tests.interop.test_web_workers import Port, ended, shown, submit, url_of

PROGRAM = Path(__file__).parent / "programs" / "asgi_worker.py"


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A gateway that insists on signatures, and the app that registered there."""
    folder = tmp_path_factory.mktemp("asgi")
    port = Port(f"sqlite:///{folder}/store.db", folder)
    url = url_of(port.gateway(port.dispatcher(), web_signatures="true"))
    with subprocess.Popen([sys.executable, str(PROGRAM), url]) as worker:
        try:
            await_true(lambda: is_alive(url), "the app has registered")
            yield url
            worker.terminate()
            worker.wait(20)
            last = call(url, "GET", "/dispatcher/workers/")[1]["web_workers"][-1]
            assert last["isResigned"]
        finally:
            worker.kill()
            port.close()


def is_alive(url: str) -> bool:
    found = call(url, "GET", "/dispatcher/workers/")[1]["web_workers"]
    return any(one["state"] == "alive" for one in found)


def done(url: str, kind: str, **args: Any) -> dict[str, Any]:
    return ended(url, submit(url, kind, args=args))


def test_coroutines_get_their_resources(url: str) -> None:
    assert done(url, "triple", n=14)["result"] == 42


def test_plain_functions_run_in_threads(url: str) -> None:
    assert done(url, "where")["result"] == {"main": False, "attempt": 1}


def test_failures_are_retried(url: str) -> None:
    job = submit(url, "falter", retries=2, backoff_s=0.01)
    assert ended(url, job)["result"] == 3


def test_wrong_arguments_fail_with_the_name_of_the_parameter(url: str) -> None:
    error = done(url, "triple", m=1)["error"]
    assert error["reason"] == "invalid_arguments"


def test_a_snooze_runs_again(url: str) -> None:
    assert done(url, "doze")["result"] == "awake"


def test_what_a_web_worker_cannot_do_fails_with_advice(url: str) -> None:
    end = done(url, "spawn")
    assert end["state"] == "failed"
    assert "a web worker cannot" in end["error"]["message"]


@pytest.mark.parametrize("kind", ["linger", "linger_plain"])
def test_a_cancelled_job_is_stopped(url: str, kind: str) -> None:
    job = submit(url, kind)
    await_true(lambda: shown(url, job)["state"] == "running", "it runs")
    call(url, "DELETE", f"/dispatcher/jobs/{job}")
    assert ended(url, job)["state"] == "cancelled"


@pytest.mark.parametrize("kind", ["linger", "linger_plain"])
def test_a_timeout_is_kept(url: str, kind: str) -> None:
    began = time.monotonic()
    error = ended(url, submit(url, kind, timeout_s=0.2))["error"]
    assert error["reason"] == "timed_out"
    assert "did not stop it" not in error["message"], "the backstop had to end it"
    assert time.monotonic() > began


def test_unsigned_results_are_refused(url: str) -> None:
    job = submit(url, "linger")
    await_true(lambda: shown(url, job)["state"] == "running", "it runs")
    path = f"/dispatcher/jobs/{job}/result"
    status, problem = call(url, "PUT", path, {"token": shown(url, job)["token"], "result": 1})
    assert (status, problem["code"]) == (403, "bad_signature")
    call(url, "DELETE", f"/dispatcher/jobs/{job}")
    assert ended(url, job)["state"] == "cancelled"


def test_unsigned_requests_are_refused_by_the_worker(url: str) -> None:
    [one] = [
        one
        for one in call(url, "GET", "/dispatcher/workers/")[1]["web_workers"]
        if one["state"] == "alive"
    ]
    at = f"http://{one['hostname']}:{one['port']}"
    job = {"id": "01900000-0000-7000-8000-000000000000", "token": 1, "kind": "triple"}
    assert call(at, "POST", "/jobs/", {**job, "args": {"n": 1}})[0] == 403
    assert call(at, "GET", "/health_check/")[0] == 403
