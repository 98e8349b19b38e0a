"""Async jobs in a real host process."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from uuid import UUID

import pytest
import uvloop

from longshore.errors import AppError
from longshore.executors.coroutine import CoroutineExecutor
from longshore.executors.frames import ITEMS_PER_FRAME
from longshore.executors.hosted import Hosting
from longshore.model.ids import derive_id
from longshore.model.job import LogKind, Reason
from longshore.model.log import unpack_line
from longshore.model.reports import (
    CrashReport,
    FailureReport,
    OutboxJob,
    ReleaseReport,
    SuccessReport,
)
from longshore.model.worker import KindInfo, Parameter, Pool

from .stand import Stand, children, error_of, failure_in, result_of, wait_gone


async def test_a_result_comes_back(stand: Stand) -> None:
    await stand.open_coroutine()
    assert await stand.result("add_async", a=2, b=3) == 5


async def test_the_executor_knows_all_kinds_of_the_app(stand: Stand) -> None:
    executor = await stand.open_coroutine()
    assert executor.slots == 100
    assert executor.kinds["add_async"].pool is Pool.COROUTINE
    whole = '{"type":"integer"}'
    parameters = (Parameter("a", True, "int", whole), Parameter("b", False, "int", whole))
    assert executor.kinds["add"] == KindInfo(Pool.PROCESS, parameters)


async def test_many_run_at_once_and_each_is_reported_once(stand: Stand) -> None:
    await stand.open_coroutine()
    started = [stand.start("add_async", a=number) for number in range(1000)]
    results = [result_of(await stand.report_of(assignment)) for assignment in started]
    assert results == list(range(1000))
    assert len(stand.reports) == 1000


def test_the_same_on_uvloop() -> None:
    uvloop.run(_run_abort_and_crash())


async def _run_abort_and_crash() -> None:
    stand = Stand()
    await stand.open_coroutine()
    assert await stand.result("add_async", a=1) == 1
    waiting = stand.start("wait_forever")
    await stand.step_of(waiting)
    given = stand.abort(waiting)
    assert await stand.report_of(waiting) == given
    assert isinstance(await stand.run("segfault_async"), CrashReport)
    assert await stand.result("add_async", a=2) == 2
    await stand.executor.close()


async def test_an_exception_is_told_with_the_jobs_own_frames_only(stand: Stand) -> None:
    await stand.open_coroutine()
    report = await stand.run("raise_async")
    error = error_of(report)
    assert not failure_in(report).final
    assert (error.reason, error.type, error.message) == (Reason.RAISED, "LookupError", "outer")
    assert "jobs_app.py" in error.traceback
    assert "KeyError: 'inner'" in error.traceback
    assert "longshore/executors" not in error.traceback


async def test_fail_forbids_a_retry(stand: Stand) -> None:
    await stand.open_coroutine()
    report = await stand.run("ask_fail")
    assert failure_in(report).final
    assert (error_of(report).type, error_of(report).message) == ("longshore.Fail", "never")


async def test_a_result_that_cannot_be_stored_names_job_and_place(stand: Stand) -> None:
    await stand.open_coroutine()
    report = await stand.run("unpackable_async")
    assert failure_in(report).final
    assert error_of(report).reason is Reason.INVALID_RESULT
    assert "the result of job 'unpackable_async'" in error_of(report).message
    assert "Unpackable" in error_of(report).message


async def test_arguments_that_do_not_fit_fail_for_good(stand: Stand) -> None:
    await stand.open_coroutine()
    report = await stand.run("add_async", c=1)
    assert failure_in(report).final
    assert error_of(report).reason is Reason.INVALID_ARGUMENTS
    assert "job 'add_async'" in error_of(report).message


async def test_arguments_that_are_no_msgpack_fail_for_good(stand: Stand) -> None:
    await stand.open_coroutine()
    report = await stand.report_of(stand.start_packed("add_async", b"\xc1"))
    assert failure_in(report).final
    assert error_of(report).reason is Reason.INVALID_ARGUMENTS


async def test_an_unknown_kind_lists_what_there_is(stand: Stand) -> None:
    await stand.open_coroutine()
    error = error_of(await stand.run("nonesuch"))
    assert error.reason is Reason.UNKNOWN_KIND
    assert "no job 'nonesuch'" in error.message
    assert "add_async" in error.message


async def test_a_raw_job_gets_bytes_and_answers_bytes(stand: Stand) -> None:
    await stand.open_coroutine()
    report = await stand.report_of(stand.start_packed("shout", b"abc", raw=True))
    assert report == SuccessReport(report.job, report.token, b"ABC")


async def test_a_raw_job_that_answers_no_bytes_fails(stand: Stand) -> None:
    await stand.open_coroutine()
    error = error_of(await stand.report_of(stand.start_packed("measure", b"abc", raw=True)))
    assert error.reason is Reason.INVALID_RESULT
    assert error.message == "the result of the raw job 'measure' is int: a raw job returns bytes"


@pytest.mark.parametrize(
    ("kind", "type_name"),
    [
        ("exit_async", "SystemExit"),
        ("interrupt_async", "KeyboardInterrupt"),
        ("cancel_itself", "asyncio.exceptions.CancelledError"),
    ],
)
async def test_whatever_a_job_raises_its_host_goes_on(
    stand: Stand, kind: str, type_name: str
) -> None:
    await stand.open_coroutine()
    before = await stand.result("pid_async")
    error = error_of(await stand.run(kind))
    assert (error.reason, error.type) == (Reason.RAISED, type_name)
    assert await stand.result("pid_async") == before


@pytest.mark.parametrize("kind", ["leave_task_that_exits", "stop_the_loop"])
async def test_a_job_cannot_end_its_hosts_loop(stand: Stand, kind: str) -> None:
    await stand.open_coroutine()
    before = await stand.result("pid_async")
    await stand.result(kind)
    assert await stand.result("pid_async") == before


async def test_attempts_that_another_job_cancels_are_reported_as_failed(stand: Stand) -> None:
    await stand.open_coroutine()
    begun = stand.start("wait_forever")
    await stand.step_of(begun)
    culprit = stand.start("cancel_neighbours")
    not_begun = stand.start("wait_forever")
    assert result_of(await stand.report_of(culprit)) == 2
    for victim in (begun, not_begun):
        report = await stand.report_of(victim)
        assert isinstance(report, FailureReport)
        assert error_of(report).type == "asyncio.exceptions.CancelledError"


async def test_as_many_jobs_as_there_are_slots_are_in_threads_at_once(stand: Stand) -> None:
    await stand.open_coroutine(slots=41)
    started = [stand.start("meet_in_threads") for _ in range(41)]
    assert {result_of(await stand.report_of(one)) for one in started} == set(range(41))


async def test_threads_are_made_when_a_job_needs_them(stand: Stand) -> None:
    await stand.open_coroutine(slots=1000)
    assert await stand.result("threads_of_the_pool") == 1


async def test_a_job_may_use_more_threads_than_there_are_slots(stand: Stand) -> None:
    """As many as Python gives a program without slots."""
    await stand.open_coroutine(slots=1)
    assert await stand.result("meet_oneself") == 5


async def test_a_thread_that_never_ends_does_not_hold_up_the_hosts_end(stand: Stand) -> None:
    await stand.open_coroutine(abort_grace_s=1000)
    assignment = stand.start("block_in_a_thread")
    await stand.step_of(assignment)
    stand.abort(assignment)
    await stand.report_of(assignment)
    async with asyncio.timeout(10):
        await stand.executor.close()


async def test_a_timeout_stops_the_coroutine(stand: Stand) -> None:
    await stand.open_coroutine()
    report = await stand.run("wait_forever", timeout_s=0.1)
    assert isinstance(report, FailureReport)
    assert error_of(report).reason is Reason.TIMED_OUT
    assert error_of(report).message == "took longer than its timeout of 0.1 s"


async def test_an_aborted_coroutine_cleans_up_and_gets_the_given_report(
    stand: Stand, tmp_path: Path
) -> None:
    await stand.open_coroutine()
    assignment = stand.start("clean_up_async", path=str(tmp_path / "note"))
    await stand.step_of(assignment)
    given = stand.abort(assignment)
    assert await stand.report_of(assignment) == given
    assert (tmp_path / "note").read_text() == "cleaned up, cancelled: True"


async def test_success_after_the_abort_is_not_success(stand: Stand) -> None:
    await stand.open_coroutine()
    assignment = stand.start("succeed_when_cancelled")
    await stand.step_of(assignment)
    given = stand.abort(assignment)
    assert await stand.report_of(assignment) == given


async def test_an_abort_right_after_the_start_stops_it(stand: Stand) -> None:
    await stand.open_coroutine()
    assignment = stand.start("wait_forever")
    given = stand.abort(assignment)
    assert await stand.report_of(assignment) == given
    assert await stand.result("add_async", a=1) == 1


async def test_an_abort_in_the_same_breath_as_the_run_stops_it(stand: Stand) -> None:
    await stand.open_coroutine()
    assignment = stand.start("wait_forever")
    await asyncio.sleep(0)
    given = stand.abort(assignment)
    assert await stand.report_of(assignment) == given


async def test_aborts_that_race_with_the_end_report_once(stand: Stand) -> None:
    await stand.open_coroutine()
    started = [stand.start("add_async", a=1) for _ in range(100)]
    await stand.report_of(started[0])
    given = [stand.abort(assignment) for assignment in started]
    for assignment, report in zip(started, given, strict=True):
        found = await stand.report_of(assignment)
        assert found == report or result_of(found) == 1
    assert len(stand.reports) == 100


async def test_the_first_abort_decides_what_is_reported(stand: Stand) -> None:
    await stand.open_coroutine()
    assignment = stand.start("wait_forever", timeout_s=1000)
    await stand.step_of(assignment)
    given = stand.abort(assignment)
    stand.executor.abort(ReleaseReport(*assignment.key))
    assert await stand.report_of(assignment) == given


async def test_an_attempt_that_stopped_in_time_does_not_take_its_neighbours_with_it(
    stand: Stand,
) -> None:
    """The grace that it was given is over once it has stopped: the other one outlasts it."""
    await stand.open_coroutine(abort_grace_s=2.0)
    aborted = stand.start("wait_forever")
    await stand.step_of(aborted)
    stand.abort(aborted)
    await stand.report_of(aborted)
    assert error_of(await stand.run("wait_forever", timeout_s=2.5)).reason is Reason.TIMED_OUT


@pytest.mark.parametrize("kind", ["ignore_cancel", "block_the_loop"])
async def test_what_does_not_stop_is_killed_and_its_neighbours_are_handed_back(
    stand: Stand, kind: str
) -> None:
    await stand.open_coroutine(abort_grace_s=0.3)
    neighbours = [stand.start("wait_forever") for _ in range(3)]
    before = int((await stand.step_of(neighbours[0])).removeprefix("pid "))
    culprit = stand.start(kind, timeout_s=0.3)
    assert error_of(await stand.report_of(culprit)).reason is Reason.TIMED_OUT
    for neighbour in neighbours:
        report = await stand.report_of(neighbour)
        assert report == ReleaseReport(*neighbour.key)
    assert before not in children()
    assert await stand.result("pid_async") != before


async def test_attempts_given_while_the_host_restarts_run_in_the_next_one(stand: Stand) -> None:
    await stand.open_coroutine(abort_grace_s=0.05)
    culprit = stand.start("ignore_cancel")
    await stand.step_of(culprit)
    stand.abort(culprit)
    await stand.report_of(culprit)
    started = [stand.start("add_async", a=number) for number in range(10)]
    aborted = stand.start("add_async", a=1)
    given = stand.abort(aborted)
    assert await stand.report_of(aborted) == given
    assert [result_of(await stand.report_of(item)) for item in started] == list(range(10))


async def test_an_attempt_for_a_host_that_has_just_died_runs_in_the_next_one(stand: Stand) -> None:
    """Nothing of it arrived, and nobody is to be blamed for that death."""
    executor = await stand.open_coroutine()
    pid = await stand.result("pid_async")
    started = [stand.start("add_async", a=number) for number in range(2 * ITEMS_PER_FRAME)]
    os.kill(pid, signal.SIGKILL)
    wait_gone(pid)
    executor._place()
    results = [result_of(await stand.report_of(assignment)) for assignment in started]
    assert results == list(range(2 * ITEMS_PER_FRAME))


async def test_large_values_pass_both_ways(stand: Stand) -> None:
    """They are larger than what a socket takes at once."""
    await stand.open_coroutine()
    report = await stand.report_of(stand.start_packed("shout", b"a" * 1_000_000, raw=True))
    assert report == SuccessReport(report.job, report.token, b"A" * 1_000_000)


async def test_a_host_that_dies_takes_all_its_jobs_with_it(stand: Stand) -> None:
    await stand.open_coroutine()
    neighbour = stand.start("wait_forever")
    await stand.step_of(neighbour)
    culprit = stand.start("segfault_async")
    for assignment in (neighbour, culprit):
        report = await stand.report_of(assignment)
        assert isinstance(report, CrashReport)
        error = error_of(report)
        assert error.reason is Reason.CRASHED
        assert "was killed by signal 11 (SIGSEGV)" in error.message
        assert "2 jobs shared it" in error.message
    assert await stand.result("add_async", a=1) == 1


async def test_a_forked_copy_reports_nothing(stand: Stand) -> None:
    await stand.open_coroutine()
    assert await stand.result("fork_and_return_async") == "original"
    assert await stand.result("add_async", a=1) == 1
    assert len(stand.reports) == 2


async def test_an_attempt_knows_which_it_is(stand: Stand) -> None:
    await stand.open_coroutine()
    started = [stand.start("identify_async") for _ in range(5)]
    for assignment in started:
        found = result_of(await stand.report_of(assignment))
        assert found == [str(assignment.job), assignment.number, 1, assignment.token]


async def test_progress_is_thinned_out_and_the_last_is_kept(stand: Stand) -> None:
    await stand.open_coroutine()
    assignment = stand.start("progress_often_async", times=10_000)
    result_of(await stand.report_of(assignment))
    last = await stand.progress_of(assignment, 10_000)
    assert last.total == 10_000
    entries = stand.said_by(assignment)
    assert [entry.seq for entry in entries] == list(range(1, len(entries) + 1))
    assert [unpack_line(e.data).text for e in entries if e.kind is LogKind.STEP] == ["done"]
    assert len(entries) < 100


async def test_progress_may_come_from_a_thread(stand: Stand) -> None:
    await stand.open_coroutine()
    assignment = stand.start("progress_from_thread")
    assert (await stand.progress_of(assignment, 7)).done == 7


async def test_what_a_job_submits_goes_with_its_success(stand: Stand) -> None:
    await stand.open_coroutine()
    assignment = stand.start("submit_two")
    report = await stand.report_of(assignment)
    expected = [derive_id(assignment.job, index) for index in (0, 1)]
    assert [UUID(text) for text in result_of(report)] == expected
    assert isinstance(report, SuccessReport)
    assert [item.job.id for item in report.outbox if isinstance(item, OutboxJob)] == expected


async def test_what_a_failed_job_submitted_is_dropped(stand: Stand) -> None:
    await stand.open_coroutine()
    assert isinstance(await stand.run("submit_and_raise"), FailureReport)


async def test_a_job_that_submits_too_much_gets_the_limit_named(stand: Stand) -> None:
    await stand.open_coroutine()
    error = error_of(await stand.run("submit_too_much"))
    assert error.type == "longshore.errors.TooLarge"
    assert "16,777,216 bytes" in error.message


async def test_kill_hands_everything_back(stand: Stand) -> None:
    await stand.open_coroutine()
    aborted, running = stand.start("ignore_cancel"), stand.start("wait_forever")
    await stand.step_of(running)
    given = stand.abort(aborted)
    waiting = stand.start("add_async", a=1)
    stand.executor.kill()
    assert isinstance(await stand.report_of(running), ReleaseReport)
    assert isinstance(await stand.report_of(waiting), ReleaseReport)
    assert await stand.report_of(aborted) == given
    assert await stand.result("add_async", a=1) == 1


async def another_child(before: list[int]) -> None:
    """Returns when a process was started that was not there before."""
    while True:
        if set(children()) - set(before):
            return
        await asyncio.sleep(0)


async def test_killing_a_host_without_jobs_is_nothing_to_warn_of(
    stand: Stand, caplog: pytest.LogCaptureFixture
) -> None:
    """A second Ctrl-C kills it for the jobs of other hosts."""
    await stand.open_coroutine()
    before = children()
    stand.executor.kill()
    await another_child(before)
    assert await stand.result("add_async", a=2) == 2
    assert [record.message for record in caplog.records] == []


async def test_a_host_that_dies_with_jobs_says_how_many(
    stand: Stand, caplog: pytest.LogCaptureFixture
) -> None:
    await stand.open_coroutine()
    waiting = stand.start("wait_forever")
    await stand.step_of(waiting)
    stand.executor.kill()
    await stand.report_of(waiting)
    [said] = [record.message for record in caplog.records]
    assert said.endswith("was killed by its worker, with 1 job in it")


async def test_close_reports_nothing_and_may_be_followed_by_open(stand: Stand) -> None:
    executor = await stand.open_coroutine()
    waiting = stand.start("wait_forever", timeout_s=1000)
    pid = int((await stand.step_of(waiting)).removeprefix("pid "))
    await executor.close()
    wait_gone(pid)
    assert stand.reports == []
    await executor.open()
    assert await stand.result("add_async", a=1) == 1


async def test_close_while_the_host_restarts_leaves_nothing(stand: Stand) -> None:
    await stand.open_coroutine()
    await stand.run("segfault_async")
    stand.start("add_async", a=1)
    await stand.executor.close()
    assert len(stand.reports) == 1


async def test_an_app_that_cannot_be_imported_makes_open_fail(stand: Stand) -> None:
    executor = CoroutineExecutor(Hosting("nonesuch:app"), 1, print, print)
    with pytest.raises(AppError, match="there is no module 'nonesuch'"):
        await executor.open()
    await executor.close()


async def test_an_app_that_hangs_on_import_makes_open_fail(
    stand: Stand, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "hanging.py").write_text("import time; time.sleep(1000)")
    monkeypatch.chdir(tmp_path)
    executor = CoroutineExecutor(Hosting("hanging:app", start_timeout_s=0.5), 1, print, print)
    with pytest.raises(AppError, match="took longer than start_timeout_s"):
        await executor.open()
    await executor.close()


async def test_an_app_that_kills_its_process_makes_open_fail(
    stand: Stand, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "dying.py").write_text("import os; os._exit(7)")
    monkeypatch.chdir(tmp_path)
    executor = CoroutineExecutor(Hosting("dying:app"), 1, print, print)
    with pytest.raises(AppError, match="imports 'dying:app' exited with code 7"):
        await executor.open()
    await executor.close()


async def test_attempts_are_handed_back_while_the_app_cannot_be_imported_again(
    stand: Stand, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = (Path(__file__).parent / "jobs_app.py").read_text()
    (tmp_path / "jobs_app.py").write_text(source)
    monkeypatch.chdir(tmp_path)
    await stand.open_coroutine()
    (tmp_path / "jobs_app.py").write_text("broken")
    await stand.run("segfault_async")
    assert isinstance(await stand.run("add_async", a=1), ReleaseReport)
    (tmp_path / "jobs_app.py").write_text(source)
    while isinstance(report := await stand.run("add_async", a=1), ReleaseReport):
        pass
    assert result_of(report) == 1


async def test_a_machine_without_threads_gets_a_pause_and_the_attempts_are_handed_back(
    stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error that is not Longshore's: the executor neither gives up nor tries without end."""
    tries: list[int] = []

    def fail(*given: object, **more: object) -> None:
        tries.append(1)
        raise RuntimeError("can't start new thread")

    await stand.open_coroutine()
    with monkeypatch.context() as patched:
        patched.setattr("longshore.executors.hosted.start_host", fail)
        await stand.run("segfault_async")
        assert isinstance(await stand.run("add_async", a=1), ReleaseReport)
        assert len(tries) < 5
    while isinstance(report := await stand.run("add_async", a=1), ReleaseReport):
        pass
    assert result_of(report) == 1
