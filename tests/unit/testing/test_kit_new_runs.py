"""The test kit runs groups anew, as a dispatcher does."""

from __future__ import annotations

import longshore
from longshore.testing import run_inline

app = longshore.App("kit-runs")
BROKEN = [True]


@app.job
async def fetch(desk: str) -> str:
    return f"news of {desk}"


@app.job
async def press(text: str) -> str:
    if BROKEN[0]:
        raise ValueError("no paper")
    return text.upper()


def test_a_group_is_run_anew_in_the_kit() -> None:
    BROKEN[0] = True
    with run_inline(app) as kit:
        with app.group("paper") as group:
            text = group.add(fetch.call("city"))
            group.add(press.call(text.result))
        kit.drain()
        first = group.handle
        assert first.wait() == "failed"
        assert first.rerun_plan().keys == ("press",)
        BROKEN[0] = False
        second = first.rerun()
        assert kit.drain() == 1
        assert second.wait() == "succeeded"
        assert second.result("press") == "NEWS OF CITY"
        assert second.result("fetch") == "news of city"
        why = second.job("fetch").why()
        assert f"of group {first.number}, which this group is a new run of" in why
        assert first.status() == "failed"
