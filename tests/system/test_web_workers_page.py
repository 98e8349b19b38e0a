"""docs/web-workers.md, block by block, against a real `longshore up` and real services."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from longshore.config import DispatcherSettings, GatewaySettings
from longshore.testing.processes import Process, await_true, settings
from tests.interop.services import call
from tests.interop.test_web_workers import ended, submit
from tests.system.conftest import ANY, QUICK
from tests.system.pages import DOCS, SERVED, bash, blocks, matches

PAGE = "web-workers.md"
EXAMPLES = DOCS.parent / "examples"


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A gateway, and no workers."""
    folder = tmp_path_factory.mktemp("page")
    words = ["--backend", ANY, "--frontend", ANY, "--http", ANY, *settings(**QUICK)]
    with Process("up", *words, cwd=folder, log=folder / "up.log") as up:
        yield up.ready().facts["http"]


def is_alive(url: str) -> bool:
    found = call(url, "GET", "/dispatcher/workers/")[1]["web_workers"]
    return any(one["state"] == "alive" for one in found)


def test_the_example_answers_as_the_page_shows(url: str) -> None:
    start, asked, _ = blocks(PAGE, "console")
    _, (command, _) = start.commands()
    words = command.replace(SERVED, url).split()
    program = [sys.executable, str(DOCS.parent / words[1]), *words[2:]]
    with subprocess.Popen(program, stdout=subprocess.DEVNULL) as example:
        try:
            await_true(lambda: is_alive(url), "it has registered")
            for line, shown in asked.commands():
                answered = bash(line.replace(SERVED, url))
                assert matches(shown, answered), f"{line}\n{answered}\nis not\n{shown}"
            example.terminate()
            example.wait(20)
        finally:
            example.kill()


def test_the_app_of_the_page_runs_under_uvicorn(url: str, tmp_path: Path) -> None:
    (app,) = blocks(PAGE, "python")
    (tmp_path / "press.py").write_text(app.text)
    command, _ = next(blocks(PAGE, "console")[2].commands())
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    words = [sys.executable, "-m", *command.replace("8000", port).split()]
    env = {**os.environ, "GATEWAY": url, "PORT": port}
    with subprocess.Popen(words, env=env, cwd=tmp_path, stderr=subprocess.DEVNULL) as server:
        try:
            assert ended(url, submit(url, "double", args={"n": 21}))["result"] == 42
            server.terminate()
            server.wait(20)
        finally:
            server.kill()


def test_the_defaults_of_the_page_are_those_of_the_code() -> None:
    known = {**defaults(GatewaySettings()), **defaults(DispatcherSettings())}
    text = (DOCS / PAGE).read_text()
    rows = [
        line.split("|") for line in text.splitlines() if line.startswith(("| `web_", "| `max_"))
    ]
    shown = {row[1].strip(" `"): row[2].strip() for row in rows}
    assert shown.pop("web_answer_bytes") == "1 MiB"
    assert len(shown) == 6
    assert {name: known[name] for name in shown} == {n: float(v) for n, v in shown.items()}


def defaults(of: GatewaySettings | DispatcherSettings) -> dict[str, object]:
    return {name: getattr(of, name) for name in of.__struct_fields__}
