"""Web workers: services that use no code of Longshore, behind real gateways and dispatchers."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from longshore.testing.processes import Process, await_true, settings
from tests.interop.services import Answer, Service, call
from tests.system.conftest import ANY, QUICK, QUICK_WORKER, Fleet

EXAMPLES = Path(__file__).parents[2] / "examples"
QUICK_WEB = {
    "web_ping_interval_s": 0.2,
    "web_dead_ping_interval_s": 0.3,
    "web_max_retries": 3,
    "web_remove_after": 5,
    "web_request_s": 1.0,
    "web_adoption_s": 2.0,
    "web_attend_s": 0.1,
    "web_poll_s": 0.2,
}
LEASE = {"lease_s": QUICK["lease_s"]}
DISPATCHER_WEB = {"web_poll_s": 0.1}


class Port(Fleet):
    """Dispatchers, gateways, and the services that registered with them."""

    def __init__(self, store: str, folder: Path) -> None:
        super().__init__(store, folder)
        self.services: list[Service] = []
        self.url = ""

    def dispatcher(self, backend: str = ANY, frontend: str = ANY, **more: object) -> Process:
        return super().dispatcher(backend, frontend, **{**DISPATCHER_WEB, **more})

    def gateway(self, *dispatchers: Process, **more: object) -> Process:
        """A gateway with short intervals."""
        frontends = ",".join(one.facts["frontend"] for one in dispatchers)
        backends = ",".join(one.facts["backend"] for one in dispatchers)
        words = ["--connect", frontends, "--backend", backends, "--http", ANY]
        quick = {**QUICK_WEB, **QUICK_WORKER, **LEASE, **more}
        quick.pop("web_poll_s")
        return self.start("gateway", *words, *settings(**quick))

    def service(self, kind: str = "work", **more: Any) -> Service:
        """A service that has not registered yet."""
        self.services.append(Service(kind, **more))
        return self.services[-1]

    def forget_services(self) -> None:
        """Ends the services, and their registrations."""
        for service in self.services:
            service.close()
            if service.id and self.url:
                call(self.url, "DELETE", f"/dispatcher/workers/{service.id}")
        self.services.clear()

    def close(self) -> None:
        for service in self.services:
            service.close()
        super().close()


class OneGateway:
    """The gateway that tests share, with a kind of jobs for each."""

    def __init__(self, port: Port, name: str) -> None:
        self._port, self.url = port, port.url
        self.kind = "".join(char if char.isalnum() else "-" for char in name)

    def service(self, **more: Any) -> Service:
        return self._port.service(self.kind, **more)

    def submit(self, **more: object) -> str:
        return submit(self.url, self.kind, **more)


@pytest.fixture
def port(migrated_sqlite_url: str, tmp_path: Path) -> Iterator[Port]:
    """An empty SQLite store, and whoever the test starts on it."""
    port = Port(migrated_sqlite_url, tmp_path)
    yield port
    port.close()


@pytest.fixture(scope="module")
def shared_port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Port]:
    """One dispatcher and one gateway, which never remove a dead service, for many tests."""
    folder = tmp_path_factory.mktemp("port")
    port = Port(f"sqlite:///{folder}/store.db", folder)
    gateway = port.gateway(
        port.dispatcher(max_web_workers=20, timeout_margin_s=0.2), web_remove_after=1000
    )
    port.url = url_of(gateway)
    yield port
    port.close()


@pytest.fixture
def one(shared_port: Port, request: pytest.FixtureRequest) -> Iterator[OneGateway]:
    """A gateway, and services that run a kind of this test alone."""
    yield OneGateway(shared_port, request.node.name[:80])
    shared_port.forget_services()


@pytest.fixture
def postgres_port(migrated_postgres_url: str, tmp_path: Path) -> Iterator[Port]:
    """The same on PostgreSQL."""
    port = Port(migrated_postgres_url, tmp_path)
    yield port
    port.close()


def url_of(gateway: Process) -> str:
    url: str = gateway.facts["http"]
    return url


def submit(url: str, kind: str = "work", **more: object) -> str:
    status, job = call(url, "POST", "/dispatcher/jobs/", {"kind": kind, "args": {}, **more})
    assert status == 201, job
    id: str = job["id"]
    return id


def ended(url: str, job: str) -> dict[str, Any]:
    status, end = call(url, "GET", f"/dispatcher/jobs/{job}/result?wait_s=20")
    assert status == 200, end
    return dict(end)


def shown(url: str, job: str) -> dict[str, Any]:
    return dict(call(url, "GET", f"/dispatcher/jobs/{job}")[1])


def registered(url: str, service: Service) -> dict[str, Any]:
    return dict(call(url, "GET", f"/dispatcher/workers/{service.id}")[1])


def has(service: Service, job: str) -> bool:
    return job in service.jobs


def is_attended(url: str, id: str) -> bool:
    """Whether a dispatcher attends the worker that a service is."""
    workers = call(url, "GET", "/dispatcher/workers/")[1]["workers"]
    return any(one["alive"] and one["service"] == id for one in workers)


def gateway_of(url: str, service: Service) -> str:
    """The process of the gateway that attends a service."""
    holder = registered(url, service)["gateway"]
    workers = call(url, "GET", "/dispatcher/workers/")[1]["workers"]
    return next((str(one["pid"]) for one in workers if one["id"] == holder), "")


# the thinnest path


@pytest.mark.parametrize("language", ["python", "node"])
def test_an_example_registers_runs_jobs_and_resigns(one: OneGateway, language: str) -> None:
    url = one.url
    if language == "python":
        words = [sys.executable, str(EXAMPLES / "web_worker.py")]
    else:
        node = shutil.which("node")
        assert node is not None, "there is no Node; run scripts/setup servers"
        words = [node, str(EXAMPLES / "web_worker.mjs")]
    with subprocess.Popen([*words, "--gateway", url], stdout=subprocess.PIPE) as example:
        try:
            done = ended(url, submit(url, "word_count", args={"text": "to be or not to be"}))
            assert done["result"] == {"to": 2, "be": 2, "or": 1, "not": 1}
            failed = ended(url, submit(url, "fail", args={"words": "on purpose"}))
            assert (failed["state"], failed["error"]["message"]) == ("failed", "on purpose")
            long = submit(url, "wait", args={"seconds": 60})
            await_true(lambda: shown(url, long)["state"] == "running", "the job runs")
            call(url, "DELETE", f"/dispatcher/jobs/{long}")
            assert ended(url, long)["state"] == "cancelled"
            example.terminate()
            example.wait(20)
        finally:
            example.kill()
    last = call(url, "GET", "/dispatcher/workers/")[1]["web_workers"][-1]
    assert last["isResigned"]


# registration


def test_a_service_is_shown_with_the_fields_of_the_seed(one: OneGateway) -> None:
    url, service = one.url, one.service(max_jobs=2)
    assert service.register(url, target="arm", instance="one")["status"] == 201
    job = one.submit(target="arm")
    await_true(lambda: has(service, job), "it has the job")
    await_true(lambda: registered(url, service)["lastPinged"] is not None, "a ping is noted")
    found = registered(url, service)
    wanted = {"hostname": "127.0.0.1", "port": service.port, "maxJobs": 2, "handlers": [one.kind]}
    wanted |= {"failedPingCount": 0, "isResigned": False, "isDead": False, "jobs": [job]}
    assert {name: found[name] for name in wanted} == wanted


def test_the_same_instance_again_is_a_repeat_with_the_same_secret(one: OneGateway) -> None:
    url, service = one.url, one.service()
    first = service.register(url, instance="one")
    job = one.submit()
    await_true(lambda: has(service, job), "it has the job")
    again = service.register(url, instance="one")
    assert (again["status"], again["id"], again["secret"]) == (200, first["id"], first["secret"])
    assert service.finish(url, service.jobs[job], result=1)[0] == 200


def test_a_restart_at_the_same_port_gets_the_job_anew_and_the_old_result_is_refused(
    one: OneGateway,
) -> None:
    url, service = one.url, one.service()
    service.register(url, instance="one")
    job = one.submit()
    await_true(lambda: has(service, job), "it has the job")
    old = service.jobs.pop(job)
    second = service.register(url, instance="two")
    assert second["status"] == 201
    await_true(lambda: has(service, job), "it has the job again")
    assert service.jobs[job]["token"] != old["token"]
    assert service.finish(url, {**old, "id": job}, result="late")[0] == 409
    service.jobs[job] = service.posted[-1]
    assert service.finish(url, service.posted[-1], result="good")[0] == 200
    assert ended(url, job)["result"] == "good"
    assert shown(url, job)["crashes"] == 1, "it died, for it had not resigned"


def test_a_service_that_resigns_gives_its_jobs_back(one: OneGateway) -> None:
    url, first, second = one.url, one.service(), one.service()
    first.register(url)
    job = one.submit()
    await_true(lambda: has(first, job), "it has the job")
    second.register(url)
    assert call(url, "DELETE", f"/dispatcher/workers/{first.id}")[1]["verdict"] == "resigned"
    await_true(lambda: has(second, job), "the other one has the job")
    assert call(url, "DELETE", f"/dispatcher/workers/{first.id}")[1]["verdict"] == "already_ended"
    assert shown(url, job)["crashes"] == 0


def test_jobs_go_to_the_service_with_most_free_slots_that_handles_the_kind(one: OneGateway) -> None:
    url = one.url
    small, large, other = one.service(max_jobs=1), one.service(max_jobs=4), one.service()
    other.register(url, handlers=["else"])
    small.register(url)
    large.register(url)
    await_true(lambda: registered(url, large)["state"] == "alive", "it is alive")
    await_true(lambda: registered(url, small)["state"] == "alive", "it is alive")
    for service in (small, large):
        await_true(lambda id=service.id: is_attended(url, id), "it has joined")  # type: ignore[misc]
    jobs = [one.submit() for _ in range(5)]
    await_true(lambda: all(has(large, one) or has(small, one) for one in jobs), "all run")
    assert (len(large.jobs), len(small.jobs), len(other.jobs)) == (4, 1, 0)


# health


def test_a_dead_service_loses_its_jobs_as_a_crash_and_comes_back(one: OneGateway) -> None:
    url, service = one.url, one.service()
    service.register(url)
    job = one.submit()
    await_true(lambda: has(service, job), "it has the job")
    service.close()
    await_true(lambda: registered(url, service)["isDead"], "it is dead")
    assert registered(url, service)["failedPingCount"] >= 3
    await_true(lambda: shown(url, job)["state"] == "ready", "the job is free")
    assert shown(url, job)["crashes"] == 1
    service.jobs.clear()
    service.come_back()
    await_true(lambda: has(service, job), "it has the job again")
    await_true(lambda: registered(url, service)["failedPingCount"] == 0, "the store heard of it")
    assert service.finish(url, service.jobs[job], result=1)[0] == 200
    assert ended(url, job)["state"] == "succeeded"


def test_a_service_hears_that_its_answers_counted(one: OneGateway) -> None:
    url, service = one.url, one.service()
    service.register(url)

    def leases() -> list[dict[str, str]]:
        return [one for one in service.headers if "Longshore-Lease-S" in one]

    await_true(lambda: bool(leases()), "a lease is told")
    told = leases()[-1]
    adopted_s = QUICK["lease_s"] + QUICK_WEB["web_adoption_s"]
    assert float(told["Longshore-Lease-S"]) == adopted_s + 2 * QUICK_WEB["web_ping_interval_s"]
    assert int(told["Longshore-Counted"]) < int(told["Longshore-Check"])


# the four checks


def test_a_job_that_the_service_forgot_is_given_again_with_its_token(one: OneGateway) -> None:
    url, service = one.url, one.service()
    service.register(url)
    job = one.submit()
    await_true(lambda: has(service, job), "it has the job")
    first = service.jobs.pop(job)
    await_true(lambda: has(service, job), "it has the job again")
    assert service.jobs[job]["token"] == first["token"]
    assert service.finish(url, first, result=1)[0] == 200


def test_a_job_that_the_service_should_not_run_is_stopped_there(one: OneGateway) -> None:
    url, service = one.url, one.service(max_jobs=2)
    service.register(url)
    stranger = "01900000-0000-7000-8000-000000000000"
    service.jobs[stranger] = {"id": stranger, "token": 77}
    await_true(lambda: (stranger, "77") in service.stopped, "it is stopped")
    job = one.submit()
    await_true(lambda: has(service, job), "work goes on")
    assert (job, str(service.jobs[job]["token"])) not in service.stopped


def test_a_job_past_its_expiry_is_failed_and_stopped(one: OneGateway) -> None:
    url, service = one.url, one.service()
    service.register(url)
    job = one.submit(timeout_s=0.5)
    await_true(lambda: has(service, job), "it has the job")
    token = str(service.jobs[job]["token"])
    assert ended(url, job)["error"]["reason"] == "timed_out"
    await_true(lambda: (job, token) in service.stopped, "it is stopped there")


def test_a_cancelled_job_is_stopped_at_its_service(one: OneGateway) -> None:
    url, service = one.url, one.service()
    service.register(url)
    job = one.submit()
    await_true(lambda: has(service, job), "it has the job")
    call(url, "DELETE", f"/dispatcher/jobs/{job}")
    assert ended(url, job)["state"] == "cancelled"
    assert [id for id, _ in service.stopped] == [job]


# services that lie


LIES: dict[str, Callable[[str, str], Answer | bytes | None]] = {
    "garbage": lambda method, path: b"\x00\x01 no HTTP at all\r\n\r\n",
    "no JSON": lambda method, path: b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n{oops",
    "another shape": lambda method, path: (200, {"jobs": [{"id": "x", "token": []}]}),
    "a huge answer": lambda method, path: (200, {"jobs": [], "more": "x" * 3_000_000}),
    "a redirect": lambda method, path: (
        b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n"
    ),
    "an error": lambda method, path: (500, {"detail": "broken"}),
    "a wrong signature": lambda method, path: (
        b"HTTP/1.1 200 OK\r\nLongshore-Time: 1\r\nLongshore-Signature: 00\r\n"
        b"Content-Length: 2\r\n\r\n{}"
    ),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_service_that_answers_wrongly_is_dead_and_the_rest_goes_on(
    one: OneGateway, lie: str
) -> None:
    url, liar, honest = one.url, one.service(), one.service()
    liar.behave = LIES[lie]
    liar.register(url)
    honest.register(url)
    job = one.submit()
    await_true(lambda: has(honest, job), "the other one has the job")
    await_true(lambda: registered(url, liar)["isDead"], "the liar is dead")
    assert registered(url, liar)["lastError"]
    assert liar.posted == []
    assert honest.finish(url, honest.jobs[job], result=1)[0] == 200


def test_a_service_cannot_forge_a_line_of_the_log(one: OneGateway, shared_port: Port) -> None:
    forged = b"1999-12-31T23:59:59.000Z INFO longshore: all is well"
    body = b"oops\r\n" + forged + b"\x1b[2J\n"
    head = b"HTTP/1.1 500 Oops\r\nContent-Length: %d\r\n\r\n" % len(body)
    liar = one.service()
    liar.behave = lambda method, path: head + body
    liar.register(one.url)
    await_true(lambda: registered(one.url, liar)["isDead"], "the liar is dead")
    said = b"".join(log.read_bytes() for log in shared_port.folder.glob("*.log"))
    assert b"all is well" in said
    assert not [line for line in said.splitlines() if line.startswith(b"1999")]
    assert b"\x1b" not in said


def test_a_service_that_never_answers_is_dead_and_the_rest_goes_on(one: OneGateway) -> None:
    url, silent, honest = one.url, one.service(), one.service()
    going = threading.Event()
    silent.behave = lambda method, path: (200, {}) if going.wait(60) else None
    silent.register(url)
    honest.register(url)
    job = one.submit()
    await_true(lambda: has(honest, job), "the other one has the job")
    await_true(lambda: registered(url, silent)["isDead"], "the silent one is dead")
    assert "no answer came" in registered(url, silent)["lastError"]
    going.set()


def test_a_wrong_token_id_or_body_changes_nothing(one: OneGateway) -> None:
    url, service = one.url, one.service()
    service.register(url)
    job = one.submit()
    await_true(lambda: has(service, job), "it has the job")
    held = dict(service.jobs[job])
    path = f"/dispatcher/jobs/{job}/result"
    for token in (held["token"] + 1, 0, 2**63 - 1, str(held["token"] + 1)):
        assert call(url, "PUT", path, {"token": token, "result": "lie"})[0] == 409
    nobody = path.replace(job, "01900000-0000-7000-8000-000000000000")
    assert call(url, "PUT", nobody, {"token": held["token"], "result": "lie"})[0] == 404
    for wrong in ({}, {"token": -1}, {"token": "x"}, {"token": 1, "status": "perhaps"}, [1]):
        assert call(url, "PUT", path, wrong)[0] == 400
    assert shown(url, job)["state"] == "running"
    assert service.finish(url, held, result="true")[0] == 200
    assert ended(url, job)["result"] == "true"


def test_nobody_ends_the_job_of_a_worker_that_is_no_web_worker(one: OneGateway) -> None:
    """A token alone proves nothing about who speaks."""
    url, owner, other = one.url, one.service(), one.service()
    owner.register(url)
    job = one.submit()
    await_true(lambda: has(owner, job), "it has the job")
    other.register(url)
    held, path = owner.jobs[job], f"/dispatcher/jobs/{job}/result"
    body = {"token": held["token"], "result": "lie"}
    assert call(url, "PUT", path, body, {"Longshore-Worker": other.id})[0] == 409
    forged = {"Longshore-Worker": owner.id, "Longshore-Signature": "00", "Longshore-Time": "1"}
    assert call(url, "PUT", path, body, forged)[0] == 403
    assert call(url, "PUT", path, body, {"Longshore-Worker": owner.id})[0] == 200


def test_a_busy_service_hands_back_and_another_one_gets_the_job(one: OneGateway) -> None:
    url, busy, honest = one.url, one.service(max_jobs=9), one.service()
    busy.behave = lambda method, path: (409, {}) if method == "POST" else None
    busy.register(url)
    await_true(lambda: is_attended(url, busy.id), "it has joined")
    job = one.submit()
    await_true(lambda: ("POST", "/jobs/") in busy.asked, "it refuses the job")
    honest.register(url)
    await_true(lambda: has(honest, job), "the other one has the job")
    found = shown(url, job)
    assert (found["attempt"], found["crashes"]) == (1, 0)


def test_a_job_that_a_service_refuses_fails_with_its_words(one: OneGateway) -> None:
    url, service = one.url, one.service()
    refusal = (422, {"detail": "the sum is missing"})
    service.behave = lambda method, path: refusal if method == "POST" else None
    service.register(url)
    error = ended(url, one.submit())["error"]
    assert error["message"] == "the web worker refused the job: 422: the sum is missing"


def test_an_answer_that_got_lost_does_not_give_the_job_twice(one: OneGateway) -> None:
    """The gateway asks for it: this service does not say what it runs."""
    url, service = one.url, one.service()

    def lose(method: str, path: str) -> tuple[int, Any] | None:
        if method == "POST" and not service.posted:
            service.answer_then_drop = True
        return (200, {}) if path == "/health_check/" else None

    service.behave = lose
    service.register(url)
    job = one.submit()
    await_true(lambda: has(service, job), "it has the job")
    await_true(lambda: ("GET", f"/jobs/{job}") in service.asked, "the gateway asks for it")
    assert service.finish(url, service.jobs[job], result=1)[0] == 200
    assert len(service.posted) == 1


def test_a_flood_of_registrations_is_bounded(one: OneGateway) -> None:
    url, service = one.url, one.service()
    service.register(url)
    statuses = []
    for place in range(25):
        me = {"hostname": "127.0.0.1", "port": 20_000 + place, "handlers": ["nothing"]}
        status, answer = call(url, "PUT", "/dispatcher/workers/", me)
        statuses.append(status)
        if status == 201:
            flooding = one.service()
            flooding.id = answer["id"]
    assert statuses[-1] == 409
    assert statuses.count(201) <= 19
    job = one.submit()
    await_true(lambda: has(service, job), "the rest goes on")


WRONG = [
    {"hostname": "127.0.0.1", "port": 0, "handlers": ["a"]},
    {"hostname": "127.0.0.1", "port": 70_000, "handlers": ["a"]},
    {"hostname": "", "port": 80, "handlers": ["a"]},
    {"hostname": "a/b", "port": 80, "handlers": ["a"]},
    {"hostname": "u@h", "port": 80, "handlers": ["a"]},
    {"hostname": "10.0.0.1", "port": 80, "handlers": ["a"]},
    {"hostname": "169.254.169.254", "port": 80, "handlers": ["a"]},
    {"hostname": "::ffff:10.0.0.1", "port": 80, "handlers": ["a"]},
    {"hostname": "127.0.0.1", "port": 80, "handlers": []},
    {"hostname": "127.0.0.1", "port": 80, "handlers": ["longshore.callback"]},
    {"hostname": "127.0.0.1", "port": 80, "handlers": ["a"], "maxJobs": 0},
    {"hostname": "127.0.0.1", "port": 80, "handlers": ["a"], "maxJobs": 1e9},
    {"hostname": "127.0.0.1", "port": 80},
]


@pytest.mark.parametrize("wrong", WRONG, ids=str)
def test_a_wrong_registration_is_refused_with_a_reason(
    one: OneGateway, wrong: dict[str, object]
) -> None:
    status, problem = call(one.url, "PUT", "/dispatcher/workers/", wrong)
    assert status == 400
    assert problem["detail"]


def test_gateways_requests_are_not_passed_on_for_others(one: OneGateway) -> None:
    request = Request(
        f"{one.url}/dispatcher/requests/SHOWFLEETKEY", b"\x81\xa3rid\x01", method="POST"
    )
    request.add_header("Content-Type", "application/octet-stream")
    with pytest.raises(HTTPError) as refused:
        urlopen(request, timeout=10)
    assert refused.value.code == 400
    assert b"for gateways alone" in refused.value.read()


# several gateways


def test_when_its_gateway_is_killed_another_adopts_the_service_and_its_job_goes_on(
    postgres_port: Port,
) -> None:
    port = postgres_port
    dispatchers = [port.dispatcher(), port.dispatcher()]
    gateways = [port.gateway(*dispatchers), port.gateway(*reversed(dispatchers))]
    services = [port.service() for _ in range(2)]
    for service in services:
        service.register(url_of(gateways[0]))
    jobs = [submit(url_of(gateways[0])) for _ in services]
    await_true(lambda: all(len(one.jobs) == 1 for one in services), "both have a job")
    first, second = services
    holder = gateway_of(url_of(gateways[1]), first)
    killed, left = gateways if holder == str(gateways[0].pid) else reversed(gateways)
    url = url_of(left)
    killed.kill()
    await_true(lambda: gateway_of(url, first) == str(left.pid), "another one adopts it")
    pings = first.pings()
    await_true(lambda: first.pings() >= pings + 5, "it asks the service")
    for service in services:
        [job] = service.jobs.values()
        assert service.finish(url, job, result=job["token"])[0] == 200
    for job_id in jobs:
        assert ended(url, job_id)["state"] == "succeeded"
        found = shown(url, job_id)
        assert (found["attempt"], found["crashes"], found["token"]) == (1, 0, found["result"])
    assert [len(one.posted) for one in services] == [1, 1]
    assert first.stopped == second.stopped == []


def test_a_frozen_gateway_that_wakes_up_steals_nothing_back(port: Port) -> None:
    dispatcher = port.dispatcher()
    gateways = [port.gateway(dispatcher), port.gateway(dispatcher)]
    service = port.service()
    service.register(url_of(gateways[0]))
    await_true(lambda: gateway_of(url_of(gateways[1]), service) != "", "it is attended")
    holder = gateway_of(url_of(gateways[1]), service)
    frozen, left = gateways if holder == str(gateways[0].pid) else reversed(gateways)
    url = url_of(left)
    job = submit(url)
    await_true(lambda: has(service, job), "it has the job")
    frozen.signal(signal.SIGSTOP)
    await_true(lambda: gateway_of(url, service) == str(left.pid), "another one adopts it")
    frozen.signal(signal.SIGCONT)
    pings = service.pings()
    await_true(lambda: service.pings() >= pings + 10, "time passes")
    assert gateway_of(url, service) == str(left.pid)
    assert service.finish(url_of(frozen), service.jobs[job], result=1)[0] == 200
    assert shown(url, job)["crashes"] == 0
    assert service.stopped == []
    assert len(service.posted) == 1


def test_a_result_is_taken_by_any_gateway_through_any_dispatcher_and_one_gateway_pings(
    port: Port,
) -> None:
    dispatchers = [port.dispatcher(), port.dispatcher()]
    gateways = [port.gateway(dispatchers[0]), port.gateway(dispatchers[1])]
    service = port.service()
    service.register(url_of(gateways[0]))
    jobs = [submit(url_of(gateways[0])) for _ in range(3)]
    for _ in jobs:
        await_true(lambda: len(service.jobs) == 1, "it has a job")
        [job] = service.jobs.values()
        holder = gateway_of(url_of(gateways[0]), service)
        other = next(one for one in gateways if str(one.pid) != holder)
        assert service.finish(url_of(other), job, result="done")[0] == 200
        assert service.finish(url_of(other), job, result="done")[0] == 200, "a repeat"
    for id in jobs:
        assert ended(url_of(gateways[0]), id)["result"] == "done"
    assert len(service.posted) == 3
    numbers = [int(one["Longshore-Check"]) for one in service.headers if "Longshore-Check" in one]
    assert numbers == list(range(1, len(numbers) + 1)), "one gateway alone asks it"


def test_a_gateway_that_stops_in_good_order_hands_its_services_over(port: Port) -> None:
    dispatcher = port.dispatcher(lease_s=60)
    gateways = [port.gateway(dispatcher, lease_s=60) for _ in range(2)]
    service = port.service()
    service.register(url_of(gateways[0]))
    await_true(lambda: gateway_of(url_of(gateways[1]), service) != "", "it is attended")
    holder = gateway_of(url_of(gateways[1]), service)
    leaving, left = gateways if holder == str(gateways[0].pid) else reversed(gateways)
    job = submit(url_of(left))
    await_true(lambda: has(service, job), "it has the job")
    leaving.terminate()
    await_true(lambda: gateway_of(url_of(left), service) == str(left.pid), "it is handed over")
    assert service.finish(url_of(left), service.jobs[job], result=1)[0] == 200
    assert len(service.posted) == 1


def test_when_the_dispatcher_is_killed_the_job_goes_on_at_the_next(port: Port) -> None:
    dispatchers = [port.dispatcher(), port.dispatcher()]
    gateway = port.gateway(*dispatchers)
    url, service = url_of(gateway), port.service(max_jobs=2)
    service.register(url)
    job = submit(url)
    await_true(lambda: has(service, job), "it has the job")
    dispatchers[0].kill()
    second = submit(url)
    await_true(lambda: has(service, second), "it gets jobs again")
    for id in (job, second):
        assert service.finish(url, service.jobs[id], result=1)[0] == 200
        assert ended(url, id)["state"] == "succeeded"
    assert shown(url, job)["crashes"] == 0
    assert len(service.posted) == 2
