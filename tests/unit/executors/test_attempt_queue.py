"""Attempts that wait in the queue of a real process: who reads one owns it."""

from __future__ import annotations

import asyncio
import os
import select
import signal
import socket
from pathlib import Path

import pytest

from longshore.executors.attempt_queue import PACKET_BYTES
from longshore.executors.frames import Ended, Said, from_host
from longshore.executors.host_process import HostProcess
from longshore.executors.process import ProcessExecutor
from longshore.model.job import Reason
from longshore.model.reports import CrashReport, ReleaseReport
from longshore.wire.messages import Assignment

from .stand import Stand, error_of, result_of, wait_gone


def ahead_in(executor: ProcessExecutor) -> int:
    """How many attempts wait behind others."""
    return sum(len(given) - 1 for given in executor._given.values() if given)


def peek(host: HostProcess) -> bytes:
    """What the process has sent and its agent has not read."""
    sock = host._channel._sock
    select.select([sock], [], [])
    return sock.recv(1_000_000, socket.MSG_PEEK)


async def blocked(stand: Stand, path: Path, *kinds: str) -> tuple[Assignment, list[Assignment]]:
    """An attempt that runs until the file is there, and others in its process's queue."""
    first = stand.start_short("wait_for", path=str(path))
    others = [stand.start_short(kind) for kind in kinds]
    await stand.step_of(first)
    assert isinstance(stand.executor, ProcessExecutor)
    assert ahead_in(stand.executor) == len(others)
    return first, others


async def test_a_process_begins_the_next_by_itself_in_order(stand: Stand) -> None:
    await stand.open_child()
    started = [stand.start_short("pid") for _ in range(100)]
    pids = {result_of(await stand.report_of(assignment)) for assignment in started}
    assert len(pids) == 1
    assert [report.token for report in stand.reports] == [one.token for one in started]
    assert stand.begun == sorted(stand.begun)


async def test_more_than_a_queue_holds_are_run_once_each(stand: Stand, tmp_path: Path) -> None:
    executor = await stand.open_child()
    first = stand.start_short("wait_for", path=str(tmp_path / "go"))
    started = [stand.start_short("add", a=number) for number in range(2000)]
    await stand.step_of(first)
    assert executor._unsent, "the queue has no room for all of them"
    (tmp_path / "go").touch()
    assert [result_of(await stand.report_of(one)) for one in started] == list(range(2000))
    assert len(stand.reports) == 2001


async def test_only_what_a_killed_process_had_begun_is_blamed(stand: Stand, tmp_path: Path) -> None:
    await stand.open_child()
    first, others = await blocked(stand, tmp_path / "go", *["pid"] * 5)
    old = int((await stand.step_of(first)).removeprefix("pid "))
    os.kill(old, signal.SIGKILL)
    assert isinstance(await stand.report_of(first), CrashReport)
    assert old not in {result_of(await stand.report_of(one)) for one in others}
    assert [report.token for report in stand.reports] == [first.token, *(o.token for o in others)]


@pytest.mark.parametrize("kind", ["segfault", "exit_hard", "close_descriptors", "speak_nonsense"])
async def test_no_end_before_a_crash_is_lost_and_nothing_after_it_is_blamed(
    stand: Stand, kind: str
) -> None:
    await stand.open_child()
    before = [stand.start_short("add", a=number) for number in range(20)]
    args = {"code": 3} if kind == "exit_hard" else {}
    culprit = stand.start_short(kind, **args)
    after = [stand.start_short("add", a=number) for number in range(20)]
    for started in before, after:
        assert [result_of(await stand.report_of(one)) for one in started] == list(range(20))
    assert isinstance(await stand.report_of(culprit), CrashReport)
    assert len(stand.reports) == 41


@pytest.mark.parametrize("kind", ["fork_and_return", "fork_and_speak"])
async def test_a_forked_copy_takes_nothing_from_the_queue(stand: Stand, kind: str) -> None:
    await stand.open_child()
    stand.start_short(kind)
    started = [stand.start_short("add", a=number) for number in range(50)]
    assert [result_of(await stand.report_of(one)) for one in started] == list(range(50))
    assert len(stand.reports) == 51


async def test_what_is_taken_back_never_runs(stand: Stand, tmp_path: Path) -> None:
    executor = await stand.open_child()
    first, others = await blocked(stand, tmp_path / "go", "pid", "pid", "pid")
    wanted = [first.token, others[0].token, others[2].token]
    assert executor.take_back(wanted) == wanted[1:]
    assert executor.take_back(wanted) == []
    (tmp_path / "go").touch()
    result_of(await stand.report_of(others[1]))
    assert await stand.result("add", a=1) == 1
    assert [report.token for report in stand.reports][:2] == [first.token, others[1].token]
    assert len(stand.reports) == 3


async def test_an_abort_of_what_waits_takes_it_back(stand: Stand, tmp_path: Path) -> None:
    await stand.open_child(abort_grace_s=1000)
    first, others = await blocked(stand, tmp_path / "go", "say_and_sleep", "pid")
    given = stand.abort(others[0])
    assert await stand.report_of(others[0]) == given
    (tmp_path / "go").touch()
    same = result_of(await stand.report_of(first))
    assert result_of(await stand.report_of(others[1])) == same
    assert stand.said_by(others[0]) == []


async def test_what_waits_behind_an_aborted_attempt_goes_to_another_process(
    stand: Stand, tmp_path: Path
) -> None:
    await stand.open_child(abort_grace_s=1000)
    first, others = await blocked(stand, tmp_path / "never", "pid", "pid")
    old = int((await stand.step_of(first)).removeprefix("pid "))
    given = stand.abort(first)
    assert await stand.report_of(first) == given
    assert old not in {result_of(await stand.report_of(one)) for one in others}


async def test_kill_hands_back_what_waits_too(stand: Stand, tmp_path: Path) -> None:
    executor = await stand.open_child()
    first, others = await blocked(stand, tmp_path / "never", "pid", "pid")
    executor.kill()
    for one in (first, *others):
        assert await stand.report_of(one) == ReleaseReport(*one.key)


async def test_an_idle_process_gets_what_waits_behind_a_long_run(
    stand: Stand, tmp_path: Path
) -> None:
    """The second process is started only because something waits behind the first."""
    await stand.open_child(2)
    first = stand.start_short("wait_for", path=str(tmp_path / "never"))
    others = [stand.start_short("pid") for _ in range(4)]
    old = int((await stand.step_of(first)).removeprefix("pid "))
    assert old not in {result_of(await stand.report_of(one)) for one in others}
    # Nothing is put behind the long run again.
    assert result_of(await stand.report_of(stand.start_short("pid"))) != old


async def test_a_long_attempt_waits_for_a_process_of_its_own(stand: Stand, tmp_path: Path) -> None:
    executor = await stand.open_child(2)
    long = stand.start("wait_for", path=str(tmp_path / "never"))
    short = stand.start_short("pid")
    await stand.step_of(long)
    assert ahead_in(executor) == 0
    result_of(await stand.report_of(short))


async def test_a_large_attempt_goes_to_an_idle_process_and_keeps_its_turn(
    stand: Stand, tmp_path: Path
) -> None:
    await stand.open_child()
    started = [stand.start_short("add", a=1)]
    started.append(stand.start_short("length", text="x" * PACKET_BYTES))
    started.append(stand.start_short("add", a=2))
    results = [result_of(await stand.report_of(one)) for one in started]
    assert results == [1, PACKET_BYTES, 2]
    assert stand.begun == [one.token for one in started]


async def test_a_timeout_counts_from_the_real_start(stand: Stand) -> None:
    """The second waits for longer than its timeout until it begins."""
    await stand.open_child()
    stand.start_short("nap", seconds=1.2, then=0)
    second = stand.start_short("add", timeout_s=1.0, a=1)
    third = stand.start_short("sleep", timeout_s=0.1)
    assert result_of(await stand.report_of(second)) == 1
    assert error_of(await stand.report_of(third)).reason is Reason.TIMED_OUT


async def test_an_attempt_has_begun_though_it_is_heard_together_with_the_end_before_it(
    stand: Stand,
) -> None:
    """Its time runs: what it says comes after that end, in the same bytes."""
    executor = await stand.open_child()
    first, second = stand.start_short("add", a=1), stand.start_short("say_and_sleep", timeout_s=0.1)
    await asyncio.sleep(0)
    [host] = executor._hosts
    while len(unpacked := from_host().feed(peek(host))) < 2:
        pass  # the loop stands still meanwhile
    assert [type(message) for message in unpacked] == [Ended, Said]
    assert result_of(await stand.report_of(first)) == 1
    assert await stand.step_of(second) == f"pid {host.pid}"
    assert error_of(await stand.report_of(second)).reason is Reason.TIMED_OUT


async def test_what_waits_for_a_process_that_died_while_idle_is_not_blamed(stand: Stand) -> None:
    await stand.open_child()
    pid = await stand.result("pid")
    os.kill(pid, signal.SIGKILL)
    started = [stand.start_short("pid") for _ in range(3)]
    wait_gone(pid)
    assert pid not in {result_of(await stand.report_of(one)) for one in started}


# processes that are replaced


async def test_a_process_is_replaced_after_so_many_jobs(stand: Stand) -> None:
    """What waits in its queue goes to the next one."""
    await stand.open_child(max_jobs=10)
    started = [stand.start_short("pid") for _ in range(35)]
    pids = [result_of(await stand.report_of(one)) for one in started]
    assert [pids.count(pid) for pid in dict.fromkeys(pids)] == [10, 10, 10, 5]
    assert len(stand.reports) == 35
    assert all(
        report.token == one.token for report, one in zip(stand.reports, started, strict=True)
    )


async def test_each_job_may_have_a_process_of_its_own(stand: Stand) -> None:
    await stand.open_child(max_jobs=1)
    started = [stand.start("pid") for _ in range(4)]
    assert len({result_of(await stand.report_of(one)) for one in started}) == 4


async def test_a_successor_is_started_before_its_time(stand: Stand, tmp_path: Path) -> None:
    """The last job of a process runs while the next process is made ready."""
    executor = await stand.open_child(max_jobs=2)
    await stand.result("pid")
    last = stand.start("wait_for", path=str(tmp_path / "go"))
    old = int((await stand.step_of(last)).removeprefix("pid "))
    while not executor._spares:
        await asyncio.gather(*executor._starting)
    [spare] = executor._spares
    following = stand.start("pid")
    (tmp_path / "go").touch()
    assert result_of(await stand.report_of(last)) == old
    assert result_of(await stand.report_of(following)) == spare.pid
    wait_gone(old)


async def test_a_process_whose_memory_is_past_the_limit_is_replaced_between_jobs(
    stand: Stand,
) -> None:
    await stand.open_child(max_mb=300)
    first = await stand.result("pid")
    assert await stand.result("pid") == first
    assert await stand.result("hoard", mb=400) == first
    second = await stand.result("pid")
    assert second != first
    assert await stand.result("pid") == second
