"""Processes known by their marks: who can be said to have ended, and who cannot."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from longshore.executors import process_marks
from longshore.run.machine import has_ended, process_mark


def test_nothing_that_is_logged_can_forge_a_line_or_steer_a_terminal() -> None:
    program = (
        "import logging\n"
        "from longshore.run.logs import log_to_stderr\n"
        "log_to_stderr('info')\n"
        "log = logging.getLogger('longshore.dispatcher')\n"
        "log.info('worker %s attends', 'x\\n2026-01-01T00:00:00.000Z ERROR forged\\x1b[31m')\n"
        "try:\n"
        "    raise ValueError('y\\n2026-01-01T00:00:00.000Z ERROR forged\\x9b')\n"
        "except ValueError:\n"
        "    log.exception('a part broke')\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0
    entries = [line for line in done.stderr.splitlines() if not line.startswith(" ")]
    assert [line.split(" ", 2)[1] for line in entries if line[:1].isdigit()] == ["INFO", "ERROR"]
    assert not any(line.startswith("2026-01-01") for line in entries)
    assert "\x1b" not in done.stderr
    assert "\x9b" not in done.stderr


@pytest.fixture
def other() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "600"]) as process:
        yield process
        process.kill()


def test_a_process_that_lives_has_not_ended(other: subprocess.Popen[bytes]) -> None:
    assert not has_ended(process_mark())
    assert not has_ended(process_mark(other.pid))


def test_a_killed_process_has_ended_though_nobody_has_taken_its_exit_code(
    other: subprocess.Popen[bytes],
) -> None:
    mark = process_mark(other.pid)
    other.kill()
    os.waitid(os.P_PID, other.pid, os.WEXITED | os.WNOWAIT)
    assert has_ended(mark)


def test_a_process_that_was_waited_for_has_ended(other: subprocess.Popen[bytes]) -> None:
    mark = process_mark(other.pid)
    other.kill()
    other.wait()
    assert has_ended(mark)


def test_a_number_that_was_given_to_a_newer_process_is_not_the_one_that_ended() -> None:
    place, _, started = process_mark().rpartition(" ")
    assert has_ended(f"{place} {int(started) - 1}")


@pytest.mark.parametrize(
    "mark",
    ["", "junk", "another-host 0b00 pid:[4026531836] 1 5", " 0 0", "x -1 0", "x 99999999999 0"],
)
def test_nothing_is_said_of_processes_elsewhere(mark: str) -> None:
    assert not has_ended(mark)


def test_a_process_of_another_machine_with_a_number_that_is_free_here_is_left_alone(
    other: subprocess.Popen[bytes],
) -> None:
    _, boot, numbers, pid, started = process_mark(other.pid).split()
    other.kill()
    other.wait()
    assert not has_ended(f"elsewhere {boot} {numbers} {pid} {started}")


def test_where_processes_cannot_be_told_apart_none_is_said_to_have_ended(
    other: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where there is no /proc: then the lease decides."""
    mark = process_mark(other.pid)
    other.kill()
    other.wait()

    def nowhere() -> str:
        raise FileNotFoundError("/proc")

    monkeypatch.setattr(process_marks, "place", nowhere)
    assert process_mark() == ""
    assert not has_ended(mark)
