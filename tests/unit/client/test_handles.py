"""What `submit_many` returns: it does what a list does, and keeps few bytes of each job."""

from __future__ import annotations

import gc
from typing import Any
from uuid import UUID

import pytest

from longshore import App, Handle
from longshore.client.handles import Handles, JobRecords
from longshore.errors import WrongState
from longshore.model.job import JobState
from longshore.payload import values
from longshore.testing.kit import run_inline
from longshore.wire import messages

from .fake import FakeDispatcher


def add(a: int, b: int = 1) -> int:
    return a + b


def join(a: str) -> str:
    return a


def submitted(app: App, count: int) -> Any:
    job = app.job(add)
    return app.submit_many(job.call(number) for number in range(count))


def made() -> int:
    gc.collect()  # handles that earlier tests left behind
    return sum(isinstance(one, Handle) for one in gc.get_objects())


def records_of(handles: Handles[int]) -> JobRecords[int]:
    return handles.records


def test_handles_are_made_when_they_are_asked_for(app: App) -> None:
    before = made()
    handles = submitted(app, 2_000)
    assert made() == before
    one = handles[3]
    assert made() == before + 1
    assert one == handles[3]
    for handle in handles:
        assert made() <= before + 3
        if handle.number == 6:
            break


def test_of_each_job_few_bytes_are_kept_and_its_kind_once(app: App) -> None:
    records = records_of(submitted(app, 2_000))
    assert len(records._ids) == 16 * 2_000
    assert records._numbers.itemsize * len(records._numbers) == 8 * 2_000
    assert records._kind_at.itemsize * len(records._kind_at) == 4 * 2_000
    assert len(records._kinds) == len(records._kind_list) == 1
    assert not records._existing
    assert not records._known


def test_handles_are_a_sequence(app: App, fake: FakeDispatcher) -> None:
    handles = submitted(app, 1_200)
    ids = list(fake.jobs)
    assert len(handles) == 1_200
    assert [handle.id for handle in handles] == ids
    assert [handle.number for handle in reversed(handles)] == list(range(1_200, 0, -1))
    assert (handles[0].id, handles[-1].id) == (ids[0], ids[-1])
    assert [handle.id for handle in handles[10:1_000:300][1:]] == ids[10:1_000:300][1:]
    assert handles[700] in handles
    assert handles.index(handles[700]) == 700
    assert repr(handles) == "<Handles of 1,200 jobs>"
    with pytest.raises(IndexError):
        handles[1_200]


def test_each_handle_has_its_own_kind_and_result(app: App, fake: FakeDispatcher) -> None:
    number, text = app.job(add), app.job(join)
    calls: list[Any] = [number.call(1), text.call("a"), number.call(2)]
    handles = app.submit_many(calls)
    assert [handle.kind for handle in handles] == ["add", "join", "add"]
    for handle, result in zip(handles, (1, "a", 2), strict=True):
        fake.end(handle.id, values.pack(result, "a result"))
    assert [handle.result() for handle in handles] == [1, "a", 2]


def test_a_unique_key_leads_to_the_job_that_is_there(app: App, fake: FakeDispatcher) -> None:
    fake.replies[messages.Submit] = lambda request: [
        messages.SubmitAnswer(request.jobs[0].id, 7),
        messages.SubmitAnswer(UUID(int=3), 2**40, existing=True),
    ]
    handles = submitted(app, 2)
    assert [handle.existing for handle in handles] == [False, True]
    assert (handles[1].id, handles[1].number) == (UUID(int=3), 2**40)


def test_outcomes_that_were_waited_for_are_not_asked_for_again(
    app: App, fake: FakeDispatcher
) -> None:
    handles = submitted(app, 3)
    for handle in handles:
        fake.end(handle.id, values.pack(handle.number, "a result"))
    assert app.wait_all(handles) == [JobState.SUCCEEDED] * 3
    asked = len(fake.requests)
    assert [handle.result() for handle in handles] == [1, 2, 3]
    assert len(fake.requests) == asked
    handles[1].retry()
    assert handles[1].result() == 2
    assert len(fake.requests) > asked + 1


def test_waiting_for_all_makes_no_handles(
    app: App, fake: FakeDispatcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    handles = submitted(app, 600)
    for id in fake.jobs:
        fake.end(id)
    with monkeypatch.context() as patched:
        patched.setattr(JobRecords, "handle", None)
        assert app.wait_all(handles) == [JobState.SUCCEEDED] * 600
        assert app.wait_all(handles[5:9]) == [JobState.SUCCEEDED] * 4
    asked = {id for request in fake.of(messages.Wait)[-1:] for id in request.jobs}
    assert asked == set(list(fake.jobs)[5:9])
    assert app.wait_all([*handles, handles[0]]) == [JobState.SUCCEEDED] * 601


def test_handles_can_be_added_to_others(app: App) -> None:
    job = app.job(add)
    first, second = app.submit_many([job.call(1)]), app.submit_many([job.call(2)])
    both = [first[0], second[0]]
    assert first + second == both
    assert [first[0]] + second == both  # noqa: RUF005
    longer = [first[0]]
    longer += second
    assert longer == both
    assert app.submit_many([]) != both


def test_handles_stay_with_the_dispatcher_that_has_their_jobs(
    app: App, fake: FakeDispatcher
) -> None:
    handles = submitted(app, 1)
    with run_inline(app):
        handle = handles[0]
        inside = app.submit_many([app._kinds["add"].call(1)])
    assert handle.status() is JobState.READY
    assert len(fake.of(messages.Show)) == 1
    with pytest.raises(WrongState, match="the test kit that had this job is over"):
        inside[0].status()


def test_a_kit_takes_more_jobs_than_a_message(app: App) -> None:
    job = app.job(add)
    with run_inline(app, eager=True):
        handles = app.submit_many(job.call(number) for number in range(1_100))
        assert sum(app.results(handles)) == sum(range(1, 1_101))


async def test_a_kit_takes_more_jobs_than_a_message_from_a_coroutine(app: App) -> None:
    job = app.job(add)
    with run_inline(app, eager=True):
        handles = await app.submit_many_async(job.call(number) for number in range(1_100))
        results = [result async for result in app.results_async(handles)]
    assert sum(results) == sum(range(1, 1_101))
