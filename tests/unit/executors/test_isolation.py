"""`isolation="process"`: a coroutine in a process of its own, with all that coroutines have."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from longshore.model.job import LogKind
from longshore.model.log import unpack_line
from longshore.model.worker import Pool

from .stand import Stand

APP = """
import asyncio
import os

import longshore

app = longshore.App("apart")


@app.resource
async def home() -> asyncio.AbstractEventLoop:
    return asyncio.get_running_loop()


@app.middleware
async def around(ctx, call_next):
    return [*await call_next(), ctx.kind]


@app.job(isolation="process")
async def alone(home: object = longshore.GIVEN) -> list[object]:
    await asyncio.sleep(0)
    return [os.getpid(), asyncio.get_running_loop() is home]


@app.job(isolation="process")
async def wait_for_ever(home: object = longshore.GIVEN) -> list[object]:
    longshore.current().step("begun")
    try:
        await asyncio.sleep(1000)
    finally:
        await asyncio.sleep(0)
        longshore.current().step("cleaned up")
    return []


@app.job
async def together() -> list[object]:
    return []
"""


@pytest.fixture
def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "apart.py").write_text(APP)
    monkeypatch.chdir(tmp_path)
    return "apart:app"


async def test_a_coroutine_may_have_a_process_of_its_own(stand: Stand, app: str) -> None:
    executor = await stand.open_child(app=app)
    assert executor.kinds["alone"].pool == Pool.PROCESS
    assert executor.kinds["together"].pool == Pool.COROUTINE
    pid, on_its_loop, kind = await stand.result("alone")
    assert (on_its_loop, kind) == (True, "alone")
    assert pid != os.getpid()
    assert await stand.result("alone") == [pid, True, "alone"]


async def test_it_is_stopped_at_an_await_and_cleans_up(stand: Stand, app: str) -> None:
    await stand.open_child(app=app, abort_grace_s=1000)
    assignment = stand.start("wait_for_ever")
    await stand.step_of(assignment)
    given = stand.abort(assignment)
    assert await stand.report_of(assignment) == given
    steps = stand.said_by(assignment, LogKind.STEP)
    assert [unpack_line(entry.data).text for entry in steps] == ["begun", "cleaned up"]
