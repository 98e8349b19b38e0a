"""The kit for users' tests: what runs, when, and what is said of it."""

from __future__ import annotations

import asyncio
import builtins
import logging
import os
import subprocess
import sys
import tomllib
from datetime import timedelta
from importlib import import_module
from pathlib import Path

import pytest

import longshore
from longshore.errors import (
    InvalidArguments,
    InvalidInput,
    JobCancelled,
    JobFailed,
    NotFinished,
    WouldBlock,
    WrongState,
)
from longshore.model.job import CancelVerdict
from longshore.testing import Kit, run_inline

app = longshore.App("harbour")
other = longshore.App("elsewhere")
ran: list[str] = []


@app.job
def note(text: str) -> str:
    ran.append(text)
    return text


@app.job
async def double(number: int) -> int:
    await asyncio.sleep(0)
    longshore.current().step("doubling")
    return number * 2


@app.job(retries=1, backoff_s=60)
def fail(ctx: longshore.Context) -> None:
    ctx.submit(note.call("never"))
    raise ValueError(f"attempt {ctx.attempt}")


@app.job
def relay(ctx: longshore.Context, text: str) -> None:
    ctx.submit(note.call(text))
    ctx.submit(strange.call())


@app.job
def again(ctx: longshore.Context) -> None:
    ctx.submit(again.call())


@app.job
async def ask(number: int) -> int:
    handle = await double.submit_async(number)
    return await handle.result_async()


@app.job
async def wait(ctx: longshore.Context) -> int:
    if ctx.attempt < 3:
        raise longshore.Snooze(timedelta(hours=1), "nobody is there")
    return ctx.attempt


@other.job
def strange() -> None:
    pass


@pytest.fixture(autouse=True)
def nothing_ran() -> None:
    ran.clear()


def test_jobs_run_in_the_order_of_their_priorities() -> None:
    with run_inline(app) as kit:
        for priority in (0, 5, 1):
            note.options(priority=priority).submit(str(priority))
        assert ran == []
        assert kit.drain() == 3
    assert ran == ["5", "1", "0"]


def test_a_submitted_job_equals_its_call_on_the_same_terms_only() -> None:
    with run_inline(app) as kit:
        note.options(labels=["x"]).submit("a")
        assert kit.submitted(note) == [note.options(labels=["x"]).call(text="a")]
        assert kit.submitted("note") != [note.call("a")]
        assert kit.submitted(note) != [note.options(labels=["x"]).call("b")]
        assert repr(kit.submitted()) == "[<note(text='a') with labels=('x',)>]"
        assert kit.submitted(double) == []


def test_a_callback_is_submitted_and_not_sent() -> None:
    with run_inline(app) as kit:
        double.options(callback="https://example.com/hook").submit(2)
        kit.drain()
        [callback] = kit.submitted("longshore.callback")
        assert callback.arguments["url"] == "https://example.com/hook"
        assert '"result":4' in callback.arguments["body"]


def test_bad_arguments_are_refused_where_they_are_submitted() -> None:
    with run_inline(app) as kit:
        with pytest.raises(InvalidArguments, match="argument 'number'"):
            double.submit("two")  # type: ignore[arg-type]
        assert kit.submitted() == []


def test_a_unique_key_leads_to_the_job_that_has_it() -> None:
    with run_inline(app) as kit:
        first = note.options(unique_key="k").submit("a")
        second = note.options(unique_key="k").submit("b")
        assert second.existing
        assert second.id == first.id
        kit.drain()
        assert not note.options(unique_key="k").submit("c").existing


def test_what_a_failed_job_submits_is_not_submitted_and_its_backoff_passes() -> None:
    with run_inline(app) as kit:
        handle = fail.submit()
        before = kit.now
        assert kit.drain() == 2
        assert kit.now - before == timedelta(seconds=60)
        with pytest.raises(JobFailed, match="ValueError: attempt 2") as caught:
            handle.result()
        assert "in fail" in caught.value.traceback
        assert kit.submitted(note) == []


def test_a_job_that_asks_for_a_retry_and_has_none_says_what_to_give_it() -> None:
    harbour = longshore.App("harbour")

    @harbour.job
    def wait_for_tide(after_s: float | None) -> None:
        raise longshore.Retry("later", after_s=after_s)

    with run_inline(harbour) as kit:
        handles = [wait_for_tide.submit(after_s) for after_s in (5, None)]
        kit.drain()
        for handle in handles:
            with pytest.raises(
                JobFailed, match=r"given none; give it more with @app\.job\(retries=…\)"
            ):
                handle.result()
            assert "asked for a retry" in handle.job().history[-1].info


def test_only_the_errors_of_retry_on_are_tried_again() -> None:
    harbour = longshore.App("harbour")

    @harbour.job(retries=2, retry_on=ConnectionError, fail_on=ConnectionRefusedError)
    def call(error: str) -> None:
        raise getattr(builtins, error)("no answer")

    @harbour.job(retries=2, fail_on=ValueError)
    async def parse(error: str) -> None:
        raise getattr(builtins, error)("no number")

    expected = {
        call: {"ConnectionResetError": 3, "ConnectionRefusedError": 1, "ValueError": 1},
        parse: {"KeyError": 3, "UnicodeError": 1},
    }
    with run_inline(harbour) as kit:
        for job, attempts in expected.items():
            handles = {error: job.submit(error) for error in attempts}
            kit.drain()
            assert {error: one.job().attempt for error, one in handles.items()} == attempts


def test_a_snoozed_job_is_run_again_after_its_time_and_costs_no_retry() -> None:
    with run_inline(app) as kit:
        handle, before = wait.submit(), kit.now
        assert kit.drain(retries=False) == 1
        assert "by itself: snoozed for 1 h 0 min: nobody is there" in handle.why()
        assert kit.drain() == 2
        assert handle.result() == 3
        assert kit.now - before == timedelta(hours=2)
        job = handle.job()
        assert (job.failures, job.attempt) == (0, 3)
        assert [entry.info for entry in job.history if entry.info] == (
            ["snoozed for 1 h 0 min: nobody is there"] * 2
        )


def test_a_delayed_job_waits_for_its_time_and_not_for_others_retries() -> None:
    with run_inline(app) as kit:
        late = note.options(delay_s=3600).submit("late")
        fail.submit()
        kit.drain()
        assert ran == []
        with pytest.raises(NotFinished, match=r"delayed until .* kit\.advance\(seconds\)"):
            late.result()
        kit.advance(timedelta(hours=1))
        kit.drain()
        assert late.result(timeout_s=1) == "late"


def test_a_job_that_nobody_serves_says_so() -> None:
    with run_inline(app) as kit:
        relay.submit("x")
        assert kit.drain() == 2
        [left] = kit.submitted(strange)
        with pytest.raises(NotFinished, match="no worker serves kind 'strange'"):
            app.handle(left.id).result()


def test_two_apps_share_a_kit_unless_their_kinds_clash() -> None:
    with run_inline(app, other) as kit:
        relay.submit("x")
        assert kit.drain() == 3
    clashing = longshore.App("clashing")
    clashing.job(kind="note")(lambda: None)
    with pytest.raises(InvalidInput, match="'note'"), run_inline(app, clashing):
        pass


def test_a_cancelled_job_does_not_run() -> None:
    with run_inline(app) as kit:
        handle = note.submit("a")
        assert handle.cancel() is CancelVerdict.CANCELLED
        assert kit.drain() == 0
        with pytest.raises(JobCancelled):
            handle.result()


def test_a_running_job_that_is_cancelled_is_told_so_and_ends_as_cancelled() -> None:
    own = longshore.App("own")
    seen: list[object] = []

    @own.job
    def plain(ctx: longshore.Context) -> None:
        own.handle(ctx.id).cancel()
        seen.append(ctx.cancelled)

    @own.job
    async def coroutine(ctx: longshore.Context) -> None:
        await (await own.handle_async(ctx.id)).cancel_async()
        await asyncio.Event().wait()

    with run_inline(own) as kit:
        handles = plain.submit(), coroutine.submit()
        kit.drain()
        assert seen == [True]
        assert [handle.status() for handle in handles] == [longshore.JobState.CANCELLED] * 2


def test_a_plain_job_that_took_too_long_has_timed_out() -> None:
    own = longshore.App("own")
    with run_inline(own) as kit:
        slow = own.job(kind="slow", timeout_s=30)(lambda: kit.advance(31))
        handle = slow.submit()
        kit.drain()
        with pytest.raises(JobFailed, match="timeout of 30 s"):
            handle.result()


def test_a_coroutine_that_takes_too_long_is_stopped() -> None:
    own = longshore.App("own")

    @own.job(timeout_s=0.01)
    async def hang() -> None:
        await asyncio.Event().wait()

    with run_inline(own) as kit:
        hang.submit()
        with pytest.raises(JobFailed, match=r"timeout of 0\.01 s"):
            kit.drain(raise_failures=True)


def test_a_job_that_submits_itself_does_not_run_for_ever() -> None:
    with run_inline(app) as kit:
        again.submit()
        with pytest.raises(WrongState, match=r"drain ran 5 attempts.*most="):
            kit.drain(most=5)
        assert kit.submitted(again)[-1].submission.kind == "again"
        note.options(priority=1).submit("x")
        with pytest.raises(WrongState):
            kit.drain(most=1)
        assert ran == ["x"]


def test_an_eager_kit_runs_jobs_inside_jobs() -> None:
    with run_inline(app, eager=True):
        assert ask.submit(4).result() == 8
        assert double.submit(2).job().step == "doubling"


async def test_an_eager_kit_serves_tasks_side_by_side() -> None:
    """A job may be run by the drain of another task, and is waited for all the same."""

    async def one(number: int) -> int:
        for _ in range(number):
            await asyncio.sleep(0)
        return await (await double.submit_async(number)).result_async()

    with run_inline(app, eager=True):
        assert await asyncio.gather(*map(one, range(20))) == list(range(0, 40, 2))
        handle = await fail.submit_async()
        with pytest.raises(JobFailed):
            await handle.result_async()


async def test_in_an_event_loop_drain_is_awaited() -> None:
    with run_inline(app) as kit:
        handles = await app.submit_many_async([double.call(1), double.call(2)])
        plain = await note.submit_async("a")
        with pytest.raises(WouldBlock, match="drain_async"):
            kit.drain()
        assert await kit.drain_async() == 3
        assert [n async for n in app.results_async(handles)] == [2, 4]
        assert await plain.result_async() == "a"


def test_a_handle_of_a_kit_that_is_over_says_so() -> None:
    with run_inline(app) as kit:
        handle = note.submit("a")
        kit.drain()
    with pytest.raises(WrongState, match="the test kit that had this job is over"):
        handle.result()


def test_an_app_is_in_one_kit_at_a_time_and_free_after_it() -> None:
    with run_inline(app):
        with pytest.raises(WrongState, match="'harbour' is in another test kit"), run_inline(app):
            pass
        note.submit("a")
    with run_inline(app) as kit:
        assert kit.submitted() == []


def test_time_does_not_go_back() -> None:
    """And it goes no further than there are times."""
    with run_inline(app) as kit:
        for odd in (-1, float("nan"), float("inf"), 1e308, timedelta.max, 1e11):
            with pytest.raises(InvalidInput, match="give 0 or more, and at most 100 years"):
                kit.advance(odd)


def test_importing_the_package_loads_no_kit_and_the_kit_needs_no_pytest() -> None:
    code = (
        "import sys, longshore.testing as t; assert 'longshore.testing.kit' not in sys.modules;"
        "t.run_inline; assert not {'pytest', 'asyncpg', 'sqlite3'} & sys.modules.keys()"
    )
    subprocess.run([sys.executable, "-c", code], env=dict(os.environ), check=True)


def test_pytest_is_told_of_the_plugin() -> None:
    project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())["project"]
    module = import_module(project["entry-points"]["pytest11"]["longshore"])
    assert module.longshore_kit is not None
    assert Kit.__module__ == "longshore.testing.kit"


def test_a_scratch_folder_is_gone_and_resources_are_given_by_the_test() -> None:
    own = longshore.App("own")

    @own.resource
    def pool() -> str:
        raise AssertionError("a test gives its own")

    @own.job
    def write(ctx: longshore.Context, pool: str = longshore.GIVEN) -> str:
        (ctx.scratch / "file").write_text(pool)
        return str(ctx.scratch)

    with own.given(pool="a pool of the test"), run_inline(own) as kit:
        handle = write.submit()
        kit.drain()
        assert not Path(handle.result()).exists()


def test_a_job_that_takes_devices_has_some() -> None:
    own = longshore.App("own")

    @own.job(resources={"cpu": 1, "gpu": 2})
    def train(ctx: longshore.Context) -> list[int]:
        return list(ctx.devices["gpu"])

    with run_inline(own) as kit:
        handle = train.submit()
        kit.drain()
        assert handle.result() == [0, 1]


@app.job(retries=1, backoff_s=1)
def speak(ctx: longshore.Context) -> None:
    print("attempt", ctx.attempt)
    ctx.log.info("bound")
    logging.getLogger("harbour").warning("logged")
    ctx.step("on")
    if ctx.attempt == 1:
        raise ValueError("again")


@app.job
async def speak_async(name: str) -> None:
    print(name, end=" ")
    await asyncio.sleep(0)
    await asyncio.to_thread(print, "in a thread")
    print("goes on", file=sys.stderr)
    if name == "outer":
        await speak_async.submit_async("inner")


def test_what_jobs_print_and_log_is_in_their_logs_and_seen_as_ever(
    capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    real = sys.stdout, sys.stderr, logging.Logger.callHandlers
    with run_inline(app) as kit:
        handle = speak.submit()
        kit.drain()
        first = [(line.stream, line.level, line.text) for line in handle.logs(attempt=1)]
        assert first == [
            ("stdout", "", "attempt 1"),
            ("log", "INFO", "bound"),
            ("log", "WARNING", "logged"),
            ("step", "", "on"),
        ]
        assert [line.text for line in handle.logs(2)] == ["attempt 2", "bound", "logged", "on"]
        assert len(handle.logs()) == 8
    assert capsys.readouterr().out == "attempt 1\nattempt 2\n"
    assert caplog.messages.count("logged") == 2
    assert (sys.stdout, sys.stderr, logging.Logger.callHandlers) == real


async def test_jobs_inside_jobs_have_logs_of_their_own() -> None:
    with run_inline(app, eager=True) as kit:
        outer = await speak_async.submit_async("outer")
        inner = await app.handle_async(kit.submitted(speak_async)[1].id)
        for handle, name in ((outer, "outer"), (inner, "inner")):
            lines = [line.text for line in await handle.logs_async()]
            assert lines == ["in a thread", "goes on", f"{name} "]


def test_jobs_are_listed_queues_paused_and_ended_jobs_pruned() -> None:
    async def story(kit: Kit) -> None:
        connection = app._access.connection()
        await note.submit_async("a")
        await connection.pause("default")
        assert await kit.drain_async() == 0
        [queue] = await connection.queues()
        assert queue.paused
        await connection.pause("default", False)
        assert await kit.drain_async() == 1
        [job] = (await connection.jobs()).jobs
        assert job.state is longshore.JobState.SUCCEEDED
        dry = await connection.prune(keep=0, dry_run=True)
        assert dry == await connection.prune(keep=0)
        assert dry.removed == {longshore.JobState.SUCCEEDED: 1}
        assert (await connection.jobs()).jobs == ()
        assert await connection.kind("double") is not None
        assert await connection.kind("nothing") is None
        with pytest.raises(WrongState, match="a test kit has no fleet"):
            await connection.workers()

    with run_inline(app) as kit:
        asyncio.run(story(kit))


async def test_what_is_enqueued_in_a_transaction_is_submitted_to_the_kit() -> None:
    with run_inline(app) as kit:
        handle = await app.enqueue_async(object(), double.call(1))
        assert kit.submitted() == [double.call(1)]
        await kit.drain_async()
        assert await handle.result_async() == 2
        with pytest.raises(InvalidInput, match="is not a call"):
            await app.enqueue_async(object(), note)  # type: ignore[arg-type]


def test_the_same_without_an_event_loop() -> None:
    with run_inline(app) as kit:
        handles = app.enqueue_many(object(), [double.call(1), double.call(2)])
        kit.drain()
        assert list(app.results(handles)) == [2, 4]
