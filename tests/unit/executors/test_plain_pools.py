"""What plain jobs in processes and plain jobs in threads have in common."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import uvloop

from longshore.errors import AppError
from longshore.model.job import Reason
from longshore.model.reports import CrashReport, FailureReport, ReleaseReport

from .stand import Stand, error_of, failure_in, result_of

Open = Callable[..., Awaitable[Any]]
"""Opens the executor of a pool."""

# A job in a process can be stopped in the middle of a long sleep, one in a thread after it.
PROCESS, THREAD = "open_child", "open_thread"


@pytest.fixture
def open_pool(stand: Stand, pool: str) -> Open:
    opened: Open = getattr(stand, pool)
    return opened


both = pytest.mark.parametrize("pool", [PROCESS, THREAD])


@pytest.mark.parametrize(("pool", "kind"), [(PROCESS, "say_and_sleep"), (THREAD, "doze")])
def test_the_same_on_uvloop(pool: str, kind: str) -> None:
    uvloop.run(_run_abort_and_crash(pool, kind))


async def _run_abort_and_crash(pool: str, kind: str) -> None:
    stand = Stand()
    await getattr(stand, pool)(2)
    assert await stand.result("add", a=1) == 1
    waiting = stand.start(kind)
    await stand.step_of(waiting)
    given = stand.abort(waiting)
    assert await stand.report_of(waiting) == given
    assert isinstance(await stand.run("segfault"), CrashReport)
    assert await stand.result("add", a=2) == 2
    await stand.executor.close()


@both
async def test_an_exception_is_told_with_the_jobs_own_frames_only(
    stand: Stand, open_pool: Open
) -> None:
    await open_pool()
    error = error_of(await stand.run("raise_sync"))
    assert (error.reason, error.type, error.message) == (Reason.RAISED, "LookupError", "outer")
    assert "jobs_app.py" in error.traceback
    assert "KeyError: 'inner'" in error.traceback
    assert "longshore/executors" not in error.traceback
    assert "threading.py" not in error.traceback


@both
@pytest.mark.parametrize("kind", ["unpackable", "too_large"])
async def test_a_result_that_cannot_be_stored_names_the_job(
    stand: Stand, open_pool: Open, kind: str
) -> None:
    await open_pool()
    report = await stand.run(kind)
    assert failure_in(report).final
    assert error_of(report).reason is Reason.INVALID_RESULT
    assert f"the result of job '{kind}'" in error_of(report).message


@both
async def test_arguments_that_do_not_fit_fail_for_good(stand: Stand, open_pool: Open) -> None:
    await open_pool()
    report = await stand.run("add", b=1)
    assert failure_in(report).final
    assert error_of(report).reason is Reason.INVALID_ARGUMENTS


@both
async def test_an_async_job_is_run_too(stand: Stand, open_pool: Open) -> None:
    await open_pool()
    assert await stand.result("add_async", a=1, b=1) == 2


# stopping


@pytest.mark.parametrize(
    ("pool", "kind"), [(PROCESS, "spin"), (PROCESS, "sleep"), (THREAD, "spin"), (THREAD, "doze")]
)
async def test_a_timeout_stops_a_job_at_once(stand: Stand, open_pool: Open, kind: str) -> None:
    await open_pool(abort_grace_s=1000)
    report = await stand.run(kind, timeout_s=0.1)
    assert isinstance(report, FailureReport)
    assert error_of(report).reason is Reason.TIMED_OUT
    assert error_of(report).message == "took longer than its timeout of 0.1 s"
    assert await stand.result("add", a=1) == 1


@pytest.mark.parametrize(("pool", "kind"), [(PROCESS, "clean_up"), (THREAD, "doze")])
async def test_an_aborted_job_cleans_up_and_gets_the_given_report(
    stand: Stand, open_pool: Open, kind: str, tmp_path: Path
) -> None:
    await open_pool(abort_grace_s=1000)
    assignment = stand.start(kind, path=str(tmp_path / "note"))
    await stand.step_of(assignment)
    given = stand.abort(assignment)
    assert await stand.report_of(assignment) == given
    assert (tmp_path / "note").read_text() == "cleaned up, cancelled: True"


@pytest.mark.parametrize(("pool", "kind"), [(PROCESS, "say_and_sleep"), (THREAD, "doze")])
async def test_the_first_abort_decides_what_is_reported(
    stand: Stand, open_pool: Open, kind: str
) -> None:
    """A job that ran out of time did so, though its worker is drained before it has stopped."""
    await open_pool()
    assignment = stand.start(kind)
    await stand.step_of(assignment)
    first = stand.abort(assignment)
    stand.executor.abort(ReleaseReport(*assignment.key))
    assert await stand.report_of(assignment) == first


# forks


@both
@pytest.mark.parametrize("kind", ["fork_and_return", "fork_and_raise"])
async def test_a_forked_copy_reports_nothing(stand: Stand, open_pool: Open, kind: str) -> None:
    await open_pool()
    assert await stand.result(kind) == "original"
    assert await stand.result("add", a=1) == 1
    assert len(stand.reports) == 2
    assert stand.logs == []


@both
async def test_a_forked_copy_that_says_something_goes_on(stand: Stand, open_pool: Open) -> None:
    await open_pool()
    assert await stand.result("fork_and_speak") == 7
    assert stand.logs == []


# what attempts say


@both
async def test_progress_is_thinned_out_and_the_last_is_kept(stand: Stand, open_pool: Open) -> None:
    await open_pool()
    assignment = stand.start("progress_often", times=100_000)
    result_of(await stand.report_of(assignment))
    last = await stand.progress_of(assignment, 100_000)
    assert (last.total, last.text) == (100_000, "row 100000")
    entries = stand.said_by(assignment)
    assert [entry.seq for entry in entries] == list(range(1, len(entries) + 1))
    assert len(entries) < 1000


@both
async def test_the_newest_progress_is_told_even_if_the_job_goes_silent(
    stand: Stand, open_pool: Open
) -> None:
    await open_pool()
    assignment = stand.start("progress_then_sleep")
    assert (await stand.progress_of(assignment, 2)).done == 2


# opening


@both
async def test_an_app_that_cannot_be_imported_makes_open_fail(open_pool: Open) -> None:
    with pytest.raises(AppError, match="there is no module 'nonesuch'"):
        await open_pool(1, "nonesuch:app")
