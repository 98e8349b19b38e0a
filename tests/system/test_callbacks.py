"""Callbacks with real processes: delivered, signed, tried again, whoever dies meanwhile."""

from __future__ import annotations

import json
import os
import signal
import socket
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from typing import Any

import pytest
from standardwebhooks import Webhook

from longshore.testing.processes import Process, await_true, run, settings
from tests.system.conftest import ANY, APPS, QUICK
from tests.system.receivers import Receiver, status
from tests.system.test_gateway import JOBS, call, children

FAST = {
    **QUICK,
    "lease_s": 20,
    "callback_backoff_s": 0.05,
    "callback_max_backoff_s": 0.1,
    "callback_timeout_s": 0.5,
    "callback_attempts": 1000,
}
ADD = {"kind": "add", "args": {"a": 1, "b": 2}}


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    """Everything on this machine, with HTTP; callbacks are tried again soon."""
    folder = tmp_path_factory.mktemp("up")
    words = ["--app", "harbour:app", "--backend", ANY, "--frontend", ANY, "--http", ANY]
    words += ["--store", f"sqlite:///{folder}/store.db", *settings(**FAST)]
    with Process("up", *words, cwd=APPS, log=folder / "up.log") as process:
        yield process.ready()


def submitted(up: Process, callback: object) -> str:
    """The id of a job that calls back."""
    code, job = call(up.facts["http"], "POST", JOBS, {**ADD, "callback": callback})
    assert code == 201, job
    return str(job["id"])


def shown(up: Process, job: str) -> dict[str, Any]:
    code, found = call(up.facts["http"], "GET", f"{JOBS}{job}")
    assert code == 200, found
    return dict(found)


def callback_of(up: Process, job: str) -> dict[str, Any]:
    """What a job says of its one callback."""
    [found] = shown(up, job)["callbacks"]
    return dict(found)


def delivered(up: Process, job: str) -> dict[str, Any]:
    """What a job says of its callback, once that was delivered."""
    await_true(lambda: callback_of(up, job)["state"] == "succeeded", "the callback is delivered")
    return callback_of(up, job)


def test_end_of_a_job_is_delivered_and_the_signature_is_right(up: Process) -> None:
    with Receiver() as receiver:
        job = submitted(up, receiver.url + "?a=b")
        found = delivered(up, job)
    [got] = receiver.got
    store = up.facts["store"]
    secret = run("callbacks", "secret", "--store", store).stdout.strip()
    assert secret.startswith("whsec_")
    said = Webhook(secret).verify(got.body, got.headers)
    assert (got.method, got.path) == ("POST", "/hook?a=b")
    assert (said["type"], said["data"]["id"], said["data"]["result"]) == ("job.succeeded", job, 3)
    assert got.headers["webhook-id"] == found["id"]
    assert (found["attempt"], bool(found["delivered_at"])) == (1, True)
    why = run("why", job, "--connect", up.facts["frontend"]).stdout
    assert "callback POST http://127.0.0.1" in why
    assert "delivered by job" in why
    reason = run("why", found["id"], "--connect", up.facts["frontend"]).stdout
    assert f"that job {shown(up, job)['number']} ended as succeeded" in reason
    text = run("job", job, "--connect", up.facts["frontend"]).stdout
    assert f"delivered by job {found['number']}" in text


def test_group_calls_the_parts_of_an_address_with_a_method_and_headers(up: Process) -> None:
    with Receiver() as receiver:
        callback = {
            "hostname": "127.0.0.1",
            "port": receiver.port,
            "path": "/groups",
            "method": "PUT",
            "headers": {"Authorization": "Bearer hush"},
        }
        jobs = [{"key": "a", **ADD}, {"key": "b", **ADD, "after": ["a"]}]
        body = {"name": "flow", "jobs": jobs, "callback": callback}
        code, group = call(up.facts["http"], "POST", "/dispatcher/groups/", body)
        assert code == 201, group
        where = f"/dispatcher/groups/{group['id']}"

        def is_delivered() -> bool:
            [found] = call(up.facts["http"], "GET", where)[1]["callbacks"]
            return bool(found["state"] == "succeeded")

        await_true(is_delivered, "the callback of the group is delivered")
    [got] = receiver.got
    assert (got.method, got.path) == ("PUT", "/groups")
    assert got.headers["authorization"] == "Bearer hush"
    assert json.loads(got.body)["type"] == "group.succeeded"
    document = call(up.facts["http"], "GET", where)[1]
    assert "hush" not in json.dumps(document)
    [made] = document["callbacks"]
    assert "hush" not in json.dumps(shown(up, made["id"]))
    listed = run("jobs", "--json", "--connect", up.facts["frontend"]).stdout
    assert "hush" not in listed


def test_receiver_that_is_down_hears_of_it_once_it_is_up(up: Process) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    job = submitted(up, f"http://127.0.0.1:{port}/hook")
    await_true(lambda: callback_of(up, job)["attempt"] > 1, "it is tried again")
    assert "Connection refused" in callback_of(up, job)["error"]
    with Receiver(port=port) as receiver:
        delivered(up, job)
    assert len(receiver.got) == 1


def test_callback_under_way_as_the_gateway_is_killed_is_delivered_and_recorded_once(
    up: Process,
) -> None:
    with Receiver() as receiver:
        receiver.answers.append(receiver.waits)
        job = submitted(up, receiver.url)
        await_true(lambda: len(receiver.got) == 1, "the request is under way")
        (gateway,) = children(up.pid, "gateway")
        os.kill(gateway, signal.SIGKILL)
        await_true(lambda: callback_ended(up, job), "another gateway delivers it")
        found = delivered(up, job)
    assert len(receiver.got) == 2
    assert len({got.headers["webhook-id"] for got in receiver.got}) == 1
    made = shown(up, found["id"])
    assert [one["state"] for one in made["history"]].count("succeeded") == 1
    assert made["crashes"] == 0


def callback_ended(up: Process, job: str) -> bool:
    """Whether a callback was delivered; False while no gateway answers."""
    try:
        return bool(callback_of(up, job)["state"] == "succeeded")
    except OSError:
        return False


def test_gone_is_never_tried_again(up: Process) -> None:
    with Receiver(status(410)) as receiver:
        job = submitted(up, receiver.url)
        await_true(lambda: callback_of(up, job)["state"] == "failed", "it is given up")
        assert len(receiver.got) == 1
    assert "410" in callback_of(up, job)["error"]


def test_slow_and_failing_receivers_are_asked_again_under_the_same_id(up: Process) -> None:
    with Receiver() as receiver:
        receiver.answers += [receiver.waits, status(500), status(503, Retry_After="1")]
        job = submitted(up, receiver.url)
        delivered(up, job)
    assert len(receiver.got) == 4
    assert len({got.headers["webhook-id"] for got in receiver.got}) == 1
    history = shown(up, callback_of(up, job)["id"])["history"]
    infos = " ".join(one["info"] for one in history)
    assert "no answer came within 0.5 s" in infos
    assert "answered 500" in infos


def test_huge_answer_is_not_read_to_its_end(up: Process) -> None:
    def endless(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.end_headers()
        try:
            while True:
                handler.wfile.write(bytes(65_536))
        except OSError:
            pass

    with Receiver(endless) as receiver:
        delivered(up, submitted(up, receiver.url))
        assert len(receiver.got) == 1


def test_redirect_is_not_followed(up: Process) -> None:
    with Receiver() as elsewhere, Receiver(status(307, Location=elsewhere.url)) as receiver:
        job = submitted(up, receiver.url)
        found = delivered(up, job)
        assert not elsewhere.got
    infos = [one["info"] for one in shown(up, found["id"])["history"]]
    assert any("not followed" in info for info in infos)


def test_address_that_is_not_allowed_fails_at_once_and_says_so(up: Process) -> None:
    job = submitted(up, "http://169.254.169.254/latest/meta-data")
    await_true(lambda: callback_of(up, job)["state"] == "failed", "it is given up")
    found = callback_of(up, job)
    assert found["attempt"] == 1
    assert "link-local" in found["error"]


@pytest.mark.parametrize(
    "callback",
    [
        "ftp://example.com",
        {"url": "https://example.com", "port": 1},
        {"port": 1},
        {"url": "https://example.com", "headers": {"Host": "evil"}},
        {"url": "https://example.com", "headers": {"x": "a\r\nb: c"}},
    ],
)
def test_what_is_no_callback_is_refused(up: Process, callback: object) -> None:
    code, problem = call(up.facts["http"], "POST", JOBS, {**ADD, "callback": callback})
    assert code in (400, 422), problem
    assert "callback" in problem["detail"]


def test_gateway_is_shown_as_what_it_is(up: Process) -> None:
    workers = json.loads(run("workers", "--json", "--connect", up.facts["frontend"]).stdout)
    gateways = [one for one in workers if one["gateway"] and one["alive"]]
    assert [one["name"].startswith("gateway-") for one in gateways] == [True]
    capacity = json.loads(run("capacity", "--json", "--connect", up.facts["frontend"]).stdout)
    assert "longshore.callback" not in {one["kind"] for one in capacity["kinds"]}
