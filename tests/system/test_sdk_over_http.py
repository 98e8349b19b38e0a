"""The SDK and the command line with the URL of a gateway as their address."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import longshore
from longshore.errors import JobFailed, NotFound
from longshore.testing.processes import Process, await_true, run, settings
from tests.system.apps import harbour
from tests.system.conftest import ANY, APPS, QUICK
from tests.system.test_gateway import children


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    """Everything on this machine, with HTTP."""
    folder = tmp_path_factory.mktemp("up")
    words = ["--app", "harbour:app", "--backend", ANY, "--frontend", ANY, "--http", ANY]
    words += ["--store", f"sqlite:///{folder}/store.db", *settings(**QUICK)]
    with Process("up", *words, cwd=APPS, log=folder / "up.log") as process:
        yield process.ready()


@pytest.fixture
def app(up: Process) -> Iterator[longshore.App]:
    """An app that reaches its dispatcher only by HTTP."""
    app = longshore.App("client", connect=up.facts["http"])
    yield app
    app.close()


def test_an_app_submits_waits_and_lists_over_http(app: longshore.App) -> None:
    job = app.submit_by_name("add", {"a": 1, "b": 2})
    assert job.result(timeout_s=30) == 3
    many = app.submit_many([harbour.add.call(n, n) for n in range(1_200)])
    assert sum(app.results(many, timeout_s=60)) == sum(range(1_200)) * 2
    failed = app.submit_by_name("unserialisable", {})
    with pytest.raises(JobFailed):
        failed.result(timeout_s=30)
    with pytest.raises(NotFound, match="there is no job 999999"):
        app.handle(999_999)


async def test_a_coroutine_runs_a_group_over_http(app: longshore.App) -> None:
    async with app.group("sums") as g:
        first = g.add(harbour.add.call(1, 1))
        last = g.add(harbour.add.call(first.result, 5))
    assert await g.handle.wait_async(timeout_s=30) is longshore.GroupState.SUCCEEDED
    assert await g.handle.result_async(last.key) == 7
    await app.close_async()


def test_commands_take_the_url_of_a_gateway(up: Process, app: longshore.App) -> None:
    url = up.facts["http"]
    done = run("submit", "--connect", url, "add", "a=20", "b=22", "--wait")
    assert (done.returncode, done.stdout.strip().splitlines()[-1]) == (0, "42")
    assert run("workers", "--connect", url).returncode == 0
    missing = run("job", "--connect", url, "999999")
    assert missing.returncode == 3
    assert "there is no job 999999" in missing.stderr


def test_a_wait_goes_on_when_its_gateway_is_killed(
    up: Process, app: longshore.App, tmp_path: Path
) -> None:
    started, until = tmp_path / "started", tmp_path / "until"
    job = app.submit_by_name("hold", {"started": str(started), "until": str(until)})
    await_true(started.exists, "the job runs")
    with ThreadPoolExecutor() as threads:
        waiting = threads.submit(job.result, 60)
        replace_the_gateway(up)
        until.touch()
        assert waiting.result()


def replace_the_gateway(up: Process) -> None:
    """Kills the gateway of `longshore up`, and waits for the next one."""
    (gateway,) = children(up.pid, "gateway")
    os.kill(gateway, signal.SIGKILL)
    await_true(lambda: children(up.pid, "gateway") not in ([], [gateway]), "another one starts")


def test_an_address_where_nothing_answers_is_named(tmp_path: Path) -> None:
    done = run("jobs", "--connect", "http://127.0.0.1:9", "--set", "request_timeout_s=0.5")
    assert done.returncode == 4
    assert "http://127.0.0.1:9" in done.stderr
    assert "--http" in done.stderr


@pytest.mark.parametrize("url", ["http://", "http://ann:pw@127.0.0.1", "https://h/?q=1"])
def test_a_url_that_leads_nowhere_is_refused(url: str) -> None:
    done = run("jobs", "--connect", url)
    assert done.returncode == 2
    assert "like http://127.0.0.1:7700" in done.stderr
