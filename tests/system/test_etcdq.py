"""Documents of the Etcd Job Queue over HTTP, and the defects that its workers had."""

from __future__ import annotations

import http.client
import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from longshore.model.program import CONTAINER_KIND
from longshore.testing.engine import IMAGE, Engine
from longshore.testing.processes import Process, run, settings
from tests.system.conftest import ANY, QUICK, QUICK_WORKER

JOBS = "/dispatcher/jobs/"
FORMAT = "?format=etcdq"


class Up(NamedTuple):
    """What `longshore up` started, and the token that it wrote for this user."""

    process: Process
    token: str
    database: Path

    def call(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        """The status and the document that the gateway answers."""
        address = self.process.facts["http"].removeprefix("http://")
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        with closing(http.client.HTTPConnection(address, timeout=30)) as link:
            link.request(method, path, None if body is None else json.dumps(body), headers)
            answer = link.getresponse()
            return answer.status, json.loads(answer.read())


@pytest.fixture(scope="module")
def up(engine: Engine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """A gateway, a dispatcher and a worker with an engine."""
    folder = tmp_path_factory.mktemp("etcdq")
    words = ["--backend", ANY, "--frontend", ANY, "--http", ANY, "--exec"]
    machine = {"instance_id": "i-0abc", "public_ip": "203.0.113.7"}
    options = {**QUICK, **QUICK_WORKER, "engine": engine.url, "commands": 1, "containers": 1}
    words += settings(**options, **machine)
    with Process("up", *words, cwd=folder, log=folder / "up.log") as up:
        up.ready()
        own = folder / ".longshore"
        yield Up(up, (own / "token").read_text().strip(), own / "longshore.db")


def document(script: str, **more: Any) -> dict[str, Any]:
    config = {"Image": IMAGE, "Cmd": ["sh", "-c", script]}
    queued = {"State": "QUEUED", "Step": "", "Date": "2026-01-31T12:00:00Z"}
    return {"Container": {"Config": config}, "Fileset": {}, "States": [queued], **more}


def ended(up: Up, body: dict[str, Any]) -> dict[str, Any]:
    """The document of a job that was submitted as one, when it has ended."""
    status, job = up.call("POST", JOBS + FORMAT, body)
    assert status == 201, job
    assert up.call("GET", f"{JOBS}{job['id']}/result?wait_s=30")[0] == 200
    shown: dict[str, Any] = up.call("GET", f"{JOBS}{job['id']}{FORMAT}")[1]
    return shown


def test_a_document_is_run_and_shown_over_http(up: Up) -> None:
    shown = ended(up, document("echo $LEVEL; exit 3"))
    assert shown["Result"] == {"Status": "FAILURE", "Info": "container exited with code 3"}
    assert shown["Container"]["State"]["ExitCode"] == 3
    assert [one["State"] for one in shown["States"]][:2] == ["QUEUED", "STARTED"]
    assert shown["States"][-1]["State"] == "FINISHED"
    # What was shown can be submitted as it is.
    assert ended(up, shown)["Result"] == shown["Result"]


def test_limits_are_honoured_and_outlive_another_submit(up: Up) -> None:
    limits = {"Memory": 64 * 1024**2, "NanoCpus": 500_000_000, "PidsLimit": 50}
    body = document("true")
    body["Container"]["HostConfig"] = {**limits, "NetworkMode": "none"}
    shown = ended(up, body)
    again = ended(up, shown)
    for one in (shown, again):
        assert one["Result"]["Status"] == "SUCCESS"
        host = one["Container"]["HostConfig"]
        assert {name: host[name] for name in limits} == limits


def test_a_description_longer_than_a_line_of_the_log_is_shown_whole(up: Up) -> None:
    script = f"true {'x' * 20_000}"
    shown = ended(up, document(script))
    assert shown["Container"]["Config"]["Cmd"] == ["sh", "-c", script]
    assert shown["Container"]["State"]["ExitCode"] == 0


def test_workers_are_shown_as_documents_with_their_machines(up: Up) -> None:
    status, found = up.call("GET", f"/dispatcher/workers/{FORMAT}")
    assert status == 200
    (worker,) = [one for one in found["workers"] if one["InstanceId"] == "i-0abc"]
    assert worker["PrivateIp"] == "127.0.0.1"
    assert worker["PublicIp"] == "203.0.113.7"
    assert (worker["Job"], worker["Status"]) == ("", "ALIVE")


def test_an_empty_list_of_states_stops_nothing(up: Up) -> None:
    assert ended(up, document("true", States=[]))["Result"]["Status"] == "SUCCESS"


def test_a_stored_record_that_cannot_be_read_fails_alone(up: Up) -> None:
    """Others run before it and after it: it stops no worker from looking for jobs."""
    queue = "/dispatcher/queues/default"
    assert up.call("POST", f"{queue}/pause")[0] == 200
    jobs = [up.call("POST", JOBS + FORMAT, document("true"))[1] for _ in range(4)]
    with closing(sqlite3.connect(up.database, timeout=30)) as store, store:
        for job, record in zip(jobs[1:3], (b"\xc1\x00", b"\x81\xa5image\x07"), strict=True):
            store.execute("UPDATE job SET args = ? WHERE number = ?", (record, job["number"]))
    assert up.call("POST", f"{queue}/resume")[0] == 200
    outcomes = [up.call("GET", f"{JOBS}{job['id']}/result?wait_s=30")[1] for job in jobs]
    reasons = [(one["error"] or {}).get("reason") for one in outcomes]
    assert reasons == [None, "invalid_arguments", "invalid_arguments", None]


def test_a_record_that_cannot_be_read_fails_alone(up: Up) -> None:
    """It is not even taken; the next job finds its slot."""
    connect = {"LONGSHORE_CONNECT": up.process.facts["frontend"]}
    done = run("submit", CONTAINER_KIND, "--data", "not a record", "--wait", env=connect)
    assert done.returncode == 2
    assert "is described by names and values" in done.stderr
    assert ended(up, document("true"))["Result"]["Status"] == "SUCCESS"


def test_what_is_no_document_is_refused_and_says_why(up: Up) -> None:
    status, problem = up.call("POST", JOBS + FORMAT, {"kind": "add"})
    assert status == 400
    assert "no job of the Etcd Job Queue" in problem["detail"]
    container = {"Config": {"Image": IMAGE}, "HostConfig": {"Privileged": True}}
    problem = up.call("POST", JOBS + FORMAT, document("true", Container=container))[1]
    assert "HostConfig.Privileged is not possible" in problem["detail"]
