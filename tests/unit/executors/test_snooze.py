"""`Snooze`: what a job says that is to be run later."""

from __future__ import annotations

from datetime import timedelta

import pytest

from longshore import Snooze
from longshore.errors import InvalidInput
from longshore.wire.messages import ReportKind

from .stand import Stand, error_of


async def test_a_job_is_handed_back_with_when_and_why(stand: Stand) -> None:
    await stand.open_child()
    report = await stand.run("snooze", after_s=12.5)
    assert (report.kind, report.retry_after_s, report.note) == (
        ReportKind.RELEASED,
        12.5,
        "not yet",
    )
    assert (report.error, report.final) == (None, False)


async def test_a_snooze_may_be_returned_too(stand: Stand) -> None:
    await stand.open_coroutine()
    report = await stand.run("return_snooze", after_s=3)
    assert (report.kind, report.retry_after_s, report.note) == (ReportKind.RELEASED, 3.0, "")


async def test_an_impossible_snooze_is_the_jobs_own_mistake(stand: Stand) -> None:
    await stand.open_child()
    report = await stand.run("snooze", after_s=-1)
    assert report.kind is ReportKind.FAILED
    assert error_of(report).type == "longshore.errors.InvalidInput"


def test_a_duration_is_given_once_and_within_bounds() -> None:
    assert Snooze(timedelta(minutes=1)).after_s == 60.0
    assert Snooze(after_s=0).after_s == 0.0
    for wrong in (-1, float("nan"), float("inf"), 367 * 24 * 3600):
        with pytest.raises(InvalidInput, match="MAX_SNOOZE_S"):
            Snooze(wrong)
    with pytest.raises(InvalidInput, match="give one of the two"):
        Snooze()
    with pytest.raises(InvalidInput, match="give one of the two"):
        Snooze(1, after_s=1)
