"""The processes of `longshore up`: replaced when they die, ended in good order."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from longshore.errors import AppError, LongshoreError
from longshore.run.supervisor import Supervisor, ending

READY = "import os, sys, signal; signal.signal(signal.SIGTERM, {answer}); "
READY += "os.write(int(sys.argv[-1]), b'1')\nwhile True: signal.pause()"
WAITS = READY.format(answer="lambda *_: sys.exit(0)")
STUBBORN = READY.format(answer="signal.SIG_IGN")


def supervisor(
    code: str,
    count: int = 1,
    patience_s: float = 10.0,
    say: Callable[[str], None] = lambda line: None,
) -> Supervisor:
    command = [sys.executable, "-c", code]
    return Supervisor(command, os.environ, count, patience_s=patience_s, margin_s=0, say=say)


async def until(happened: Callable[[], bool]) -> None:
    while True:
        if happened():
            return
        await asyncio.sleep(0)


async def test_a_crew_that_is_ready_ends_in_good_order() -> None:
    workers = supervisor(WAITS, count=2)
    await workers.start()
    pids = workers.pids()
    assert len(pids) == 2
    await workers.stop()
    assert workers.pids() == []


async def test_one_that_dies_is_replaced_and_that_is_said() -> None:
    said: asyncio.Queue[str] = asyncio.Queue()
    workers = supervisor(WAITS, say=said.put_nowait)
    await workers.start()
    (first,) = workers.pids()
    os.kill(first, signal.SIGKILL)
    line = await said.get()
    assert line == f"longshore: worker {first} was killed by SIGKILL; another starts in 0.1 s"
    await until(lambda: bool(workers.pids()))
    assert workers.pids() != [first]
    await workers.stop()


async def test_one_that_replaces_another_has_its_words() -> None:
    """Each worker has a state folder of its own, in which the next one finds what it left."""
    command = [sys.executable, "-c", WAITS]
    workers = Supervisor(
        command,
        os.environ,
        2,
        patience_s=10,
        say=lambda line: None,
        own_words=lambda n: [f"at={n}"],
    )
    await workers.start()
    first = {pid: _word(pid) for pid in workers.pids()}
    lost = workers.pids()[0]
    os.kill(lost, signal.SIGKILL)
    await until(lambda: len(set(workers.pids()) - {lost}) == 2)
    [new] = set(workers.pids()) - first.keys()
    await until(lambda: _word(new) is not None)
    assert set(first.values()) == {"at=1", "at=2"}
    assert _word(new) == first[lost]
    await workers.stop()


def _word(pid: int) -> str | None:
    """The word of its own with which a process was started; None while it is a mere fork."""
    words = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
    return next((word for word in words if word.startswith("at=")), None)


async def test_one_that_leaves_in_good_order_is_not_replaced() -> None:
    said: asyncio.Queue[str] = asyncio.Queue()
    workers = supervisor(WAITS, say=said.put_nowait)
    await workers.start()
    (first,) = workers.pids()
    os.kill(first, signal.SIGTERM)
    assert f"worker {first} left in good order" in await said.get()
    assert workers.pids() == []
    await workers.stop()


async def test_one_that_cannot_start_is_an_error_and_not_tried_again() -> None:
    with pytest.raises(AppError, match="it exited with code 2; it said why above"):
        await supervisor("raise SystemExit(2)").start()
    with pytest.raises(LongshoreError, match="it exited with code 1"):
        await supervisor("raise SystemExit(1)").start()


async def test_one_that_does_not_end_is_killed() -> None:
    workers = supervisor(STUBBORN, patience_s=0)
    await workers.start()
    await workers.stop()
    await until(lambda: workers.pids() == [])


def test_an_ending_is_told_in_words() -> None:
    assert ending(3) == "exited with code 3"
    assert ending(-9) == "was killed by SIGKILL"
    assert ending(-200) == "was killed by signal 200"
