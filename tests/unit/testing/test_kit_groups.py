"""Groups in the kit for users' tests."""

from __future__ import annotations

import asyncio

import pytest

import longshore
from longshore import App, GroupHandle, GroupState, JobState
from longshore.errors import JobFailed, NotFinished, WrongState
from longshore.model.group import GroupVerdict
from longshore.testing import run_inline


@pytest.fixture
def app() -> App:
    """An app without jobs."""
    return App("harbour")


def test_a_group_runs_inline_in_order(app: App) -> None:
    order = list[str]()

    @app.job
    def step(name: str) -> str:
        order.append(name)
        return name.upper()

    with run_inline(app) as kit:
        with app.group("diamond") as group:
            top = group.add(step.call("top"), key="top")
            sides = [group.add(step.call(name), after=top) for name in ("left", "right")]
            group.add(step.options(delay_s=60).call("bottom"), after=sides, key="bottom")
        assert group.handle.status() is GroupState.RUNNING
        assert kit.drain() == 3
        with pytest.raises(NotFinished, match=r"group \d+ \(diamond\) has not ended: 1 delayed"):
            group.handle.wait()
        kit.advance(60)
        assert kit.drain() == 1
        assert group.handle.wait() is GroupState.SUCCEEDED
        assert order == ["top", "left", "right", "bottom"]
        assert top.handle.result() == "TOP"
        assert app.group_handle(group.handle.number).result("bottom") == "BOTTOM"


def test_a_failure_in_a_group_reaches_those_that_depend_on_it(app: App) -> None:
    @app.job
    def fail() -> None:
        raise OSError("no room")

    @app.job
    def clean() -> str:
        return "clean"

    with run_inline(app) as kit:
        with app.group("g") as group:
            failing = group.add(fail.call())
            below = group.add(clean.call(), after=failing)
            mend = group.add(clean.call(), after=failing, on="failed", key="mend")
            tidy = group.add(clean.call(), after=[below, mend], on="ended", key="tidy")
        assert below.handle.why() == "waiting for 1 of 1: 'fail' (ready)"
        kit.drain()
        assert group.handle.wait() is GroupState.FAILED
        assert (mend.handle.result(), tidy.handle.result()) == ("clean", "clean")
        assert below.handle.why().endswith(", because 'fail' failed: OSError: no room")
        with pytest.raises(JobFailed, match="ended as dependency_failed"):
            below.handle.result()


def test_a_group_is_cancelled_inline_with_what_runs(app: App) -> None:
    groups = list[GroupHandle]()

    @app.job
    async def stop_all() -> None:
        await groups[0].cancel_async()
        await asyncio.Event().wait()

    with run_inline(app) as kit:
        with app.group("g") as group:
            first = group.add(stop_all.call())
            group.add(stop_all.call(), after=first)
        groups.append(group.handle)
        kit.drain()
        assert group.handle.wait() is GroupState.CANCELLED
        assert {node.state for node in group.handle.jobs()} == {JobState.CANCELLED}


def test_a_job_cancelled_alone_ends_what_waits_for_it_inline(app: App) -> None:
    @app.job
    def work() -> None:
        pass

    with run_inline(app):
        with app.group("g") as group:
            first = group.add(work.call())
            second = group.add(work.call(), after=first)
        first.handle.cancel()
        assert second.handle.status() is JobState.DEPENDENCY_FAILED
        assert group.handle.wait() is GroupState.FAILED


async def test_an_eager_kit_runs_a_group_when_it_is_submitted(app: App) -> None:
    @app.job
    async def work(n: int) -> int:
        return n

    with run_inline(app, eager=True):
        async with app.group("g") as group:
            first = group.add(work.call(1))
            group.add(work.call(2), after=first)
        assert await group.handle.wait_async() is GroupState.SUCCEEDED
        assert await group.handle.result_async("work-2") == 2


def test_results_flow_inline_and_one_that_cannot_be_built_fails_its_job(app: App) -> None:
    @app.job
    def fetch(url: str) -> dict[str, list[str]]:
        return {"pages": [url, url]}

    @app.job
    def count(pages: list[str]) -> int:
        return len(pages)

    with run_inline(app) as kit:
        with app.group("g") as group:
            fetched = group.add(fetch.call("u"))
            counted = group.add(count.call(fetched.result["pages"]))
            lost = group.add(count.call(fetched.result["page"]), key="lost")
        with pytest.raises(JobFailed, match=r"has no 'page'"):
            kit.drain(raise_failures=True)
        kit.drain()
        assert counted.handle.result() == 2
        with pytest.raises(JobFailed, match=r"has no 'page': it is a map with 'pages'") as raised:
            lost.handle.result()
        assert raised.value.reason == "invalid_arguments"
        assert group.handle.wait() is GroupState.FAILED


def test_a_group_is_paused_and_retried_inline(app: App) -> None:
    paper = list[str]()

    @app.job
    def press(copies: int) -> int:
        if not paper:
            raise longshore.Fail("no paper")
        return copies

    with run_inline(app) as kit:
        with app.group("g") as group:
            pressed = group.add(press.call(5))
            group.add(press.call(pressed.result), key="again")
        assert group.handle.pause() is GroupVerdict.PAUSED
        assert kit.drain() == 0
        assert group.handle.resume() is GroupVerdict.RUNNING
        kit.drain()
        assert group.handle.wait() is GroupState.FAILED
        paper.append("a roll")
        assert group.handle.retry(plan=True).reopened == ("press", "again")
        assert group.handle.status() is GroupState.FAILED
        assert group.handle.retry().reopened == ("press", "again")
        kit.drain()
        assert group.handle.wait() is GroupState.SUCCEEDED
        assert group.handle.result("again") == 5
        with pytest.raises(WrongState, match="cannot be retried: there is nothing to retry"):
            group.handle.retry()
        assert group.handle.retry(from_="again").reopened == ("again",)
        kit.drain()
        assert group.handle.wait() is GroupState.SUCCEEDED


def test_handles_see_the_round_that_a_retry_opens(app: App) -> None:
    counter = iter(range(10))

    @app.job
    def press() -> int:
        return next(counter)

    with run_inline(app) as kit:
        with app.group("g") as group:
            pressed = group.add(press.call())
        held, other = pressed.handle, app.group_handle(group.handle.number)
        kit.drain()
        by_number = app.handle(held.job().number)
        [ended] = app.as_ended([held])
        assert (held.result(), by_number.result(), other.wait()) == (0, 0, "succeeded")
        group.handle.retry("press")
        for handle in (held, by_number, ended):
            with pytest.raises(NotFinished):
                handle.result(timeout_s=0)
        with pytest.raises(NotFinished):
            other.wait(timeout_s=0)
        kit.drain()
        assert [handle.result() for handle in (held, by_number, ended)] == [1, 1, 1]


def test_a_job_that_runs_again_by_hand_submits_anew(app: App) -> None:
    told = list[str]()

    @app.job
    def tell(text: str) -> None:
        told.append(text)

    @app.job
    def press(ctx: longshore.Context) -> None:
        ctx.submit(tell.call("pressed"))

    with run_inline(app) as kit:
        with app.group("g") as group:
            group.add(press.call())
        kit.drain()
        group.handle.retry("press")
        kit.drain()
        assert told == ["pressed", "pressed"]


def test_a_job_cannot_submit_one_that_takes_results(app: App) -> None:
    @app.job
    def work(n: int) -> int:
        return n

    call = work.call(app.group("g").add(work.call(1)).result)

    @app.job
    def order(ctx: longshore.Context) -> None:
        ctx.submit(call)

    with run_inline(app) as kit:
        ordered = order.submit()
        kit.drain()
        with pytest.raises(JobFailed, match="only a job of a group can"):
            ordered.result()
