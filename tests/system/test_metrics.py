"""Metrics of real processes, read by a real Prometheus and checked by its own tools."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import urllib.error
import urllib.request
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

import pytest

from longshore.core import metering as m
from longshore.testing.processes import Process, await_true, run
from longshore.testing.servers import HOST, PostgresServer, free_port
from tests.system.apps import harbour
from tests.system.conftest import ANY, APPS, Fleet, lines
from tests.system.pages import blocks

OPS = Path(__file__).parents[2] / "ops"
OPEN_METRICS = "application/openmetrics-text; version=1.0.0"
SAMPLE = re.compile(r"(\w+)(?:\{(.*)\})? (\S+)")
LABEL = re.compile(r'(\w+)="([^"]*)"')
JOBS = 30
ELSEWHERE = "HTTP/1.1 421 Misdirected Request"

Samples = dict[tuple[str, ...], float]


class MeteredFleet(Fleet):
    """A fleet whose dispatchers show metrics."""

    def dispatcher(self, backend: str = ANY, frontend: str = ANY, **more: object) -> Process:
        return super().dispatcher(backend, frontend, **{"metrics": ANY, "metrics_s": 0.1, **more})


@pytest.fixture
def fleet(migrated_postgres_url: str, tmp_path: Path) -> Iterator[MeteredFleet]:
    """A fleet on PostgreSQL."""
    fleet = MeteredFleet(migrated_postgres_url, tmp_path)
    yield fleet
    fleet.close()


@pytest.fixture
def on_file(migrated_sqlite_url: str, tmp_path: Path) -> Iterator[MeteredFleet]:
    """A fleet on SQLite."""
    fleet = MeteredFleet(migrated_sqlite_url, tmp_path)
    yield fleet
    fleet.close()


def get(url: str, **headers: str) -> tuple[int, str]:
    request = urllib.request.Request(url, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def scraped(*processes: Process) -> dict[str, Samples]:
    """The sum over processes, by metric and by the values of its labels in order of names."""
    found: dict[str, Samples] = defaultdict(lambda: defaultdict(float))
    for process in processes:
        for line in get(f"{process.facts['metrics']}/metrics")[1].splitlines():
            if not line.startswith("#") and (sample := SAMPLE.fullmatch(line)):
                labels = tuple(value for _, value in sorted(LABEL.findall(sample[2] or "")))
                found[sample[1]][labels] += float(sample[3])
    return found


def promtool(*words: str, text: str = "", cwd: Path = OPS) -> None:
    done = subprocess.run(
        ["promtool", *words], input=text, cwd=cwd, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr.replace(text, "")) == (0, ""), done.stdout + done.stderr


def test_sum_over_dispatchers_is_what_was_submitted_and_what_ended(
    fleet: MeteredFleet, tmp_path: Path
) -> None:
    dispatchers = [fleet.dispatcher() for _ in range(2)]
    killed = fleet.worker(*dispatchers, slots=10)
    started, until = tmp_path / "started", tmp_path / "until"
    apps = [fleet.client(one) for one in dispatchers]
    calls = [harbour.hold.call(str(started), str(until)) for _ in range(JOBS)]
    handles = [*apps[0].submit_many(calls[::2]), *apps[1].submit_many(calls[1::2])]
    await_true(lambda: len(lines(started)) == 10, "as many run as there are slots")
    await_true(lambda: scraped(*dispatchers)["longshore_blocked_jobs"]["busy",] == JOBS - 10, "why")
    assert scraped(*dispatchers)["longshore_slots_used"]["coroutine",] == 10
    killed.kill()
    for dispatcher in dispatchers:
        fleet.worker(dispatcher, slots=20)
    until.touch()
    apps[0].wait_all([apps[0].handle(handle.id) for handle in handles], timeout_s=60)
    over = "hold", "default", "succeeded"
    told = "the store is counted anew"
    await_true(lambda: scraped(*dispatchers)["longshore_jobs"][over] == JOBS, told)
    sums = scraped(*dispatchers)
    assert sum(sums["longshore_jobs"].values()) == JOBS
    assert sums["longshore_submits_total"]["accepted",] == JOBS
    assert sums["longshore_jobs_ended_total"]["succeeded",] == JOBS
    assert sums["longshore_attempts_ended_total"]["hold", "succeeded"] == JOBS
    assert sum(sums["longshore_attempts_started_total"].values()) == JOBS + 10
    assert sums["longshore_run_seconds_count"]["hold",] == JOBS
    assert sums["longshore_wait_seconds_count"]["hold",] == JOBS
    assert sums["longshore_workers_lost_total"][()] == 1
    assert sums["longshore_leases"][()] == 2
    for dispatcher in dispatchers:
        _, text = get(f"{dispatcher.facts['metrics']}/metrics")
        promtool("check", "metrics", text=text)
        _, text = get(f"{dispatcher.facts['metrics']}/metrics", Accept=OPEN_METRICS)
        assert text.endswith("# EOF\n")


@contextmanager
def prometheus(folder: Path, targets: list[str]) -> Iterator[str]:
    """A Prometheus with our rules, that scrapes these; answers its URL."""
    config = {
        "global": {"scrape_interval": "200ms", "evaluation_interval": "200ms"},
        "rule_files": [str(OPS / "alerts.yml")],
        "scrape_configs": [{"job_name": "longshore", "static_configs": [{"targets": targets}]}],
    }
    (folder / "prometheus.yml").write_text(json.dumps(config))
    url = f"http://{HOST}:{free_port()}"
    words = ["--config.file=prometheus.yml", f"--storage.tsdb.path={folder / 'data'}"]
    words += [f"--web.listen-address={urlsplit(url).netloc}", "--log.level=error"]
    with subprocess.Popen(["prometheus", *words], cwd=folder) as server:
        try:
            await_true(lambda: is_up(url), "Prometheus is ready")
            yield url
        finally:
            server.kill()


def is_up(url: str) -> bool:
    try:
        return get(f"{url}/-/ready")[0] == 200
    except OSError:
        return False


def asked(url: str, what: str, **query: str) -> Any:
    status, text = get(f"{url}/api/v1/{what}?{urlencode(query)}")
    assert status == 200, text
    return json.loads(text)["data"]


def targets_of(url: str) -> set[str]:
    """How those that it scrapes are."""
    return {one["health"] for one in asked(url, "targets")["activeTargets"]}


def expressions() -> list[str]:
    """What the dashboard asks for, and the page of the docs."""
    panels = json.loads((OPS / "dashboard.json").read_text())["panels"]
    found = [target["expr"] for panel in panels for target in panel.get("targets", [])]
    (shown,) = blocks("metrics.md", "promql")
    assert len(found) > 20
    return [one.replace("$__rate_interval", "1m") for one in found] + shown.text.splitlines()


def test_prometheus_scrapes_dispatchers_and_gateways_and_loads_rules_and_dashboard(
    on_file: MeteredFleet, tmp_path: Path
) -> None:
    dispatcher = on_file.dispatcher(http=ANY)
    on_file.worker(dispatcher)
    on_file.client(dispatcher).submit_many([harbour.nap.options(delay_s=0.1).call(0)])[0].result(30)
    on_file.client(dispatcher).submit_by_name("nobody")
    get(f"{dispatcher.facts['http']}/healthz")
    targets = [urlsplit(dispatcher.facts[name]).netloc for name in ("metrics", "http")]
    counted = {m.OLDEST.name, m.QUEUE_WAIT.name}
    shown = f"{dispatcher.facts['metrics']}/metrics"
    await_true(lambda: all(name in get(shown)[1] for name in counted), "counted")
    check_whole(get(shown)[1])
    with prometheus(tmp_path, targets) as url:
        ready = 'sum(longshore_jobs{state="ready"})'
        await_true(lambda: bool(asked(url, "query", query=ready)["result"]), "it has scraped")
        [(_, value)] = [one["value"] for one in asked(url, "query", query=ready)["result"]]
        assert value == "1"
        await_true(lambda: targets_of(url) == {"up"}, "it has scraped both")
        [group] = asked(url, "rules")["groups"]
        assert {rule["health"] for rule in group["rules"]} <= {"ok", "unknown"}
        pending = [one["labels"]["alertname"] for one in asked(url, "alerts")["alerts"]]
        assert "LongshoreNotReady" not in pending
        names = {one.shown for one in m.METRICS}
        for expression in expressions():
            asked(url, "query", query=expression)
            used = set(re.findall(r"longshore_\w+", expression))
            assert all(_is_known(name, names) for name in used), expression


def check_whole(text: str) -> None:
    """Every metric of dispatchers is shown, with its help."""
    shown = dict(re.findall(r"^# HELP (\w+) (.*)$", text, re.MULTILINE))
    wanted = {*m.OF_STORE, *m.OF_DISPATCHERS} - {m.STORE_ERRORS}  # none of them failed
    assert shown == {one.shown: one.help for one in wanted}


def _is_known(name: str, names: set[str]) -> bool:
    return name in names or re.sub(r"_(bucket|count|sum)$", "", name) in names


def test_rules_are_sound_and_say_what_they_should() -> None:
    promtool("check", "rules", "alerts.yml")
    promtool("test", "rules", "alerts_test.yml")
    used = set(re.findall(r"longshore_\w+", (OPS / "alerts.yml").read_text()))
    assert all(_is_known(name, {one.shown for one in m.METRICS}) for name in used)


def test_dispatcher_without_its_store_is_alive_and_not_ready(tmp_path: Path) -> None:
    with PostgresServer(fsync=False) as postgres:
        url = postgres.create_database("away")
        assert run("migrate", "--store", url).returncode == 0
        fleet = MeteredFleet(url, tmp_path)
        try:
            dispatcher = fleet.dispatcher(http=ANY, request_timeout_s=1)
            metrics, http = dispatcher.facts["metrics"], dispatcher.facts["http"]
            assert get(f"{metrics}/readyz") == (200, '{"status":"ready","troubles":[]}')
            assert get(f"{http}/readyz")[0] == 200
            postgres.stop("immediate")
            await_true(lambda: "its own lease" in get(f"{metrics}/readyz")[1], "it says why")
            status, body = get(f"{metrics}/readyz")
            assert (status, json.loads(body)["troubles"][0]) == (503, "the store does not answer")
            assert get(f"{http}/readyz")[0] == 503
            assert get(f"{metrics}/healthz")[0] == get(f"{http}/healthz")[0] == 200
            assert scraped(dispatcher)["longshore_ready"][()] == 0
            postgres.start()
            await_true(lambda: get(f"{metrics}/readyz")[0] == 200, "it is ready again")
        finally:
            fleet.close()


def raw(url: str, request: bytes) -> str:
    where = urlsplit(url)
    with socket.create_connection((HOST, where.port or 0), timeout=10) as connection:
        connection.sendall(request)
        connection.shutdown(socket.SHUT_WR)
        parts = iter(lambda: connection.recv(65_536), b"")
        return b"".join(parts).decode().partition("\r\n")[0]


def test_odd_requests_are_answered_and_change_nothing(on_file: MeteredFleet) -> None:
    url = on_file.dispatcher().facts["metrics"]
    host = b"Host: 127.0.0.1\r\n\r\n"
    for request, answer in (
        (b"GET /nowhere HTTP/1.1\r\n" + host, "HTTP/1.1 404 Not Found"),
        (b"POST /metrics HTTP/1.1\r\n" + host, "HTTP/1.1 405 Method Not Allowed"),
        (b"HEAD /metrics HTTP/1.1\r\n" + host, "HTTP/1.1 200 OK"),
        (
            b"GET /metrics HTTP/1.1\r\nHost: evil.example\r\n\r\n",
            "HTTP/1.1 421 Misdirected Request",
        ),
        (b"GET /metrics HTTP/1.1\r\n\r\n", "HTTP/1.1 421 Misdirected Request"),
        (b"\x00\xff nonsense\r\n\r\n", "HTTP/1.1 400 Bad Request"),
        (b"GET / HTTP/1.1\r\nX: " + 20_000 * b"x", ""),
        (
            b"GET / HTTP/1.1\r\nX: " + 20_000 * b"x" + b"\r\n\r\n",
            "HTTP/1.1 431 Request Header Fields Too Large",
        ),
        (b"", ""),
    ):
        assert raw(url, request) == answer, request[:60]
    assert get(f"{url}/healthz")[0] == 200


def test_metrics_that_others_could_reach_or_whose_port_is_taken_are_refused(
    migrated_sqlite_url: str,
) -> None:
    words = ["dispatcher", "--store", migrated_sqlite_url, "--backend", ANY, "--frontend", ANY]
    refused = run(*words, "--metrics", "0.0.0.0:7703")
    assert refused.returncode == 2
    assert "metrics 0.0.0.0:7703 can be reached from other machines" in refused.stderr
    with socket.create_server((HOST, 0)) as taken:
        address = f"{HOST}:{taken.getsockname()[1]}"
        refused = run(*words, "--metrics", address)
    assert refused.returncode != 0
    assert f"cannot show metrics on {address}: Address already in use" in refused.stderr


def test_processes_log_json_with_the_ids_of_jobs_and_traces(
    migrated_sqlite_url: str, tmp_path: Path
) -> None:
    trace = "0af7651916cd43dd8448eb211c80319c"
    words = ["--app", "harbour:app", "--backend", ANY, "--frontend", ANY, "--http", ANY]
    words += ["--store", migrated_sqlite_url, "--set", "log_format=json"]
    with Process("up", *words, cwd=APPS, log=tmp_path / "up.log") as up:
        url = f"{up.ready().facts['http']}/dispatcher/jobs/"
        headers = {"traceparent": f"00-{trace}-b7ad6b7169203331-01"}
        headers["Content-Type"] = "application/json"
        body = json.dumps({"kind": "unserialisable_async"}).encode()
        request = urllib.request.Request(url, body, headers)
        with urllib.request.urlopen(request, timeout=10) as answer:
            job = json.loads(answer.read())["id"]
        await_true(lambda: " failed: " in up.said(), "the worker has logged the failure")
    entries = [json.loads(line) for line in up.said().split("\n") if line]
    for entry in entries:
        assert entry.keys() >= {"time", "level", "logger", "message", "process"}
    [failed] = [entry for entry in entries if " failed: " in entry["message"]]
    assert (failed["job"], failed["trace"], failed["level"]) == (job, trace, "warning")
    assert len({entry["process"] for entry in entries}) == 3
