"""Jobs that share a run of their body, in a real host process. `test_gathering` has the rest."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from longshore.model.attempt import Assignment
from longshore.model.job import Reason
from longshore.model.log import unpack_line
from longshore.model.reports import CancelReport, CrashReport, NotBegunReport, ReleaseReport

from .stand import Stand, error_of, result_of

APP = "batches_app:app"


async def results(stand: Stand, *started: Assignment) -> list[Any]:
    return [result_of(await stand.report_of(one)) for one in started]


async def test_what_the_body_prints_is_in_the_log_of_the_first_and_the_others_say_so(
    stand: Stand,
) -> None:
    await stand.open_coroutine(app=APP)
    first, second = stand.start("speaks", words="a"), stand.start("speaks", words="b")
    assert await results(stand, first, second) == ["a", "b"]
    said = {
        one: [unpack_line(entry.data).text for entry in stand.said_by(one)]
        for one in (first, second)
    }
    assert said[first] == ["for all", "about a"]
    where = f"what this batch of 2 said is in the log of job {first.number}"
    assert said[second] == ["about b", where]


async def test_nobody_waits_once_every_slot_is_taken(
    stand: Stand, caplog: pytest.LogCaptureFixture
) -> None:
    await stand.open_coroutine(slots=2, app=APP)
    assert "batches of up to 100, but this worker runs 2" in caplog.text
    started = [stand.start("long_wait", numbers=number) for number in range(2)]
    assert await results(stand, *started) == [[0, 0, 1], [1, 0, 1]]


async def test_nobody_waits_once_the_worker_takes_no_more(stand: Stand) -> None:
    executor = await stand.open_coroutine(app=APP)
    waiting = stand.start("long_wait", numbers=1)
    stand_in = stand.start("soon", numbers=2)
    await stand.report_of(stand_in)
    executor.no_more()
    assert await results(stand, waiting) == [[1, 1]]


async def test_a_job_that_is_handed_back_before_its_batch_is_full_has_not_begun(
    stand: Stand,
) -> None:
    executor = await stand.open_coroutine(app=APP)
    waiting = stand.start("three", numbers=1)
    await stand.report_of(stand.start("soon", numbers=1))
    executor.abort(ReleaseReport(*waiting.key))
    assert isinstance(await stand.report_of(waiting), NotBegunReport)


async def test_one_job_that_is_cancelled_ends_and_the_body_goes_on(
    stand: Stand, tmp_path: Path
) -> None:
    await stand.open_coroutine(app=APP)
    until = tmp_path / "until"
    gone, stays = (stand.start("holds", words=str(until)) for _ in range(2))
    await stand.step_of(stays)
    stand.abort(gone)
    assert isinstance(await stand.report_of(gone), CancelReport)
    until.touch()
    assert await results(stand, stays) == ["False"]


async def test_the_time_of_all_runs_from_the_beginning_of_the_body(stand: Stand) -> None:
    executor = await stand.open_coroutine(app=APP)
    began: list[int] = []
    executor.on_begun = lambda token, ago_s: began.append(token)
    first = stand.start("never_ends", timeout_s=0.05, words="a")
    other = stand.start("soon", timeout_s=0.05, numbers=1)
    await stand.report_of(other)
    assert began == [other.token]
    assert not [report for report in stand.reports if report.key == first.key]
    second = stand.start("never_ends", timeout_s=0.05, words="b")
    for one in (first, second):
        assert error_of(await stand.report_of(one)).reason is Reason.TIMED_OUT
    assert began == [other.token, first.token, second.token]


async def test_a_crash_is_told_of_all_that_shared_the_process(stand: Stand) -> None:
    await stand.open_coroutine(app=APP)
    started = [stand.start("dies", words=word) for word in "ab"]
    for one in started:
        assert isinstance(await stand.report_of(one), CrashReport)
    assert await stand.result("soon", numbers=1) == [1, 1]
