"""Tokens, TLS and the audit with real processes and sockets."""

from __future__ import annotations

import asyncio
import http.client
import json
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

import pytest

from longshore.client.connection import Connection
from longshore.client.ids import fresh_id
from longshore.client.tokens import new_token
from longshore.links.keys import make_pair
from longshore.model.access import Audited, AuditFilter, Role, Scope
from longshore.testing.processes import Process, await_true, run, settings
from tests.system.conftest import ANY, QUICK, Fleet
from tests.unit.gateway.test_certificates import der, make_certificate

T = TypeVar("T")
JOBS = "/dispatcher/jobs/"


def call(
    url: str,
    method: str,
    path: str,
    body: object = None,
    trusted: Path | None = None,
    headers: Mapping[str, str] = MappingProxyType({}),
) -> tuple[int, Any]:
    """The status and the document that a gateway answers."""
    address = url.partition("://")[2]
    link: http.client.HTTPConnection
    if trusted is None:
        link = http.client.HTTPConnection(address, timeout=30)
    else:
        context = ssl.create_default_context(cafile=str(trusted))
        link = http.client.HTTPSConnection(address, timeout=30, context=context)
    typed = {} if body is None else {"Content-Type": "application/json"}
    data = None if body is None else json.dumps(body)
    link.request(method, path, data, {**typed, **headers})
    with link.getresponse() as answer:
        told = answer.read()
    link.close()
    return answer.status, json.loads(told)


class Ops:
    """An operator at a dispatcher."""

    def __init__(self, dispatcher: Process) -> None:
        self.frontend = dispatcher.facts["frontend"]

    def ask(self, talk: Callable[[Connection], Awaitable[T]]) -> T:
        async def conversation() -> T:
            async with Connection(self.frontend) as connection:
                return await talk(connection)

        return asyncio.run(conversation())

    def token(
        self, name: str, role: Role, queue: str = "", expires_s: float | None = None
    ) -> dict[str, str]:
        """The header that shows a new token."""
        scope = Scope((queue,) if queue else ())
        secret, new = new_token(fresh_id(), name, role, scope, expires_s)
        self.ask(lambda connection: connection.create_token(new))
        return {"authorization": f"Bearer {secret}"}

    def audit(self, action: str) -> tuple[Audited, ...]:
        return self.ask(lambda connection: connection.audit(AuditFilter(action=action)))


def gated(fleet: Fleet, **more: object) -> Process:
    """A dispatcher with a gateway that asks everybody for a token."""
    words = ["--store", fleet.store, "--backend", ANY, "--frontend", ANY, "--http", ANY]
    return fleet.start(
        "dispatcher", *words, *settings(**{**QUICK, "http_auth": "required", **more})
    )


def test_a_token_reaches_its_queue_until_it_is_revoked_on_each_store(fleet: Fleet) -> None:
    dispatcher = gated(fleet)
    fleet.worker(dispatcher)
    url, ops = dispatcher.facts["http"], Ops(dispatcher)
    assert call(url, "GET", JOBS)[0] == 401
    assert call(url, "GET", "/readyz")[0] == 200
    mail = ops.token("mail", Role.SUBMIT, queue="mail")
    brief = ops.token("brief", Role.READ, expires_s=1.0)
    job = {"kind": "add", "args": {"a": 1, "b": 2}}
    assert call(url, "POST", JOBS, job, headers=mail)[0] == 403
    status, made = call(url, "POST", JOBS, {**job, "queue": "mail"}, headers=mail)
    assert status == 201
    status, ended = call(url, "GET", f"{JOBS}{made['id']}/result?wait_s=30", headers=mail)
    assert (status, ended["result"]) == (200, 3)
    shown = call(url, "GET", f"{JOBS}{made['id']}", headers=mail)[1]
    assert shown["history"][0]["by"] == "token:mail"
    await_true(lambda: call(url, "GET", JOBS, headers=brief)[0] == 401, "the short one expires")
    ops.ask(lambda connection: connection.revoke_token("mail"))
    await_true(lambda: call(url, "GET", JOBS, headers=mail)[0] == 401, "the other one is revoked")
    listed = ops.ask(lambda connection: connection.tokens())[0]
    assert listed.last_used_at is not None
    assert listed.revoked_at is not None
    secrets = [one["authorization"].split()[1] for one in (mail, brief)]
    assert not any(secret in dispatcher.said() for secret in secrets)


def test_a_repeat_after_everything_died_leaves_one_entry(fleet: Fleet) -> None:
    """G3: the answer was lost with the gateway and the dispatcher; the client sends it again."""
    first = gated(fleet)
    admin = Ops(first).token("ops", Role.ADMIN)
    pause = ("POST", "/dispatcher/queues/mail/pause")
    assert call(first.facts["http"], *pause, headers={"Idempotency-Key": "k", **admin})[0] == 200
    first.kill()
    second = gated(fleet)
    ops = Ops(second)
    assert call(second.facts["http"], *pause, headers={"Idempotency-Key": "k", **admin})[0] == 200
    [entry] = ops.audit("pause_queue")
    assert (entry.principal, entry.subject) == ("token:ops", "mail")
    assert (
        call(second.facts["http"], *pause, headers={"Idempotency-Key": "other", **admin})[0] == 200
    )
    assert len(ops.audit("pause_queue")) == 2


@pytest.fixture(scope="module")
def shared(module_sqlite_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    """A dispatcher with a gateway, for tests that end neither."""
    fleet = Fleet(module_sqlite_url, tmp_path_factory.mktemp("shared"))
    yield gated(fleet, max_header_bytes=10_000)
    fleet.close()


def test_a_command_acts_for_the_token_in_its_environment(shared: Process) -> None:
    to = ["--connect", shared.facts["frontend"]]
    token = Ops(shared).token("reader", Role.READ)["authorization"].split()[1]
    env = {"LONGSHORE_TOKEN": token}
    refused = run("queues", "pause", "mail", *to, env=env)
    assert refused.returncode == 2
    assert "token:reader has the role read" in refused.stderr
    over_http = ["--connect", shared.facts["http"]]
    assert run("jobs", *over_http, env=env).returncode == 0
    assert run("jobs", *over_http).returncode == 2
    assert "token:reader" in run("queues", "pause", "mail", *over_http, env=env).stderr
    broken = run("jobs", *to, env={"LONGSHORE_TOKEN": "secret"})
    assert broken.returncode == 2
    assert "secret" not in broken.stderr
    flagged = run("jobs", *to, "--set", f"token={token}")
    assert flagged.returncode == 2
    assert token not in flagged.stderr


# TLS


@pytest.fixture
def up(shared: Process, tmp_path: Path) -> Iterator[Process]:
    """A gateway over HTTPS."""
    make_certificate(tmp_path, "one")
    words = ["--connect", shared.facts["frontend"], "--http", ANY]
    words += ["--tls-cert", f"{tmp_path}/one.pem", "--tls-key", f"{tmp_path}/one.key"]
    with Process("gateway", *words, log=tmp_path / "gateway.log") as process:
        yield process.ready()


def served(url: str) -> bytes:
    """The certificate that a new connection gets."""
    host, port = url.removeprefix("https://").split(":")
    return ssl.PEM_cert_to_DER_cert(ssl.get_server_certificate((host, int(port))))


def test_a_new_certificate_is_served_and_open_connections_go_on(
    up: Process, tmp_path: Path
) -> None:
    url, cert, key = up.facts["http"], tmp_path / "one.pem", tmp_path / "one.key"
    assert url.startswith("https://")
    assert call(url, "GET", "/healthz", trusted=cert)[0] == 200
    context = ssl.create_default_context(cafile=str(cert))
    held = http.client.HTTPSConnection(url.removeprefix("https://"), context=context, timeout=30)
    held.request("GET", "/healthz")
    held.getresponse().read()
    other_cert, other_key = make_certificate(tmp_path, "two")
    cert.write_text("broken")
    await_true(lambda: "the old one stays" in up.said(), "the broken one is told of")
    assert served(url) != der(other_cert)
    other_key.replace(key)
    cert.write_bytes(other_cert.read_bytes())
    await_true(lambda: served(url) == der(cert), "the new one is served")
    held.request("GET", "/healthz")
    assert held.getresponse().status == 200
    held.close()
    assert call(url, "GET", "/healthz", trusted=cert)[0] == 200


def test_a_gateway_that_others_can_reach_asks_everybody_for_a_token(
    shared: Process, tmp_path: Path
) -> None:
    cert, key = make_certificate(tmp_path, "one")
    words = ["--connect", shared.facts["frontend"], "--http", "0.0.0.0:0"]
    tls = ["--tls-cert", str(cert), "--tls-key", str(key)]
    with Process("gateway", *words, *tls, log=tmp_path / "gateway.log") as gateway:
        port = gateway.ready().facts["http"].rpartition(":")[2]
        url = f"https://127.0.0.1:{port}"
        assert call(url, "GET", JOBS, trusted=cert)[0] == 401
        reader = Ops(shared).token("elsewhere", Role.READ)
        assert call(url, "GET", JOBS, trusted=cert, headers=reader)[0] == 200


def test_a_gateway_that_others_can_reach_needs_a_certificate() -> None:
    refused = run("gateway", "--http", "0.0.0.0:0")
    assert refused.returncode == 2
    for word in ("--tls-cert", "--tls-key", "--insecure", "token create"):
        assert word in refused.stderr


def test_endless_headers_are_cut_off(shared: Process) -> None:
    host, _, port = shared.facts["http"].removeprefix("http://").rpartition(":")
    with closing(socket.create_connection((host, int(port)), timeout=30)) as link:
        link.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\nX-Long: ")
        answer = b""
        while not answer:
            try:
                link.sendall(b"x" * 8_000)
            except OSError:
                break
            link.settimeout(0.2)
            try:
                answer = link.recv(1000)
            except TimeoutError:
                continue
        assert answer.startswith(b"HTTP/1.1 431 ")


# keys


def test_only_a_gateway_with_a_gateways_key_may_ask_for_the_holder_of_a_token(
    migrated_sqlite_url: str, tmp_path: Path
) -> None:
    for role in ("workers", "clients", "gateways"):
        (tmp_path / role).mkdir()
    server, server_secret = make_pair(tmp_path / "keys", "dispatcher")
    own = {}
    for name, role in (("gate", "gateways"), ("shop", "clients")):
        public, secret = make_pair(tmp_path / "keys", name)
        public.rename(tmp_path / role / public.name)
        own[name] = settings(curve_secret=secret, curve_server_key=server)
    fleet = Fleet(migrated_sqlite_url, tmp_path)
    folders: dict[str, Any] = {
        f"curve_{role}": tmp_path / role for role in ("workers", "clients", "gateways")
    }
    try:
        dispatcher = fleet.dispatcher(curve_secret=server_secret, **folders)
        to = ["--connect", dispatcher.facts["frontend"]]
        made = run("token", "create", "--role", "read", *to, *own["shop"])
        assert made.returncode == 0, made.stderr
        shown = {"authorization": f"Bearer {made.stdout.strip()}"}
        right = fleet.start("gateway", *to, "--http", ANY, *own["gate"])
        wrong = fleet.start("gateway", *to, "--http", ANY, *own["shop"])
        assert call(right.facts["http"], "GET", JOBS, headers=shown)[0] == 200
        status, problem = call(wrong.facts["http"], "GET", JOBS, headers=shown)
        assert (status, problem["code"]) == (403, "not_allowed")
        assert "curve_gateways" in problem["detail"]
        audited = run("audit", "--json", *to, *own["shop"])
        assert [one["principal"] for one in json.loads(audited.stdout)] == ["key:shop"]
    finally:
        fleet.close()
