"""Lists longer than a dispatcher takes at once go in several requests, and nobody notices."""

from __future__ import annotations

import asyncio
from uuid import UUID

import pytest

from longshore.client import outcomes
from longshore.client.connection import Connection
from longshore.client.outcomes import Outcomes
from longshore.core.limits import MAX_DRAINED, MAX_REQUEST_JOBS
from longshore.model.worker import DrainVerdict
from longshore.wire import messages

from .fake import FakeDispatcher

IDS = [UUID(int=number) for number in range(1, 2 * MAX_REQUEST_JOBS + 501)]


def sizes(fake: FakeDispatcher, kind: type) -> list[int]:
    return [len(request.jobs) for request in fake.of(kind)]


async def test_many_cancels_and_retries_are_answered_in_order(fake: FakeDispatcher) -> None:
    async with Connection(fake.address) as connection:
        cancelled = await connection.cancel(IDS)
        retried = await connection.retry(IDS)
    assert [answer.job for answer in cancelled] == IDS
    assert [answer.job for answer in retried] == IDS
    assert sizes(fake, messages.Cancel) == sizes(fake, messages.Retry) == [1000, 1000, 500]


async def test_many_drains_are_answered_in_order(fake: FakeDispatcher) -> None:
    fake.replies[messages.Drain] = lambda request: [
        messages.DrainAnswer(name, None, "", DrainVerdict.NOT_FOUND) for name in request.workers
    ]
    names = [f"w{number}" for number in range(MAX_DRAINED + 1)]
    async with Connection(fake.address) as connection:
        answers = await connection.drain(names)
    assert [answer.worker for answer in answers] == names
    assert [len(request.workers) for request in fake.of(messages.Drain)] == [MAX_DRAINED, 1]


async def test_none_are_still_asked_for(fake: FakeDispatcher) -> None:
    async with Connection(fake.address) as connection:
        assert await connection.cancel([]) == ()
    assert sizes(fake, messages.Cancel) == [0]


@pytest.mark.parametrize("which", [0, -1])
async def test_a_wait_for_any_of_many_finds_the_one_that_ended(
    fake: FakeDispatcher, which: int
) -> None:
    async with Connection(fake.address) as connection:
        assert await connection.wait(IDS, 0) == ()
        fake.end(IDS[which])
        [ended] = await connection.wait(IDS, 30)
    assert ended.id == IDS[which]
    assert max(sizes(fake, messages.Wait)) == MAX_REQUEST_JOBS


async def test_a_wait_for_all_of_many_ends_with_the_last(fake: FakeDispatcher) -> None:
    for job in IDS[1:]:
        fake.end(job)
    async with Connection(fake.address, wait_slice_s=0.2) as connection:
        waiting = asyncio.ensure_future(connection.wait(IDS, 30, every=True))
        await asyncio.to_thread(fake.heard, messages.Wait, 4)
        fake.end(IDS[0])
        ended = await waiting
    assert {one.id for one in ended} == set(IDS)
    assert max(sizes(fake, messages.Wait)) == MAX_REQUEST_JOBS


async def test_past_what_may_be_waited_for_at_once_jobs_take_turns(
    fake: FakeDispatcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outcomes, "MAX_IDS", 2)
    monkeypatch.setattr(outcomes, "MOST_ASKED", 4)
    async with Connection(fake.address) as connection:
        waiting = Outcomes(connection, slice_s=0.05)
        expected = [waiting.expect(job, stored=False) for job in IDS[:10]]
        await asyncio.to_thread(fake.heard, messages.Wait, 2)
        assert [job for request in fake.of(messages.Wait)[:2] for job in request.jobs] == IDS[:4]
        assert len(waiting._asked) <= 4
        for job in reversed(IDS[:10]):
            fake.end(job)
        async with asyncio.timeout(20):
            assert [(await one).id for one in expected] == IDS[:10]
