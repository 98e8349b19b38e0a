"""Plain jobs in the threads of a real host process."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from longshore.executors import thread
from longshore.executors.hosted import Hosting
from longshore.executors.thread import NO_THREAD_PAUSE_S, ThreadExecutor
from longshore.model.job import LogKind, Reason
from longshore.model.log import unpack_line
from longshore.model.reports import (
    CrashReport,
    NotBegunReport,
    ReleaseReport,
    Report,
    SuccessReport,
)
from longshore.model.worker import KindInfo, Pool
from longshore.wire.messages import Assignment

from .stand import Stand, children, error_of, result_of, wait_gone


def pid_in(step: str) -> int:
    return int(step.removeprefix("pid "))


async def test_a_result_comes_back_from_one_process(stand: Stand) -> None:
    executor = await stand.open_thread()
    assert executor.kinds["doze"].pool == Pool.THREAD
    assert await stand.result("add", a=2, b=3) == 5
    pids = {await stand.result("pid") for _ in range(100)}
    assert len(pids) == 1
    assert pids != {os.getpid()}


async def test_as_many_run_at_once_as_there_are_threads(stand: Stand) -> None:
    """Each ends only when all 32 are there."""
    await stand.open_thread()
    started = [stand.start("meet") for _ in range(32)]
    places = [result_of(await stand.report_of(assignment)) for assignment in started]
    assert sorted(places) == list(range(32))


async def test_many_are_reported_once_each(stand: Stand) -> None:
    await stand.open_thread(threads=300)
    started = [stand.start("add", a=number) for number in range(300)]
    results = [result_of(await stand.report_of(assignment)) for assignment in started]
    assert results == list(range(300))
    assert len(stand.reports) == 300


async def test_a_job_knows_which_it_is_in_a_thread_that_is_not_the_main_one(stand: Stand) -> None:
    await stand.open_thread()
    assignment = stand.start("identify")
    found = result_of(await stand.report_of(assignment))
    assert found == [str(assignment.job), assignment.number, 1, assignment.token, False]


@pytest.mark.parametrize(
    ("kind", "args", "type_name"),
    [
        ("exit_sync", {"code": 3}, "SystemExit"),
        ("raise_spiteful", {}, "jobs_app.Spiteful"),
        ("raise_deep", {}, "RecursionError"),
        ("ask_retry", {}, "longshore.Retry"),
    ],
)
async def test_whatever_a_job_raises_its_host_goes_on(
    stand: Stand, kind: str, args: dict[str, Any], type_name: str
) -> None:
    await stand.open_thread()
    before = await stand.result("pid")
    error = error_of(await stand.run(kind, **args))
    assert (error.reason, error.type) == (Reason.RAISED, type_name)
    assert await stand.result("pid") == before


async def test_jobs_find_nothing_that_others_left_in_their_context(stand: Stand) -> None:
    await stand.open_thread(threads=1)
    for _ in range(5):
        assert await stand.result("leak") == "nothing"


async def test_a_thread_keeps_its_thread_locals_from_job_to_job(stand: Stand) -> None:
    """A connection that a job keeps there serves the next job in that thread."""
    await stand.open_thread()
    found = [await stand.result("leave_in_thread") for _ in range(5)]
    assert found == [False, True, True, True, True]


async def test_what_a_job_submits_goes_with_its_success(stand: Stand) -> None:
    await stand.open_thread()
    report = await stand.run("submit_two")
    assert isinstance(report, SuccessReport)
    assert len(report.outbox) == 2


async def test_a_job_for_which_there_is_no_thread_goes_back_free_after_a_pause(
    stand: Stand,
) -> None:
    """Without the pause the next one would come at once, and so on."""
    await stand.open_thread()
    pid = await stand.result("pid")
    await stand.result("use_up_threads")
    assert await stand.result("add", a=1) == 1
    await stand.step_of(stand.start("doze"))
    began = asyncio.get_running_loop().time()
    started = [stand.start("add", timeout_s=0.01, a=1) for _ in range(2)]
    for assignment in started:
        assert await stand.report_of(assignment) == NotBegunReport(*assignment.key)
    assert asyncio.get_running_loop().time() - began >= NO_THREAD_PAUSE_S
    assert children() == [pid]


async def test_a_job_for_which_there_is_no_thread_can_be_cancelled_at_once(
    stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(thread, "NO_THREAD_PAUSE_S", 1000)
    executor = await stand.open_thread(abort_grace_s=1000)
    await stand.result("use_up_threads")
    await stand.step_of(stand.start("doze"))
    refused, keep = asyncio.Event(), executor._keep_a_while

    def watched(report: Report) -> None:
        keep(report)
        refused.set()

    monkeypatch.setattr(executor, "_keep_a_while", watched)
    assignment = stand.start("add", a=1)
    await refused.wait()
    given = stand.abort(assignment)
    assert await stand.report_of(assignment) == given
    assert not executor._retiring


async def test_a_kind_that_would_not_stop_twice_runs_apart_from_then_on(
    stand: Stand, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Its neighbours are handed back twice, and no more."""
    await stand.open_thread(abort_grace_s=0.2)
    for _ in range(2):
        stubborn = stand.start("ignore_cancelled")
        await stand.step_of(stubborn)
        given = stand.abort(stubborn)
        assert await stand.report_of(stubborn) == given
    said = [one.message for one in caplog.records if "in a process of its own" in one.message]
    assert len(said) == 1
    assert "jobs of kind 'ignore_cancelled' did not stop" in said[0]
    neighbour = stand.start("wait_for", path=str(tmp_path / "go"))
    shared = pid_in(await stand.step_of(neighbour))
    apart = [stand.start("ignore_cancelled") for _ in range(2)]
    pids = {pid_in(await stand.step_of(one)) for one in apart}
    assert len(pids) == 2
    assert shared not in pids
    for one in apart:
        given = stand.abort(one)
        assert await stand.report_of(one) == given
    assert await stand.result("pid") == shared
    (tmp_path / "go").touch()
    assert result_of(await stand.report_of(neighbour)) == shared
    assert len([one for one in caplog.records if "process of its own" in one.message]) == 1


async def test_jobs_that_run_apart_are_handed_back_and_closed_with_the_others(
    stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(thread, "MOST_KILLS", 0)
    executor = await stand.open_thread(abort_grace_s=1000)
    lone = stand.start("ignore_cancelled")
    await stand.step_of(lone)
    executor.kill()
    assert await stand.report_of(lone) == ReleaseReport(*lone.key)
    await stand.step_of(stand.start("ignore_cancelled"))
    await executor.close()
    assert children() == []


# stopping


async def test_a_job_may_look_whether_it_is_cancelled(stand: Stand, tmp_path: Path) -> None:
    await stand.open_thread(abort_grace_s=1000)
    assignment = stand.start("watch_cancelled", path=str(tmp_path / "note"))
    await stand.step_of(assignment)
    given = stand.abort(assignment)
    assert await stand.report_of(assignment) == given
    assert (tmp_path / "note").read_text() == "stopped by itself"


async def test_an_abort_right_after_the_start_stops_it(stand: Stand) -> None:
    await stand.open_thread(abort_grace_s=1000)
    assignment = stand.start("doze")
    # So that it is sent, but cannot have begun for long.
    await asyncio.sleep(0)
    given = stand.abort(assignment)
    assert await stand.report_of(assignment) == given


async def test_aborts_that_race_with_ends_hit_no_other_job(stand: Stand) -> None:
    """Of 200 jobs in one host every other one is aborted, at about the time when it ends."""
    await stand.open_thread(threads=200, abort_grace_s=1000)
    started = [stand.start("nap", seconds=0.0005 * turn, then=turn) for turn in range(200)]
    given = {}
    for before, assignment in zip(started[::2], started[1::2], strict=True):
        # This one ends half a millisecond later, if it is not stopped.
        await stand.report_of(before)
        given[assignment.key] = stand.abort(assignment)
    reports = [await stand.report_of(assignment) for assignment in started]
    for turn, report in enumerate(reports):
        assert report == given.get(report.key) or result_of(report) == turn


# a host that retires


async def test_neighbours_of_an_aborted_job_finish_and_new_jobs_go_to_a_new_host(
    stand: Stand, tmp_path: Path
) -> None:
    await stand.open_thread(abort_grace_s=1000)
    aborted = stand.start("doze")
    neighbour = stand.start("wait_for", path=str(tmp_path / "go"))
    old = pid_in(await stand.step_of(neighbour))
    await stand.step_of(aborted)
    given = stand.abort(aborted)
    assert await stand.report_of(aborted) == given
    new = await stand.result("pid")
    assert new != old
    (tmp_path / "go").touch()
    assert result_of(await stand.report_of(neighbour)) == old
    wait_gone(old)
    assert await stand.result("pid") == new
    assert len(stand.reports) == 4


async def test_neighbours_that_take_longer_than_the_grace_are_handed_back(
    stand: Stand, tmp_path: Path
) -> None:
    await stand.open_thread(abort_grace_s=0.2)
    aborted = stand.start("doze")
    neighbour = stand.start("wait_for", path=str(tmp_path / "never"))
    await stand.step_of(neighbour)
    await stand.step_of(aborted)
    given = stand.abort(aborted)
    assert await stand.report_of(aborted) == given
    assert await stand.report_of(neighbour) == ReleaseReport(*neighbour.key)


@pytest.mark.parametrize("kind", ["ignore_cancelled", "say_and_sleep"])
async def test_a_job_that_would_not_stop_is_reported_when_its_process_is_gone(
    stand: Stand, tmp_path: Path, kind: str
) -> None:
    await stand.open_thread(abort_grace_s=0.3)
    old = await stand.result("pid")
    stubborn = stand.start(kind)
    await stand.step_of(stubborn)
    neighbour = stand.start("wait_for", path=str(tmp_path / "never"))
    await stand.step_of(neighbour)
    given = stand.abort(stubborn)
    new = await stand.result("pid")
    assert new != old
    assert await stand.report_of(stubborn) == given
    assert old not in children()
    assert await stand.report_of(neighbour) == ReleaseReport(*neighbour.key)
    assert await stand.result("pid") == new


async def test_a_host_that_retires_is_replaced_without_a_pause(
    stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A host that crashed is given a pause that grows."""
    executor = await stand.open_thread(abort_grace_s=1000)
    monkeypatch.setattr(executor, "_pause_starts", lambda: pytest.fail("paused"))
    for _ in range(2):
        assignment = stand.start("doze")
        old = pid_in(await stand.step_of(assignment))
        stand.abort(assignment)
        await stand.report_of(assignment)
        wait_gone(old)
        while executor._retiring:
            assert await stand.result("add", a=1) == 1


async def test_a_worker_that_hands_its_jobs_back_starts_no_host_for_nothing(stand: Stand) -> None:
    """It leaves, most likely; if it does not, the next attempt starts a host."""
    executor = await stand.open_thread(abort_grace_s=1000)
    assignment = stand.start("doze")
    await stand.step_of(assignment)
    [old] = executor._hosts
    report = ReleaseReport(*assignment.key)
    executor.abort(report)
    assert await stand.report_of(assignment) == report
    await old.end()
    await asyncio.sleep(0)
    assert not executor._starting
    assert children() == []
    assert await stand.result("pid") != old.pid


async def test_two_jobs_of_one_host_are_aborted(stand: Stand) -> None:
    executor = await stand.open_thread(abort_grace_s=1000)
    started = [stand.start("doze") for _ in range(2)]
    pids = {await stand.step_of(assignment) for assignment in started}
    assert len(pids) == 1
    given = [stand.abort(assignment) for assignment in started]
    assert len(executor._retiring) == 1
    assert [await stand.report_of(assignment) for assignment in started] == given


async def test_kill_hands_everything_back_whatever_runs(stand: Stand, tmp_path: Path) -> None:
    await stand.open_thread(abort_grace_s=1000)
    retired = stand.start("ignore_cancelled")
    await stand.step_of(retired)
    neighbour = stand.start("wait_for", path=str(tmp_path / "never"))
    old = await stand.step_of(neighbour)
    given = stand.abort(retired)
    running = stand.start("say_and_sleep")
    assert await stand.step_of(running) != old
    stand.executor.kill()
    assert await stand.report_of(retired) == given
    assert await stand.report_of(neighbour) == ReleaseReport(*neighbour.key)
    assert await stand.report_of(running) == ReleaseReport(*running.key)


async def test_close_ends_threads_that_never_end_and_reports_nothing(stand: Stand) -> None:
    executor = await stand.open_thread(abort_grace_s=1000)
    retired = stand.start("ignore_cancelled")
    await stand.step_of(retired)
    begun = stand.start("say_and_sleep")
    await stand.step_of(begun)
    stand.abort(retired)
    running = stand.start("say_and_sleep")
    await stand.step_of(running)
    await executor.close()
    assert children() == []
    assert stand.reports == []
    await executor.open()
    assert await stand.result("add", a=1) == 1


# crashes


async def test_a_crash_is_a_crash_of_all_that_share_the_process(stand: Stand) -> None:
    await stand.open_thread()
    neighbour = stand.start("doze")
    await stand.step_of(neighbour)
    culprit = stand.start("segfault")
    for assignment in (neighbour, culprit):
        report = await stand.report_of(assignment)
        assert isinstance(report, CrashReport)
        assert "SIGSEGV" in error_of(report).message
        assert "2 jobs shared it" in error_of(report).message
    assert await stand.result("add", a=1) == 1


async def test_a_crash_of_a_host_that_retires_is_a_crash(stand: Stand, tmp_path: Path) -> None:
    await stand.open_thread(abort_grace_s=1000)
    aborted = stand.start("ignore_cancelled")
    await stand.step_of(aborted)
    neighbour = stand.start("wait_for", path=str(tmp_path / "never"))
    old = pid_in(await stand.step_of(neighbour))
    given = stand.abort(aborted)
    os.kill(old, signal.SIGSEGV)
    assert await stand.report_of(aborted) == given
    assert isinstance(await stand.report_of(neighbour), CrashReport)
    assert await stand.result("add", a=1) == 1


# what attempts say


def printed_by(stand: Stand, assignment: Assignment) -> list[str]:
    entries = stand.said_by(assignment, LogKind.TEXT)
    return [unpack_line(entry.data).text for entry in entries]


async def test_what_jobs_print_and_log_at_once_is_kept_apart(stand: Stand) -> None:
    await stand.open_thread()
    started = {name: stand.start("speak_in_turns_plain", name=name) for name in "abcdefgh"}
    for name, assignment in started.items():
        result_of(await stand.report_of(assignment))
        lines = printed_by(stand, assignment)
        assert lines == [text for n in range(3) for text in (f"{name} {n}", f"{name} logs")]


async def test_a_thread_that_a_job_starts_speaks_for_it_only_in_its_context(
    stand: Stand, capfd: pytest.CaptureFixture[str]
) -> None:
    await stand.open_thread()
    assignment = stand.start("speak_from_own_thread")
    result_of(await stand.report_of(assignment))
    assert printed_by(stand, assignment) == ["the job's"]
    assert "nobody's" in capfd.readouterr().out


# opening


async def test_no_host_is_started_for_an_app_without_jobs_in_threads(stand: Stand) -> None:
    known = {"add": KindInfo(Pool.PROCESS)}
    executor = ThreadExecutor(
        Hosting("jobs_app:app"), 4, stand._on_report, stand._on_log, lambda: known
    )
    stand.executor = executor
    await executor.open()
    assert children() == []
    assert executor.kinds == known
    # An attempt that comes all the same is run.
    assert await stand.result("add", a=1) == 1


async def test_a_host_is_started_for_an_app_with_jobs_in_threads(stand: Stand) -> None:
    known = {"doze": KindInfo(Pool.THREAD)}
    executor = ThreadExecutor(
        Hosting("jobs_app:app"), 4, stand._on_report, stand._on_log, lambda: known
    )
    stand.executor = executor
    await executor.open()
    assert len(children()) == 1
