"""docs/start.md, typed as a newcomer would: from the installation to a killed worker."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from longshore.testing.processes import await_true
from longshore.testing.servers import free_port
from tests.system.pages import Block, blocks

ROOT = Path(__file__).parents[2]
STAYS = ("longshore up", "longshore worker")


class Terminal:
    """A reader who types what the page says. What stays runs apart; typed again, it restarts."""

    def __init__(self, folder: Path, env: dict[str, str], running: ExitStack) -> None:
        self.folder = folder
        self.logs: list[Path] = []
        self._env = {**os.environ, **env}
        self._running = running
        self._before: list[str] = []
        self._staying: dict[str, subprocess.Popen[bytes]] = {}

    def type(self, command: str) -> tuple[int, str]:
        """Types a command; answers its exit code and what it printed."""
        if command.startswith(STAYS) and not command.startswith("longshore workers"):
            return self._leave_running(command)
        if "--watch" in command:
            command += " --json"  # nobody looks: this is no terminal
        done = subprocess.run(
            ["bash", "-c", "\n".join(["set -e", *self._before, command])],
            env=self._env,
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        self.errors = done.stderr
        if command.startswith((". ", "cd ")):
            self._before.append(command)
        return done.returncode, done.stdout

    def _leave_running(self, command: str) -> tuple[int, str]:
        if command in self._staying:
            _end(self._staying.pop(command))
        log = self.folder / f"{len(self.logs)}.log"
        self.logs.append(log)
        with log.open("w") as written:
            process = subprocess.Popen(
                ["bash", "-c", "\n".join([*self._before, f"exec {command}"])],
                env=self._env,
                cwd=self.folder,
                stdout=written,
                stderr=written,
            )
        self._staying[command] = process
        self._running.callback(_end, process)
        await_true(lambda: " ready: " in log.read_text(), f"{command}: {log}")
        return 0, ""

    def answer(self, command: str) -> object:
        """What a command says, as JSON."""
        code, printed = self.type(f"{command} --json")
        assert code == 0, self.errors
        return json.loads(printed)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    """Installing uses what is installed already: the test needs no package index."""
    (tmp_path / "longshore").symlink_to(ROOT)
    env = {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PYTHONPATH": sysconfig.get_paths()["purelib"],
        "PIP_NO_DEPS": "1",
        "PIP_NO_INDEX": "1",
        "PIP_NO_BUILD_ISOLATION": "0",
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "LONGSHORE_BACKEND": f"127.0.0.1:{free_port()}",
        "LONGSHORE_FRONTEND": f"127.0.0.1:{free_port()}",
    }
    with ExitStack() as running:
        yield Terminal(tmp_path, env, running)


@pytest.mark.timeout(300)
def test_the_ten_minutes_go_as_the_page_says(terminal: Terminal) -> None:
    page = blocks("start.md")
    harbour = terminal.folder / "harbour"
    told: dict[str, str] = {}
    for block in page:
        if block.language == "python":
            _write(block, harbour)
        elif block.language == "text":
            assert _states(block.text) == _states(told["longshore job 29"].partition("AT ")[2])
        for command, expected in block.commands():
            code, printed = terminal.type(_as_typed(command, terminal))
            assert code == (1 if "submit weigh" in command else 0), (command, terminal.errors)
            assert expected in ("", printed), command
            told[command] = printed + terminal.errors
            if command == "longshore submit unload boxes=60":
                _await_first_box(terminal)
    _check(told, terminal)


def _states(history: str) -> list[str]:
    return re.findall(r"Z  (\w+)", history)


def _write(block: Block, folder: Path) -> None:
    """A block goes into the file that was named last before it."""
    path = folder / re.findall(r"`(\w+\.py)`", block.before)[-1]
    with path.open("a") as file:
        file.write(f"\n\n{block.text}")


def _as_typed(command: str, terminal: Terminal) -> str:
    """A person needs more time to look than a test, and sees which process to kill."""
    if not command.startswith("kill"):
        return command.replace("boxes=60", "boxes=12")
    (busy,) = (one for one in _workers(terminal) if one["running"])
    return command.replace("4711", busy["name"].rpartition(":")[2])


def _workers(terminal: Terminal) -> list[dict[str, str]]:
    answer = terminal.answer("longshore workers")
    assert isinstance(answer, list)
    return [worker for worker in answer if worker["state"] == "alive"]


def _await_first_box(terminal: Terminal) -> None:
    await_true(lambda: "box 1" in terminal.type("longshore logs 29")[1], "the first box")


def _check(told: dict[str, str], terminal: Terminal) -> None:
    assert "greet" in told["longshore jobs"]
    assert "weigh" in told["longshore capacity"]
    assert "box 4" in told["longshore logs 6"]
    assert "the line is busy" in told["longshore job 7"]
    assert "tea.txt" in told["longshore why 8"]
    assert '"result": 12.5' in told["longshore job 8 --watch"].replace('":', '": ')
    assert told["longshore logs 29"].count("box 1\n") == 2
    assert "its process ended" in told["longshore job 29"]
    for log in terminal.logs:
        assert "Traceback" not in log.read_text()
