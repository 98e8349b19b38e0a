"""Plain jobs in real child processes."""

from __future__ import annotations

import asyncio
import os
import select
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from longshore.model.job import LogKind, Reason
from longshore.model.log import unpack_line
from longshore.model.reports import CrashReport, ReleaseReport, SuccessReport

from .stand import Stand, children, error_of, failure_in, is_alive, result_of, wait_gone


async def test_a_result_comes_back_from_the_same_process_every_time(stand: Stand) -> None:
    await stand.open_child()
    assert await stand.result("add", a=2, b=3) == 5
    pids = {await stand.result("pid") for _ in range(200)}
    assert len(pids) == 1
    assert pids != {os.getpid()}


async def test_processes_are_started_on_demand_up_to_the_bound(stand: Stand) -> None:
    await stand.open_child(3)
    assert len(children()) == 1
    started = [stand.start("say_and_sleep") for _ in range(3)]
    pids = {await stand.step_of(assignment) for assignment in started}
    assert len(pids) == 3
    assert len(children()) == 3


async def test_idle_processes_are_used_before_new_ones_are_started(stand: Stand) -> None:
    await stand.open_child(3)
    for _ in range(20):
        await stand.result("pid")
    assert len(children()) == 1


async def test_a_job_runs_in_the_main_thread_and_knows_which_it_is(stand: Stand) -> None:
    await stand.open_child()
    assignment = stand.start("identify")
    found = result_of(await stand.report_of(assignment))
    assert found == [str(assignment.job), assignment.number, 1, assignment.token, True]


async def test_an_exception_that_cannot_be_shown_is_still_told(stand: Stand) -> None:
    await stand.open_child()
    error = error_of(await stand.run("raise_spiteful"))
    assert error.type == "jobs_app.Spiteful"
    assert "__str__ raised RuntimeError" in error.message


async def test_messages_and_tracebacks_are_bounded(stand: Stand) -> None:
    await stand.open_child()
    error = error_of(await stand.run("raise_long"))
    assert len(error.message.encode()) <= 4096
    assert len(error.traceback.encode()) <= 16 * 1024


async def test_endless_recursion_is_an_exception_like_any_other(stand: Stand) -> None:
    await stand.open_child()
    error = error_of(await stand.run("raise_deep"))
    assert error.type == "RecursionError"
    assert len(error.traceback.encode()) <= 16 * 1024


@pytest.mark.parametrize("after_s", [None, 0.0, 12.5])
async def test_retry_says_when(stand: Stand, after_s: float | None) -> None:
    await stand.open_child()
    report = await stand.run("ask_retry", after_s=after_s)
    assert (failure_in(report).retry_after_s, failure_in(report).final) == (after_s, False)
    assert (error_of(report).type, error_of(report).message) == ("longshore.Retry", "not yet")


async def test_a_retry_before_now_is_the_jobs_own_mistake(stand: Stand) -> None:
    await stand.open_child()
    report = await stand.run("ask_retry", after_s=-1)
    assert error_of(report).type == "longshore.errors.InvalidInput"
    assert failure_in(report).retry_after_s is None


async def test_large_values_pass(stand: Stand) -> None:
    await stand.open_child()
    assert len(await stand.result("large", size=1_000_000)) == 1_000_000


async def test_what_a_job_prints_does_not_disturb_the_dialogue(
    stand: Stand, capfd: pytest.CaptureFixture[str]
) -> None:
    await stand.open_child()
    assert await stand.result("talk", size=1_000_000) == 1_000_000
    assert await stand.result("add", a=1) == 1
    captured = capfd.readouterr()
    assert "x" * 1_000_000 in captured.out
    assert "y" * 1_000_000 in captured.err


async def test_standard_input_is_empty(stand: Stand) -> None:
    await stand.open_child()
    assert await stand.result("read_stdin") == ""


async def test_sys_exit_fails_the_job_and_the_process_goes_on(stand: Stand) -> None:
    await stand.open_child()
    before = await stand.result("pid")
    error = error_of(await stand.run("exit_sync", code=3))
    assert (error.reason, error.type, error.message) == (Reason.RAISED, "SystemExit", "3")
    assert await stand.result("pid") == before


async def test_context_variables_do_not_leak_into_the_next_job(stand: Stand) -> None:
    await stand.open_child()
    assert await stand.result("leak") == "nothing"
    assert await stand.result("leak") == "nothing"


# stopping


@pytest.mark.parametrize("kind", ["swallow_cancelled", "block_sigterm"])
async def test_a_job_that_does_not_stop_is_killed(stand: Stand, kind: str) -> None:
    await stand.open_child(abort_grace_s=0.2)
    assert error_of(await stand.run(kind, timeout_s=0.1)).reason is Reason.TIMED_OUT
    assert await stand.result("add", a=1) == 1


async def test_a_handler_left_by_one_job_does_not_protect_the_next(stand: Stand) -> None:
    await stand.open_child(abort_grace_s=1000)
    await stand.result("keep_own_handler")
    assert error_of(await stand.run("sleep", timeout_s=0.1)).reason is Reason.TIMED_OUT


async def test_an_aborted_async_job_in_a_child_cleans_up(stand: Stand) -> None:
    await stand.open_child(abort_grace_s=1000)
    assignment = stand.start("sleep_in_child")
    await stand.step_of(assignment)
    given = stand.abort(assignment)
    assert await stand.report_of(assignment) == given
    steps = stand.said_by(assignment, LogKind.STEP)
    assert [unpack_line(entry.data).text for entry in steps] == ["begun", "cleaned up"]


async def test_what_an_aborted_job_started_dies_with_it(stand: Stand) -> None:
    await stand.open_child()
    assignment = stand.start("start_descendant_and_sleep")
    descendant = int((await stand.step_of(assignment)).removeprefix("pid "))
    stand.abort(assignment)
    await stand.report_of(assignment)
    wait_gone(descendant)


async def test_what_a_job_leaves_running_lives_until_close(stand: Stand) -> None:
    await stand.open_child()
    descendant = await stand.result("leave_descendant")
    assert await stand.result("add", a=1) == 1
    assert is_alive(descendant)
    await stand.executor.close()
    wait_gone(descendant)


async def test_an_abort_before_there_is_a_process_is_reported(stand: Stand) -> None:
    await stand.open_child(2)
    first, second = stand.start("say_and_sleep"), stand.start("say_and_sleep")
    given = stand.abort(second)
    assert await stand.report_of(second) == given
    await stand.step_of(first)


async def test_an_abort_right_after_the_start_stops_it(stand: Stand) -> None:
    await stand.open_child(abort_grace_s=1000)
    assignment = stand.start("sleep")
    given = stand.abort(assignment)
    assert await stand.report_of(assignment) == given


async def test_an_abort_that_races_with_the_end_never_hits_the_next_job(stand: Stand) -> None:
    await stand.open_child(abort_grace_s=1000)
    for turn in range(60):
        assignment = stand.start("nap", seconds=0.001, then=turn)
        # Not to wait for anything: to abort at a different moment of the job each time.
        await asyncio.sleep(0.0001 * (turn % 20))
        given = stand.abort(assignment)
        report = await stand.report_of(assignment)
        assert report == given or result_of(report) == turn
        assert await stand.result("add", a=turn) == turn


async def test_a_signal_from_another_process_stops_nothing(stand: Stand) -> None:
    await stand.open_child()
    assignment = stand.start("say_and_sleep")
    pid = int((await stand.step_of(assignment)).removeprefix("pid "))
    for number in (signal.SIGTERM, signal.SIGINT):
        os.kill(pid, number)
    given = stand.abort(assignment)
    assert await stand.report_of(assignment) == given
    # An idle one does not mind either.
    pid = await stand.result("pid")
    os.kill(pid, signal.SIGTERM)
    assert await stand.result("pid") == pid


# crashes


@pytest.mark.parametrize(
    ("kind", "args", "ending"),
    [
        ("segfault", {}, "the job's process was killed by signal 11 (SIGSEGV)"),
        ("exit_hard", {"code": 3}, "the job's process exited with code 3"),
        ("exit_hard", {"code": 0}, "the job's process exited with code 0"),
        ("kill_itself", {}, "the job's process was killed by signal 9 (SIGKILL)"),
        ("close_descriptors", {}, "the job's process lost its connection to the worker"),
        ("speak_nonsense", {}, "the job's process lost its connection to the worker"),
    ],
)
async def test_a_job_whose_process_dies_is_reported_as_crashed(
    stand: Stand, kind: str, args: dict[str, Any], ending: str
) -> None:
    await stand.open_child()
    report = await stand.run(kind, **args)
    assert isinstance(report, CrashReport)
    assert error_of(report).reason is Reason.CRASHED
    assert error_of(report).message.startswith(ending)
    assert await stand.result("add", a=1) == 1


async def test_a_crash_leaves_other_processes_alone(stand: Stand) -> None:
    await stand.open_child(2)
    neighbour = stand.start("say_and_sleep")
    await stand.step_of(neighbour)
    assert isinstance(await stand.run("segfault"), CrashReport)
    given = stand.abort(neighbour)
    assert await stand.report_of(neighbour) == given


async def test_an_idle_process_that_dies_is_replaced(stand: Stand) -> None:
    await stand.open_child()
    pid = await stand.result("pid")
    os.kill(pid, signal.SIGKILL)
    wait_gone(pid)
    assert await stand.result("pid") != pid


# forks and descendants


async def test_a_forked_process_obeys_sigterm(stand: Stand) -> None:
    await stand.open_child()
    assert await stand.result("fork_and_terminate") == signal.SIGTERM


async def test_started_programs_inherit_neither_socket_nor_signals(stand: Stand) -> None:
    await stand.open_child()
    (output,) = await stand.result("inherited_by_descendant")
    fds, _, rest = output.partition("] ")
    assert fds == "['0', '1', '2', '3'"
    assert rest.startswith("0 <built-in function default_int_handler>") or "SIG_DFL" in rest


async def test_ctrl_c_in_the_group_does_not_end_the_process(stand: Stand) -> None:
    await stand.open_child()
    before = await stand.result("pid")
    assert isinstance(await stand.run("kill_by_group"), SuccessReport)
    assert await stand.result("pid") == before


# what attempts say


async def test_text_that_is_no_unicode_is_told_somehow(stand: Stand) -> None:
    await stand.open_child()
    assignment = stand.start("say_garbage")
    assert await stand.step_of(assignment) == "a \\ud800 b"


async def test_kill_hands_everything_back(stand: Stand) -> None:
    await stand.open_child(2)
    aborted, running = stand.start("swallow_cancelled"), stand.start("say_and_sleep")
    waiting = stand.start("add", a=1)
    await stand.step_of(running)
    given = stand.abort(aborted)
    stand.executor.kill()
    assert isinstance(await stand.report_of(running), ReleaseReport)
    assert isinstance(await stand.report_of(waiting), ReleaseReport)
    assert await stand.report_of(aborted) == given
    assert await stand.result("add", a=1) == 1


async def test_the_job_after_one_that_ended_as_its_process_was_killed_is_not_blamed_for_that(
    stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The end was on its way already, and the kernel takes a moment to kill."""
    executor = await stand.open_child()
    ended = stand.start("add", a=1)
    await asyncio.sleep(0)
    [host] = executor._hosts
    select.select([host._channel._sock], [], [])
    kills: list[tuple[int, int]] = []
    with monkeypatch.context() as patched:
        patched.setattr(os, "killpg", lambda *kill: kills.append(kill))
        executor.kill()
    assert result_of(await stand.report_of(ended)) == 1
    following = stand.start("nap", seconds=0.2, then=2)
    os.killpg(*kills[0])
    assert result_of(await stand.report_of(following)) == 2


async def test_what_a_process_said_before_it_died_is_heard(stand: Stand) -> None:
    """An end that is in the socket counts, though the death is noticed first."""
    executor = await stand.open_child()
    ended = stand.start("add", a=1)
    await asyncio.sleep(0)
    [host] = executor._hosts
    select.select([host._channel._sock], [], [])
    os.kill(host.pid, signal.SIGKILL)
    [watcher] = [one for one in threading.enumerate() if one.name == f"host-{host.pid}"]
    watcher.join()
    assert result_of(await stand.report_of(ended)) == 1


# opening and closing


async def test_close_kills_everything_and_reports_nothing(stand: Stand) -> None:
    await stand.open_child(3)
    started = [stand.start("say_and_sleep", timeout_s=1000) for _ in range(3)]
    await stand.step_of(started[0])
    await stand.executor.close()
    assert children() == []
    assert stand.reports == []


def test_hosts_die_with_their_agent() -> None:
    agent = subprocess.Popen([sys.executable, "-c", AGENT], stdout=subprocess.PIPE, text=True)
    assert agent.stdout is not None
    with agent, agent.stdout:
        said = [agent.stdout.readline() for _ in range(2)]
        agent.kill()
    for pid in map(int, said):
        wait_gone(pid)


AGENT = """
import asyncio
from longshore.executors.hosted import Hosting
from longshore.executors.process import ProcessExecutor
from longshore.model.log import unpack_line
from longshore.wire.messages import Assignment
from uuid import uuid4

def tell(entry):
    print(unpack_line(entry.data).text.removeprefix("pid "), flush=True)

async def main():
    executor = ProcessExecutor(Hosting("jobs_app:app"), 2, print, tell)
    await executor.open()
    for token in (1, 2):
        executor.start(Assignment(uuid4(), token, token, "say_and_sleep", b"\\x80"))
    await asyncio.sleep(1000)

asyncio.run(main())
"""


async def test_close_may_be_followed_by_open(stand: Stand) -> None:
    executor = await stand.open_child()
    await executor.close()
    await executor.open()
    assert await stand.result("add", a=1) == 1


async def test_attempts_are_handed_back_while_the_app_cannot_be_imported_again(
    stand: Stand, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = (Path(__file__).parent / "jobs_app.py").read_text()
    (tmp_path / "jobs_app.py").write_text(source)
    monkeypatch.chdir(tmp_path)
    await stand.open_child()
    (tmp_path / "jobs_app.py").write_text("broken")
    await stand.run("segfault")
    assert isinstance(await stand.run("add", a=1), ReleaseReport)
    (tmp_path / "jobs_app.py").write_text(source)
    while isinstance(report := await stand.run("add", a=1), ReleaseReport):
        pass
    assert result_of(report) == 1
