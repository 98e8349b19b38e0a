"""How attempts gather, share a run and end, on a virtual clock. `test_batches` has real hosts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any
from uuid import uuid4

import pytest

from longshore.executors.host.context import RunningContext
from longshore.executors.host.gathering import Gathering, batched
from longshore.model.attempt import Assignment
from longshore.model.job import Reason
from longshore.model.reports import (
    FailureReport,
    OutboxJob,
    Report,
    SkipReport,
    SnoozeReport,
    SuccessReport,
)
from longshore.payload.values import pack
from longshore.testing.virtual import run_virtually

from .batches_app import app
from .stand import error_of, failure_in, result_of


class Host:
    """Stands for the host of a worker, and keeps what it would tell."""

    def __init__(self) -> None:
        self.gathering = Gathering(asyncio.get_running_loop(), batched(app.handlers()), self)
        self.begun: list[int] = []
        self.reports: dict[int, Report] = {}
        self.stopped: list[int] = []
        self.cleared: list[RunningContext] = []
        self._token = 0
        self._news = asyncio.Event()

    def start(self, kind: str, *, timeout_s: float | None = None, **args: Any) -> Assignment:
        return self.start_packed(kind, pack(args, "args"), timeout_s=timeout_s)

    def start_packed(
        self, kind: str, args: bytes, *, timeout_s: float | None = None, raw: bool = False
    ) -> Assignment:
        self._token += 1
        number = self._token + 1000
        assignment = Assignment(uuid4(), self._token, number, kind, args, timeout_s, 1, raw)
        self.gathering.add(assignment, RunningContext(assignment, lambda log: None))
        return assignment

    async def report_of(self, assignment: Assignment) -> Report:
        while assignment.token not in self.reports:
            self._news.clear()
            await self._news.wait()
        return self.reports[assignment.token]

    async def results(self, *started: Assignment) -> list[Any]:
        return [result_of(await self.report_of(one)) for one in started]

    def tell_begun(self, tokens: Sequence[int]) -> None:
        self.begun += tokens

    def tell_end(self, assignment: Assignment, context: RunningContext, report: Report) -> None:
        if context.cancelled:
            self.tell_stopped(assignment, context)
        else:
            assert assignment.token not in self.reports
            self.reports[assignment.token] = report
            self._news.set()

    def tell_stopped(self, assignment: Assignment, context: RunningContext) -> None:
        assert assignment.token not in self.stopped
        self.stopped.append(assignment.token)

    def clear_after(self, context: RunningContext) -> None:
        self.cleared.append(context)


Story = Callable[[Host], Coroutine[Any, Any, None]]


def on_a_virtual_loop(story: Story) -> Callable[[], None]:
    def test() -> None:
        async def run() -> None:
            host = Host()
            await story(host)
            assert len(host.gathering) == 0

        run_virtually(run())

    test.__name__ = story.__name__
    return test


async def after(seconds: float) -> None:
    """Goes on when so much virtual time has passed."""
    loop = asyncio.get_running_loop()
    passed = loop.create_future()
    loop.call_later(seconds, passed.set_result, None)
    await passed


def now() -> float:
    return asyncio.get_running_loop().time()


@on_a_virtual_loop
async def test_a_full_batch_runs_at_once_and_each_job_has_its_own_result(host: Host) -> None:
    started = [host.start("three", numbers=number) for number in range(3)]
    assert await host.results(*started) == [[0, 0, 1, 2], [1, 0, 1, 2], [2, 0, 1, 2]]
    assert now() == 0
    assert host.begun == [one.token for one in started]


@on_a_virtual_loop
async def test_a_batch_that_is_not_full_runs_when_the_first_has_waited(host: Host) -> None:
    first = host.start("three", numbers=0)
    await after(20)
    second = host.start("three", numbers=1)
    assert not host.begun
    assert await host.results(first, second) == [[0, 0, 1], [1, 0, 1]]
    assert now() == 30


@on_a_virtual_loop
async def test_the_next_batch_is_another_run(host: Host) -> None:
    started = [host.start("three", numbers=number) for number in range(6)]
    assert [one[1:] for one in await host.results(*started)] == [[0, 1, 2]] * 3 + [[3, 4, 5]] * 3


@on_a_virtual_loop
async def test_only_jobs_of_the_same_key_share_a_run(host: Host) -> None:
    words = [("a", "acme"), ("b", "bolt"), ("c", "acme"), ("d", "bolt")]
    started = [host.start("keyed", words=word, tenant=tenant) for word, tenant in words]
    assert await host.results(*started) == ["acme: a+c", "bolt: b+d"] * 2
    assert now() == 0


@on_a_virtual_loop
async def test_a_function_of_the_arguments_makes_keys_too(host: Host) -> None:
    started = [host.start("by_parity", number=number) for number in range(4)]
    assert await host.results(*started) == [[0, 2], [1, 3], [0, 2], [1, 3]]


@on_a_virtual_loop
async def test_a_key_that_cannot_be_made_fails_its_own_job(host: Host) -> None:
    bad = host.start("keyed", words="a", tenant="new\nline")
    error = error_of(await host.report_of(bad))
    assert error.reason is Reason.INVALID_ARGUMENTS
    assert "printable" in error.message


@on_a_virtual_loop
async def test_only_jobs_of_the_same_timeout_share_a_run(host: Host) -> None:
    times = [50.0, None, 60.0, 50.0, None, 60.0]
    started = [host.start("soon", timeout_s=time, numbers=n) for n, time in enumerate(times)]
    found = [one[1:] for one in await host.results(*started)]
    assert found == [[0, 3], [1, 4], [2, 5]] * 2


@on_a_virtual_loop
async def test_an_error_in_the_place_of_a_result_is_of_that_job_alone(host: Host) -> None:
    words = ("fine", "fail", "retry", "skip", "snooze", "error")
    started = {word: host.start("each_its_own", words=word) for word in words}
    ends = {word: await host.report_of(one) for word, one in started.items()}
    assert result_of(ends["fine"]) == "fine"
    assert failure_in(ends["fail"]).final
    assert failure_in(ends["retry"]).retry_after_s == 5
    assert isinstance(ends["skip"], SkipReport)
    assert isinstance(ends["snooze"], SnoozeReport)
    assert ends["snooze"].after_s == 60
    error = error_of(ends["error"])
    assert (error.type, error.message) == ("ValueError", "bad")
    assert not failure_in(ends["error"]).final


@on_a_virtual_loop
async def test_a_result_that_cannot_be_stored_fails_its_own_job(host: Host) -> None:
    odd, even = host.start("unpackable", words="odd"), host.start("unpackable", words="even")
    assert error_of(await host.report_of(odd)).reason is Reason.INVALID_RESULT
    assert await host.results(even) == ["even"]


@on_a_virtual_loop
async def test_what_the_body_raises_fails_every_job_by_its_rules(host: Host) -> None:
    for word, final in (("final", True), ("again", False)):
        started = [host.start("raises", words=word) for _ in range(2)]
        reports = [failure_in(await host.report_of(one)) for one in started]
        assert [report.key for report in reports] == [one.key for one in started]
        assert {report.error.message for report in reports} == {"all of them"}
        assert {report.final for report in reports} == {final}


@on_a_virtual_loop
async def test_results_that_do_not_fit_are_an_error_of_all(host: Host) -> None:
    said = {"too_few": "a list of 1 for a batch of 2 jobs", "no_list": "str for a batch of 2 jobs"}
    for kind, words in said.items():
        started = [host.start(kind, words=word) for word in "ab"]
        errors = [error_of(await host.report_of(one)) for one in started]
        assert {error.reason for error in errors} == {Reason.INVALID_RESULT}
        assert all(words in error.message for error in errors)


@on_a_virtual_loop
async def test_a_function_that_returns_nothing_has_no_results(host: Host) -> None:
    started = [host.start("nothing", words=word) for word in "ab"]
    assert await host.results(*started) == [None, None]


@on_a_virtual_loop
async def test_a_job_with_bad_arguments_is_not_in_the_batch(host: Host) -> None:
    bad = host.start("three", numbers="no number")
    raw = host.start_packed("three", b"raw", raw=True)
    started = [host.start("three", numbers=number) for number in range(3)]
    assert error_of(await host.report_of(bad)).reason is Reason.INVALID_ARGUMENTS
    assert "raw" in error_of(await host.report_of(raw)).message
    assert [one[1:] for one in await host.results(*started)] == [[0, 1, 2]] * 3


@on_a_virtual_loop
async def test_what_a_job_of_a_batch_submits_is_of_its_own_success(host: Host) -> None:
    good, bad = host.start("submits", words="good"), host.start("submits", words="bad")
    report = await host.report_of(good)
    assert isinstance(report, SuccessReport)
    [item] = report.outbox
    assert isinstance(item, OutboxJob)
    assert isinstance(await host.report_of(bad), FailureReport)


@on_a_virtual_loop
async def test_nothing_can_be_submitted_for_no_job_in_particular(host: Host) -> None:
    started = [host.start("submits_for_all", words=word) for word in "ab"]
    for one in started:
        assert "ctx: list[longshore.Context]" in error_of(await host.report_of(one)).message


# stopping


@on_a_virtual_loop
async def test_a_job_that_is_stopped_before_its_batch_is_full_leaves_it(host: Host) -> None:
    gone = host.start("three", numbers=9)
    assert host.gathering.abort(gone.key)
    assert host.stopped == [gone.token]
    started = [host.start("three", numbers=number) for number in range(3)]
    assert [one[1:] for one in await host.results(*started)] == [[0, 1, 2]] * 3


@on_a_virtual_loop
async def test_a_batch_that_all_have_left_never_runs(host: Host) -> None:
    host.gathering.abort(host.start("three", numbers=9).key)
    await after(100)
    assert not host.begun


@on_a_virtual_loop
async def test_a_job_that_leaves_a_body_is_told_before_the_body_ends(host: Host) -> None:
    gone, stays = host.start("slow", words="a"), host.start("slow", words="b")
    await after(1)
    host.gathering.abort(gone.key)
    await after(1)
    assert host.stopped == [gone.token]
    assert not host.cleared
    assert await host.results(stays) == ["b"]
    assert [context.id for context in host.cleared] == [gone.job]
    assert gone.token not in host.reports


@on_a_virtual_loop
async def test_the_body_is_cancelled_when_all_its_jobs_are_and_then_they_are_told(
    host: Host,
) -> None:
    started = [host.start("slow", words=word) for word in "ab"]
    await after(1)
    for one in started:
        host.gathering.abort(one.key)
    await after(2)
    assert not host.stopped  # the body takes its time to stop
    await after(10)
    assert host.stopped == [one.token for one in started]
    assert now() < 20


@on_a_virtual_loop
async def test_the_last_that_is_left_takes_the_body_with_it(host: Host) -> None:
    first, last = host.start("slow", words="a"), host.start("slow", words="b")
    await after(1)
    host.gathering.abort(first.key)
    await after(1)
    host.gathering.abort(last.key)
    await after(10)
    assert host.stopped == [first.token, last.token]


@on_a_virtual_loop
async def test_all_that_are_stopped_before_the_body_runs_are_told(host: Host) -> None:
    started = [host.start("slow", words=word) for word in "ab"]
    for one in started:
        host.gathering.abort(one.key)
    await after(1)
    assert host.stopped == [one.token for one in started]


def test_other_kinds_do_not_gather() -> None:
    assert "add_async" not in batched(app.handlers())
    assert "three" in batched(app.handlers())


def test_a_broken_story_is_seen() -> None:
    async def broken(host: Host) -> None:
        host.start("three", numbers=1)

    with pytest.raises(AssertionError):
        on_a_virtual_loop(broken)()
