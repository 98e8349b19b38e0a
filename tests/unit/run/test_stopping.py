"""Signals, readiness and what else a process that stays owes its surroundings."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from pathlib import Path

import pytest

from longshore.cli.view.show import print_json_line
from longshore.errors import ConfigError, Unavailable
from longshore.run import machine
from longshore.run.ready import Announcer, Ready, at_once
from longshore.run.stopping import first_of, stop_signals


async def test_the_first_signal_asks_and_the_second_cancels() -> None:
    asked = asyncio.Event()

    async def work() -> None:
        with stop_signals(asked.set):
            os.kill(os.getpid(), signal.SIGTERM)
            await asked.wait()
            os.kill(os.getpid(), signal.SIGINT)
            await asyncio.Event().wait()

    with pytest.raises(asyncio.CancelledError):
        await asyncio.create_task(work())


async def test_what_the_second_signal_does_can_be_chosen() -> None:
    asked, hurried = asyncio.Event(), asyncio.Event()
    with stop_signals(asked.set, hurried.set):
        os.kill(os.getpid(), signal.SIGINT)
        await asked.wait()
        assert not hurried.is_set()
        os.kill(os.getpid(), signal.SIGTERM)
        await hurried.wait()


async def test_the_first_of_several_ends_the_wait_and_its_error_is_raised() -> None:
    async def breaks() -> None:
        raise LookupError("broken")

    done = asyncio.Event()
    done.set()
    await first_of(done.wait(), asyncio.Event().wait())
    with pytest.raises(LookupError, match="broken"):
        await first_of(asyncio.Event().wait(), breaks())


def test_a_ready_process_says_so_in_words_as_json_and_by_a_byte(
    capsys: pytest.CaptureFixture[str],
) -> None:
    reading, writing = os.pipe()
    announce = Announcer("dispatcher", writing, print_json_line)
    announce(Ready("workers tcp://x", {"backend": "tcp://x"}))
    assert os.read(reading, 2) == b"1"
    assert os.read(reading, 1) == b"", "the descriptor is closed afterwards"
    os.close(reading)
    printed = capsys.readouterr()
    assert printed.err == "longshore dispatcher ready: workers tcp://x\n"
    facts = {"ready": "dispatcher", "pid": os.getpid(), "backend": "tcp://x"}
    assert json.loads(printed.out) == facts
    assert printed.out.count("\n") == 1


@pytest.mark.parametrize(
    ("pools", "words"),
    [
        ({"coroutine": 100, "process": 2}, "runs up to 100 async jobs and 2 processes at once"),
        ({"coroutine": 1, "process": 1}, "runs up to 1 async job and 1 process at once"),
        ({"coroutine": 0, "process": 8}, "runs up to 8 processes at once"),
        (
            {"coroutine": 2000, "process": 2, "gpu": 1},
            "runs up to 2,000 async jobs, 2 processes and 1 gpu slot at once",
        ),
        ({"coroutine": 0}, "runs no jobs"),
    ],
)
def test_what_a_worker_runs_at_once_in_words(pools: dict[str, int], words: str) -> None:
    assert at_once(pools) == words


def test_a_descriptor_that_is_not_open_is_refused_at_once(tmp_path: Path) -> None:
    with (tmp_path / "file").open("w") as file:
        closed = file.fileno()
    with pytest.raises(ConfigError, match=f"--ready-fd {closed} is not open"):
        Announcer("worker", closed, print_json_line)


def test_a_process_that_nobody_waits_for_any_more_is_ready_all_the_same(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """As a worker that `up --reload` replaces before it has joined."""
    reading, writing = os.pipe()
    announce = Announcer("worker", writing, print_json_line)
    os.close(reading)
    announce(Ready("app shop:app", {}))
    assert "worker ready: app shop:app" in capsys.readouterr().err


def test_the_clock_never_goes_back_and_the_wall_clock_is_in_utc() -> None:
    clock = machine.SystemClock()
    assert clock.now() <= clock.now()
    offset = clock.utc().utcoffset()
    assert offset is not None
    assert not offset


def test_a_worker_whose_parent_is_gone_does_not_start() -> None:
    with pytest.raises(Unavailable, match="is gone"):
        machine.refuse_orphan(parent=0)


def test_the_target_names_system_and_processor() -> None:
    system, _, processor = machine.machine_target().partition("-")
    assert system
    assert processor
