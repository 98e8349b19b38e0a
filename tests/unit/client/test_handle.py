"""A handle tells how its job fares, and gives its result as what the function returns."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import pytest

from longshore import App, Handle
from longshore.client import handle as handle_module
from longshore.errors import (
    InvalidInput,
    JobCancelled,
    JobFailed,
    JobUnsuccessful,
    LongshoreError,
    NotFinished,
    NotFound,
    StoreUnavailable,
)
from longshore.model.job import CancelVerdict, Ended, JobError, JobState, Reason, RetryVerdict
from longshore.payload import values
from longshore.wire import messages

from .fake import FakeDispatcher


@dataclass
class Report:
    pages: int


async def report(pages: int) -> Report:
    return Report(pages)


def submitted(app: App, pages: int = 1) -> Handle[Report]:
    declared: Any = app._kinds.get("report") or app.job(report)
    handle: Handle[Report] = declared.submit(pages)
    return handle


def packed(pages: int) -> bytes:
    return values.pack(Report(pages), "it")


def test_a_result_is_what_the_function_returns(app: App, fake: FakeDispatcher) -> None:
    handle = submitted(app)
    fake.end(handle.id, packed(7))
    assert handle.result() == Report(7)
    assert handle.result(timeout_s=0) == Report(7)
    assert handle.status() is JobState.SUCCEEDED


async def test_a_result_is_there_as_soon_as_the_job_ends(app: App, fake: FakeDispatcher) -> None:
    handle = await app.job(report).submit_async(1)
    waiting = asyncio.create_task(handle.result_async())
    await asyncio.to_thread(fake.heard, messages.Wait)
    fake.end(handle.id, packed(7))
    assert await waiting == Report(7)
    await app.close_async()


def test_a_failure_is_raised_with_all_that_is_known_of_it(app: App, fake: FakeDispatcher) -> None:
    handle = submitted(app)
    fake.end(handle.id, error=JobError(Reason.RAISED, "no route", "OSError", "Traceback …"))
    with pytest.raises(JobFailed, match=r"job 1 \(report\) failed: OSError: no route") as raised:
        handle.result()
    assert (raised.value.reason, raised.value.type) == ("raised", "OSError")
    assert raised.value.traceback == "Traceback …"
    assert handle.wait() is JobState.FAILED


@pytest.mark.parametrize(
    ("state", "expected", "message"),
    [
        (JobState.CANCELLED, JobCancelled, "was cancelled"),
        (JobState.SKIPPED, JobFailed, "ended as skipped"),
        (JobState.DEPENDENCY_FAILED, JobFailed, "ended as dependency_failed"),
    ],
)
def test_other_ends_are_raised_too(
    app: App,
    fake: FakeDispatcher,
    state: JobState,
    expected: type[JobUnsuccessful],
    message: str,
) -> None:
    handle = submitted(app)
    fake.conclude(Ended(handle.id, state))
    with pytest.raises(expected, match=message):
        handle.result()


def test_a_job_that_takes_too_long_says_why(app: App) -> None:
    with pytest.raises(NotFinished, match="not ended within 0 s: no worker is free"):
        submitted(app).result(timeout_s=0)


def test_a_job_that_ended_in_time_is_never_said_to_be_unfinished(
    app: App, fake: FakeDispatcher
) -> None:
    handle = submitted(app)
    fake.ended[handle.id] = Ended(handle.id, JobState.SUCCEEDED, packed(1))
    assert handle.wait(timeout_s=0) is JobState.SUCCEEDED


def test_a_refused_wait_is_raised_to_everybody_who_waits(app: App, fake: FakeDispatcher) -> None:
    fake.replies[messages.Wait] = lambda request: NotFound("gone")
    with pytest.raises(NotFound, match="gone"):
        submitted(app).result()


def test_a_handle_shows_explains_cancels_and_retries(app: App) -> None:
    handle = submitted(app)
    assert handle.job().kind == "report"
    assert handle.status() is JobState.READY
    assert handle.why() == "no worker is free"
    assert handle.cancel() is CancelVerdict.CANCELLED
    assert handle.retry() is RetryVerdict.RETRIED


def test_what_is_gone_is_not_found(app: App, fake: FakeDispatcher) -> None:
    handle = submitted(app)
    fake.replies[messages.Cancel] = lambda request: [
        messages.CancelAnswer(handle.id, None, CancelVerdict.NOT_FOUND)
    ]
    fake.replies[messages.Retry] = lambda request: [
        messages.RetryAnswer(handle.id, None, RetryVerdict.NOT_FOUND)
    ]
    with pytest.raises(NotFound, match=str(handle.id)):
        handle.cancel()
    with pytest.raises(NotFound, match=str(handle.id)):
        handle.retry()


def test_a_retried_job_is_waited_for_anew(app: App, fake: FakeDispatcher) -> None:
    handle = submitted(app)
    fake.end(handle.id, error=JobError(Reason.RAISED, "no route"))
    assert handle.wait() is JobState.FAILED
    handle.retry()
    fake.end(handle.id, packed(2))
    assert handle.result() == Report(2)


def test_a_job_submitted_elsewhere_has_a_handle_by_number_or_id(
    app: App, fake: FakeDispatcher
) -> None:
    first = submitted(app)
    fake.end(first.id, packed(3))
    for ref in (first.number, first.id):
        handle = app.handle(ref)
        assert handle == first
        assert handle.result() == Report(3)


def test_a_result_of_an_unknown_kind_is_builtins(app: App, fake: FakeDispatcher) -> None:
    first = submitted(app)
    fake.end(first.id, packed(3))
    with App("other", fake.address) as other:
        assert other.handle(first.id).result() == {"pages": 3}


def test_there_is_no_handle_of_a_job_that_is_not_there(app: App, fake: FakeDispatcher) -> None:
    fake.replies[messages.Show] = lambda request: NotFound("there is no job 7")
    with pytest.raises(NotFound, match="there is no job 7"):
        app.handle(7)


async def test_an_id_makes_a_handle_without_a_request_also_in_a_coroutine(
    app: App, fake: FakeDispatcher
) -> None:
    first = await app.job(report).submit_async(1)
    handles = app.handle(first.id), app.handle(str(first.id)), await app.handle_async(first.id)
    assert not fake.of(messages.Show)
    fake.end(first.id, packed(3))
    for handle in handles:
        assert (handle, handle.number) == (first, 0)
        assert repr(handle) == f"<Handle of job {first.id}>"
        assert await handle.result_async() == Report(3)
        assert (handle.number, handle.kind) == (first.number, first.kind)
    assert len(fake.of(messages.Show)) == len(handles)
    await app.close_async()


def test_an_id_of_no_job_is_told_as_soon_as_something_is_asked(
    app: App, fake: FakeDispatcher
) -> None:
    handle = app.handle(UUID(int=7))
    fake.replies[messages.Show] = lambda request: NotFound(f"there is no job {handle.id}")
    for ask in (handle.result, handle.wait, handle.status, handle.job):
        with pytest.raises(NotFound, match=f"there is no job {handle.id}"):
            ask()


def test_who_waits_for_a_job_that_was_pruned_is_told_so(app: App, fake: FakeDispatcher) -> None:
    handles = [submitted(app), submitted(app)]
    fake.replies[messages.Wait] = lambda request: ()
    pruned = handles[1].id
    fake.replies[messages.Show] = lambda request: (
        NotFound("there is no such job") if request.job == pruned else fake.view(request.job)
    )
    for wait in (handles[1].result, lambda: list(app.as_ended(handles))):
        with pytest.raises(NotFound, match=f"no job {pruned} any more: it was pruned"):
            wait()
    with pytest.raises(NotFinished):
        handles[0].result(timeout_s=0.1)


def test_who_waits_for_all_of_many_is_told_of_one_that_was_pruned(
    app: App, fake: FakeDispatcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handle_module, "LOOK_EVERY_S", 0.1)
    handles = [submitted(app), submitted(app)]
    fake.end(handles[0].id, packed(1))
    fake.replies[messages.Show] = lambda request: NotFound("there is no such job")
    with pytest.raises(NotFound, match=f"no job {handles[1].id} any more"):
        app.wait_all(handles)


def test_a_job_may_be_missing_until_its_transaction_is_committed(
    app: App, fake: FakeDispatcher
) -> None:
    handle = submitted(app)
    handle._stored = False
    fake.replies[messages.Show] = lambda request: NotFound("there is no such job")
    fake.replies[messages.Wait] = lambda request: ()
    with pytest.raises(NotFinished):
        handle.result(timeout_s=0.2)


# many


def test_all_jobs_are_waited_for_in_the_order_given(app: App, fake: FakeDispatcher) -> None:
    handles = [submitted(app) for _ in range(3)]
    fake.end(handles[2].id, packed(1))
    fake.end(handles[0].id, error=JobError(Reason.TIMED_OUT, "too slow"))
    fake.end(handles[1].id, packed(1))
    states = app.wait_all(handles)
    assert states == [JobState.FAILED, JobState.SUCCEEDED, JobState.SUCCEEDED]


def test_jobs_that_take_too_long_are_counted(app: App, fake: FakeDispatcher) -> None:
    handles = [submitted(app) for _ in range(3)]
    fake.end(handles[0].id, packed(1))
    with pytest.raises(NotFinished, match="2 jobs have not ended"):
        app.wait_all(handles, timeout_s=0)
    fake.end(handles[1].id, packed(1))
    with pytest.raises(NotFinished, match="1 job has not ended within the time given; it goes on"):
        app.wait_all(handles, timeout_s=0)


def enqueued(app: App) -> Handle[Report]:
    """A job of a transaction that was rolled back: no dispatcher knows it."""
    handle = submitted(app)
    handle._stored = False
    return handle


def unknown(_: object) -> LongshoreError:
    return NotFound("there is no such job")


def test_a_job_of_a_transaction_that_was_rolled_back_does_not_go_on(
    app: App, fake: FakeDispatcher
) -> None:
    handle = enqueued(app)
    fake.replies[messages.Why] = unknown
    with pytest.raises(NotFinished, match="is not there after 0 s") as caught:
        handle.result(timeout_s=0)
    assert "has not been committed, or was rolled back" in str(caught.value)
    assert "goes on" not in str(caught.value)


def test_a_job_that_was_pruned_while_it_was_waited_for_does_not_go_on(
    app: App, fake: FakeDispatcher
) -> None:
    handle = submitted(app)
    fake.replies[messages.Why] = unknown
    with pytest.raises(NotFound, match="any more: it was pruned"):
        handle.result(timeout_s=0)


def test_of_many_jobs_those_that_may_not_be_there_are_told_apart(app: App) -> None:
    handles = [submitted(app), enqueued(app), enqueued(app)]
    told = r"3 jobs have not ended .*; what was enqueued \(2 of 3\) is not there if .* rolled back"
    with pytest.raises(NotFinished, match=told):
        app.wait_all(handles, timeout_s=0)
    with pytest.raises(NotFinished, match=told):
        list(app.as_ended(handles, timeout_s=0))


WAITS: list[Callable[[App, Handle[Report], Any], object]] = [
    lambda app, handle, within: handle.result(timeout_s=within),
    lambda app, handle, within: handle.wait(timeout_s=within),
    lambda app, handle, within: app.wait_all([handle], timeout_s=within),
    lambda app, handle, within: list(app.as_ended([handle], timeout_s=within)),
    lambda app, handle, within: list(app.results([handle], timeout_s=within)),
]


@pytest.mark.parametrize("wait", WAITS)
def test_a_timeout_that_is_no_time_is_refused(
    wait: Callable[[App, Handle[Report], Any], object], app: App
) -> None:
    handle = submitted(app)
    for odd in (float("nan"), 10**400, "1", True):
        with pytest.raises(InvalidInput, match=f"timeout_s is {odd!r:.20}.*; give seconds"):
            wait(app, handle, odd)
    with pytest.raises(NotFinished, match="not ended within"):
        wait(app, handle, -1)


@pytest.mark.parametrize("wait", WAITS)
def test_a_timeout_may_be_endless(
    wait: Callable[[App, Handle[Report], Any], object], app: App, fake: FakeDispatcher
) -> None:
    for endless in (float("inf"), 1e308):
        handle = submitted(app)
        fake.end(handle.id, packed(1))
        wait(app, handle, endless)


def test_no_jobs_are_waited_for_without_a_word(app: App, fake: FakeDispatcher) -> None:
    assert app.wait_all([]) == []
    assert list(app.results([])) == []
    assert fake.requests == []


def test_handles_come_in_the_order_in_which_their_jobs_end(app: App, fake: FakeDispatcher) -> None:
    handles = [submitted(app) for _ in range(3)]
    order = [handles[1], handles[2], handles[0]]
    coming = app.as_ended(handles)
    for expected in order:
        fake.end(expected.id, packed(1))
        assert next(coming) is expected
    assert list(coming) == []


async def test_results_come_as_the_jobs_end(app: App, fake: FakeDispatcher) -> None:
    job = app.job(report)
    handles = [await job.submit_async(number) for number in range(3)]
    for number, handle in enumerate(handles):
        fake.end(handle.id, packed(number))
    found = [result.pages async for result in app.results_async(handles)]
    assert sorted(found) == [0, 1, 2]
    await app.close_async()


def test_a_failure_ends_the_results(app: App, fake: FakeDispatcher) -> None:
    handle = submitted(app)
    fake.end(handle.id, error=JobError(Reason.RAISED, "no route"))
    with pytest.raises(JobFailed, match="no route"):
        list(app.results([handle]))


def test_past_a_failure_the_other_results_are_had_from_their_handles(
    app: App, fake: FakeDispatcher
) -> None:
    bad, good = submitted(app), submitted(app)
    fake.end(bad.id, error=JobError(Reason.RAISED, "no route"))
    results = app.results([bad, good])
    with pytest.raises(JobFailed, match="no route"):
        next(results)
    assert list(results) == []
    fake.end(good.id, packed(7))
    assert set(app.as_ended([bad, good])) == {bad, good}
    assert good.result() == Report(7)


def test_what_is_no_list_of_handles_is_refused_with_what_to_give(app: App) -> None:
    one: Any = submitted(app)
    odd: Any = [1]
    for wait in (app.results, app.as_ended, app.wait_all):
        with pytest.raises(InvalidInput, match=r"^1 is not a handle; give what submit\("):
            list(wait(odd))
        with pytest.raises(InvalidInput, match="is not a list of handles; give a list"):
            list(wait(one))


def test_handles_of_the_same_job_all_hear_of_it(app: App, fake: FakeDispatcher) -> None:
    first = submitted(app)
    second = app.handle(first.id)
    fake.end(first.id, packed(1))
    assert len(list(app.results([first, second]))) == 2


def test_results_that_nobody_wants_any_more_are_not_waited_for(
    app: App, fake: FakeDispatcher
) -> None:
    handles = [submitted(app) for _ in range(2)]
    fake.end(handles[0].id, packed(1))
    for handle in app.as_ended(handles):
        assert handle is handles[0]
        break

    async def expected() -> list[UUID]:
        return list(app._access.outcomes()._expected)

    assert app._access.run(expected()) == []


async def test_waiting_for_many_jobs_takes_few_requests(app: App, fake: FakeDispatcher) -> None:
    job = app.job(report)
    handles = await app.submit_many_async([job.call(number) for number in range(1_000)])
    everything = asyncio.gather(*(handle.result_async() for handle in handles))
    await asyncio.to_thread(fake.heard, messages.Wait, 2)
    for number, handle in enumerate(handles):
        fake.end(handle.id, packed(number))
    assert [result.pages for result in await everything] == list(range(1_000))
    assert len(fake.of(messages.Wait)) < 100
    await app.close_async()


async def test_an_outage_is_raised_to_everybody_who_waits(fake: FakeDispatcher) -> None:
    fake.replies[messages.Wait] = lambda request: StoreUnavailable("the store is away")
    async with App("test", fake.address, timeout_s=0.05) as app:
        job = app.job(report)
        handles = await app.submit_many_async([job.call(number) for number in range(3)])
        waiting = (handle.result_async() for handle in handles)
        found = await asyncio.gather(*waiting, return_exceptions=True)
    assert [type(error) for error in found] == [StoreUnavailable] * 3


async def test_one_who_stops_waiting_does_not_stop_the_others(
    app: App, fake: FakeDispatcher
) -> None:
    handle = await app.job(report).submit_async(1)
    other = await app.handle_async(handle.id)
    impatient = asyncio.create_task(handle.result_async())
    patient = asyncio.create_task(other.result_async())
    await asyncio.to_thread(fake.heard, messages.Wait)
    impatient.cancel()
    await asyncio.wait([impatient])
    fake.end(handle.id, packed(1))
    assert await patient == Report(1)
    await app.close_async()


def test_handles_are_the_same_if_their_job_is(app: App) -> None:
    handle = submitted(app)
    assert {handle, app.handle(handle.id)} == {handle}
    assert handle != UUID(int=1)
    assert repr(handle) == f"<Handle of job 1 (report) {handle.id}>"
