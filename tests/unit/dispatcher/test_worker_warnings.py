"""What a worker says of an app that it can do nothing for."""

from __future__ import annotations

import pytest

from longshore.model.worker import KindInfo
from longshore.testing.virtual import run_virtually

from . import stage as staging
from .stage import Stage


@pytest.mark.parametrize(("kinds", "warnings"), [({}, 1), ({"work": KindInfo()}, 0)])
def test_a_worker_of_an_app_without_jobs_says_so(
    kinds: dict[str, KindInfo],
    warnings: int,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(staging, "KINDS", kinds)

    async def story() -> None:
        async with Stage() as stage:
            await stage.dispatcher()
            await stage.worker()

    run_virtually(story())
    lines = [one.getMessage() for one in caplog.records if one.name == "longshore.worker"]
    told = [line for line in lines if line.startswith("the app declares no jobs (0 kinds)")]
    assert len(told) == warnings, lines
