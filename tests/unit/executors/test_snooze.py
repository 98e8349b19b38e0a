"""`Snooze`: what a job says that is to be run later."""

from __future__ import annotations

from longshore.model.reports import SnoozeReport

from .stand import Stand


async def test_a_job_is_handed_back_with_when_and_why(stand: Stand) -> None:
    await stand.open_child()
    report = await stand.run("snooze", after_s=12.5)
    assert report == SnoozeReport(report.job, report.token, 12.5, "not yet")
