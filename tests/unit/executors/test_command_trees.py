"""Nothing of a command is left when it has ended, however it was started and however it ends."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from longshore.executors.left_behind import kill_orphans
from longshore.model.program import COMMAND_KIND
from longshore.model.reports import CancelReport, CrashReport, ReleaseReport
from longshore.wire.messages import Assignment

from .stand import Stand, failure_in, is_alive, result_of

DAEMON = "(setsid sh -c 'echo $$ >> PIDS; exec sleep 600' >/dev/null 2>&1 &) ;"
IN_ITS_SESSION = "(sh -c 'echo $$ >> PIDS; exec sleep 600' >/dev/null 2>&1 &) ;"
HIDDEN = "(setsid env -i sh -c 'echo $$ >> PIDS; exec sleep 600' >/dev/null 2>&1 &) ;"
STUBBORN = "(trap '' TERM; echo $BASHPID >> PIDS; while :; do sleep 600 & wait; done) & "


class Pids:
    """A file to which processes write their numbers."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def in_script(self, script: str) -> list[str]:
        """A command that runs a script in which PIDS stands for the file."""
        return ["bash", "-c", script.replace("PIDS", str(self._path))]

    async def written(self, count: int) -> list[int]:
        """The numbers, once so many are there."""
        await asyncio.to_thread(self._wait, count)
        return self.now()

    def _wait(self, count: int) -> None:
        while len(self.now()) < count:
            os.sched_yield()

    def now(self) -> list[int]:
        """The numbers that are there."""
        text = self._path.read_text() if self._path.exists() else ""
        return [int(line) for line in text.splitlines()]


@pytest.fixture
def pids(tmp_path: Path) -> Pids:
    return Pids(tmp_path / "pids")


def start(stand: Stand, argv: list[str], **more: Any) -> Assignment:
    """A command, begun."""
    return stand.start(COMMAND_KIND, argv=argv, **more)


@pytest.mark.parametrize("leaves", [IN_ITS_SESSION, DAEMON, HIDDEN, STUBBORN])
async def test_what_a_command_leaves_running_is_killed_when_it_exits(
    stand: Stand, pids: Pids, leaves: str
) -> None:
    await stand.open_command()
    waits = "while [ ! -s PIDS ]; do sleep 0.01; done"
    report = await stand.report_of(start(stand, pids.in_script(f"{leaves} {waits}")))
    assert result_of(report) is None
    assert len(pids.now()) == 1
    assert not any(map(is_alive, pids.now()))


@pytest.mark.parametrize("leaves", [IN_ITS_SESSION, DAEMON, STUBBORN])
async def test_an_abort_ends_the_whole_tree_and_no_neighbour(
    stand: Stand, pids: Pids, leaves: str, tmp_path: Path
) -> None:
    await stand.open_command()
    others = Pids(tmp_path / "others")
    neighbour = start(stand, others.in_script(f"{DAEMON} echo $$ >> PIDS; sleep 600"))
    aborted = start(stand, pids.in_script(f"{leaves} echo $$ >> PIDS; sleep 600"))
    await pids.written(2)
    await others.written(2)
    assert await_report(stand.abort(aborted), await stand.report_of(aborted))
    assert not any(map(is_alive, pids.now()))
    assert all(map(is_alive, others.now()))
    stand.abort(neighbour)
    await stand.report_of(neighbour)
    assert not any(map(is_alive, others.now()))


def await_report(told: object, reported: object) -> bool:
    """Whether the attempt was reported as it was aborted."""
    return isinstance(told, CancelReport) and told == reported


async def test_an_aborted_command_may_end_in_good_order(stand: Stand, pids: Pids) -> None:
    await stand.open_command(abort_grace_s=30)
    script = "trap 'echo 0 >> PIDS; exit 0' TERM; echo $$ >> PIDS; while :; do sleep 0.01; done"
    assignment = start(stand, pids.in_script(script))
    await pids.written(1)
    stand.abort(assignment)
    await stand.report_of(assignment)
    assert pids.now()[1] == 0


async def test_a_timeout_kills_a_command_that_ignores_sigterm(stand: Stand, pids: Pids) -> None:
    await stand.open_command()
    script = "trap '' TERM; echo $$ >> PIDS; echo said; while :; do sleep 0.01; done"
    report = failure_in(await stand.report_of(start(stand, pids.in_script(script), timeout_s=0.5)))
    assert (report.error.reason, report.error.message) == (
        "timed_out",
        "took longer than its timeout of 0.5 s",
    )
    assert report.error.traceback == "said"
    assert not any(map(is_alive, pids.now()))


async def test_a_killed_host_leaves_nothing_running_and_is_replaced(
    stand: Stand, pids: Pids
) -> None:
    executor = await stand.open_command()
    (host,) = executor._hosts
    assignment = start(stand, pids.in_script(f"{DAEMON} echo $$ >> PIDS; sleep 600"))
    await pids.written(2)
    os.kill(host.pid, signal.SIGKILL)
    assert isinstance(await stand.report_of(assignment), CrashReport)
    assert not any(map(is_alive, pids.now()))
    assert result_of(await stand.run(COMMAND_KIND, argv=["true"])) is None


async def test_kill_ends_everything_at_once_and_hands_it_back(stand: Stand, pids: Pids) -> None:
    executor = await stand.open_command(abort_grace_s=600)
    assignment = start(stand, pids.in_script(f"{STUBBORN} {DAEMON} wait"))
    await pids.written(2)
    executor.kill()
    assert isinstance(await stand.report_of(assignment), ReleaseReport)
    assert not any(map(is_alive, pids.now()))


async def test_a_frozen_host_is_killed_too_and_its_commands_with_it(
    stand: Stand, pids: Pids
) -> None:
    executor = await stand.open_command()
    (host,) = executor._hosts
    assignment = start(stand, pids.in_script("echo $$ >> PIDS; sleep 600"))
    await pids.written(1)
    os.kill(host.pid, signal.SIGSTOP)
    executor.kill()
    assert isinstance(await stand.report_of(assignment), ReleaseReport)
    assert not any(map(is_alive, pids.now()))


async def test_a_host_that_loses_its_agent_kills_its_commands_and_ends(
    stand: Stand, pids: Pids
) -> None:
    executor = await stand.open_command()
    (host,) = executor._hosts
    assignment = start(stand, pids.in_script(f"{STUBBORN} {DAEMON} wait"))
    await pids.written(2)
    executor._hosts.clear()
    executor._open_hosts.clear()
    executor._attempts.clear()
    host._channel.close()  # as when the agent dies: nothing is at the other end any more
    await asyncio.shield(host._exited)
    assert assignment.token
    assert not any(map(is_alive, pids.now()))


async def test_what_a_dead_host_and_a_dead_agent_left_is_killed_at_the_next_start(
    stand: Stand, pids: Pids
) -> None:
    executor = await stand.open_command()
    (host,) = executor._hosts
    start(stand, pids.in_script(f"{DAEMON} echo $$ >> PIDS; sleep 600"))
    await pids.written(2)
    executor._hosts.clear()
    executor._open_hosts.clear()
    executor._attempts.clear()  # the agent is dead: nobody clears up after the host
    os.kill(host.pid, signal.SIGKILL)
    await asyncio.shield(host._exited)
    assert all(map(is_alive, pids.now()))
    assert kill_orphans() >= 2
    assert not any(map(is_alive, pids.now()))


async def test_what_a_dead_process_abandoned_is_reaped(stand: Stand) -> None:
    executor = await stand.open_command()
    (host,) = executor._hosts
    for _ in range(3):
        await stand.run(COMMAND_KIND, argv=["bash", "-c", "(sleep 0 &) ; (true &)"])
    assert children_of(host.pid) == []


def children_of(pid: int) -> list[str]:
    """The children of a process, remains of dead ones included."""
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
