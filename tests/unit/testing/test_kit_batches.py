"""Batches in the test kit: the jobs that are ready share runs, as in a worker."""

from __future__ import annotations

import asyncio

import pytest

from longshore import App, Batch, Context, Fail, JobState, Retry
from longshore.errors import JobFailed
from longshore.testing import run_inline

app = App("shop")
runs: list[list[str]] = []


@pytest.fixture(autouse=True)
def no_runs() -> None:
    runs.clear()


@app.job(batch=Batch(3))
async def index(words: list[str]) -> list[int | Exception]:
    runs.append(words)
    return [Fail("empty") if not word else len(word) for word in words]


@app.job(batch=Batch(10, key="tenant"))
async def send(mails: list[str], tenant: str) -> list[str]:
    runs.append(mails)
    return [f"{tenant}: {mail}" for mail in mails]


@app.job(batch=Batch(10), retries=1)
async def shaky(ctx: list[Context], words: list[str]) -> list[str | Exception]:
    runs.append(words)
    pairs = zip(ctx, words, strict=True)
    return [Retry("again") if one.attempt == 1 else word for one, word in pairs]


@app.job(batch=Batch(10))
async def raising(words: list[str]) -> list[str]:
    raise LookupError("all")


@app.job(batch=Batch(10), timeout_s=0.01)
async def slow(words: list[str]) -> list[str]:
    await asyncio.Event().wait()
    return words


def test_jobs_that_are_ready_share_a_run_and_each_has_its_outcome() -> None:
    with run_inline(app) as kit:
        handles = [index.submit(word) for word in ("a", "", "ccc", "dddd")]
        assert kit.drain() == 4
        assert runs == [["a", "", "ccc"], ["dddd"]]
        assert [handles[place].result() for place in (0, 2, 3)] == [1, 3, 4]
        with pytest.raises(JobFailed, match="empty"):
            handles[1].result()


async def test_they_do_in_a_coroutine_too() -> None:
    with run_inline(app, eager=True):
        handles = await app.submit_many_async([index.call("a"), index.call("bb")])
        assert [await handle.result_async() for handle in handles] == [1, 2]
        assert runs == [["a", "bb"]]


def test_only_those_of_the_same_key_share_a_run() -> None:
    with run_inline(app) as kit:
        given = [("a", "acme"), ("b", "bolt"), ("c", "acme")]
        handles = [send.submit(mail, tenant=tenant) for mail, tenant in given]
        kit.drain()
        assert [handle.result() for handle in handles] == ["acme: a", "bolt: b", "acme: c"]
        assert runs == [["a", "c"], ["b"]]


def test_those_that_are_tried_again_share_a_run_again() -> None:
    with run_inline(app) as kit:
        handles = [shaky.submit(word) for word in "ab"]
        assert kit.drain() == 4
        assert [handle.result() for handle in handles] == ["a", "b"]
        assert runs[0] == ["a", "b"]


def test_all_ends_are_recorded_before_a_failure_is_raised() -> None:
    with run_inline(app) as kit:
        handles = [index.submit(word) for word in ("", "bb")]
        with pytest.raises(JobFailed, match="empty") as raised:
            kit.drain(raise_failures=True)
        assert isinstance(raised.value.__cause__, Fail)
        assert handles[1].result() == 2


def test_what_the_body_raises_is_of_all() -> None:
    with run_inline(app) as kit:
        handles = [raising.submit(word) for word in "ab"]
        with pytest.raises(JobFailed) as raised:
            kit.drain(raise_failures=True)
        assert isinstance(raised.value.__cause__, LookupError)
        assert [handle.job().state for handle in handles] == [JobState.FAILED] * 2


def test_a_body_that_takes_too_long_is_stopped() -> None:
    with run_inline(app) as kit:
        handles = [slow.submit(word) for word in "ab"]
        kit.drain()
        for handle in handles:
            with pytest.raises(JobFailed, match="longer than its timeout"):
                handle.result()


def test_what_gathered_for_a_batch_is_handed_back_when_a_drain_breaks_off() -> None:
    with run_inline(app) as kit:
        handles = [send.submit("x", tenant=tenant) for tenant in "abc"]
        with pytest.raises(Exception, match="drain ran 1 attempts"):
            kit.drain(most=1)
        assert [handle.job().state for handle in handles[1:]] == [JobState.READY] * 2
        kit.drain()
        assert handles[2].result() == "c: x"


def test_jobs_of_groups_share_runs_and_take_results() -> None:
    with run_inline(app) as kit:
        with app.group("shop") as group:
            first = group.add(index.call("abc"))
            many = group.map(index, over=["a", "bb"])
            last = group.add(send.call("bill", tenant="acme"), after=[first, many])
            told = group.add(send.call(last.result, tenant="bolt"))
        kit.drain()
        assert runs == [["abc", "a", "bb"], ["bill"], ["acme: bill"]]
        assert told.handle.result() == "bolt: acme: bill"
