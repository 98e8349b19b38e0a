"""`submit_many` streams: it sends earlier calls while later ones are still being described."""

from __future__ import annotations

import asyncio
import io
import sys
import threading
import weakref
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import UUID

import pytest

from longshore import App
from longshore.client import connection as connection_module
from longshore.client import progress
from longshore.client.connection import Connection
from longshore.client.kind import Call
from longshore.errors import (
    Conflict,
    DispatcherUnavailable,
    InvalidInput,
    Unavailable,
    UnknownKind,
)
from longshore.wire import messages

from .fake import SILENT, FakeDispatcher

CHUNK = 500
MOST_PULLED = 9 * CHUNK
"""Eight messages under way, and the one that is described meanwhile."""


def add(a: int, b: int = 1) -> int:
    return a + b


class Source:
    """Describes calls one by one, and counts them."""

    def __init__(self, app: App, count: int) -> None:
        self._job: Any = app.job(add)
        self._count = count
        self.pulled = 0
        self.ids: list[UUID] = []
        self.calls: weakref.WeakSet[Call[int]] = weakref.WeakSet()

    def __iter__(self) -> Iterator[Call[int]]:
        for number in range(self._count):
            self.pulled += 1
            call = self._job.call(number)
            self.calls.add(call)
            self.ids.append(call.id)
            yield call

    async def awaited(self) -> AsyncIterator[Call[int]]:
        for call in self:
            await asyncio.sleep(0)
            yield call


def silent(request: object) -> object:
    return SILENT


def sizes(fake: FakeDispatcher) -> list[int]:
    return sorted(len(request.jobs) for request in fake.of(messages.Submit))


# pulling


def test_jobs_are_sent_before_the_last_one_is_described(app: App, fake: FakeDispatcher) -> None:
    def calls() -> Iterator[Call[int]]:
        for number, call in enumerate(Source(app, 1_200)):
            if number == 2 * CHUNK - 1:
                fake.heard(messages.Submit, 1)
            yield call

    handles = app.submit_many(calls())
    assert [handle.id for handle in handles] == list(fake.jobs)
    assert sizes(fake) == [200, 500, 500]


async def test_in_a_coroutine_too_jobs_are_sent_before_the_last_one_is_described(
    app: App, fake: FakeDispatcher
) -> None:
    async def calls() -> AsyncIterator[Call[int]]:
        number = 0
        async for call in Source(app, 1_200).awaited():
            number += 1
            if number == 2 * CHUNK:
                await asyncio.to_thread(fake.heard, messages.Submit, 1)
            yield call

    handles = await app.submit_many_async(calls())
    assert {handle.id for handle in handles} == set(fake.jobs)
    assert sizes(fake) == [200, 500, 500]
    await app.close_async()


async def test_a_plain_generator_in_a_coroutine_does_not_hold_messages_back(
    app: App, fake: FakeDispatcher
) -> None:
    def calls() -> Iterator[Call[int]]:
        for number, call in enumerate(Source(app, 1_200)):
            if number == 2 * CHUNK - 1:
                fake.heard(messages.Submit, 1)
            yield call

    assert len(await app.submit_many_async(calls())) == 1_200
    await app.close_async()


def test_a_generator_is_pulled_in_the_callers_thread(app: App) -> None:
    threads = set()

    def calls() -> Iterator[Call[int]]:
        for call in Source(app, 1_200):
            threads.add(threading.get_ident())
            yield call

    app.submit_many(calls())
    assert threads == {threading.get_ident()}


def test_a_generator_may_use_the_app_itself(app: App, fake: FakeDispatcher) -> None:
    job = app.job(kind="first")(add)

    def calls() -> Iterator[Call[int]]:
        yield from Source(app, 600)
        yield job.call(job.submit(7).number)

    assert len(app.submit_many(calls())) == 601
    assert len(fake.jobs) == 602


def test_a_generator_is_pulled_only_as_fast_as_jobs_are_accepted(fake: FakeDispatcher) -> None:
    fake.replies[messages.Submit] = silent
    with App("test", fake.address, timeout_s=1) as app:
        source = Source(app, 20_000)
        with pytest.raises(DispatcherUnavailable):
            app.submit_many(iter(source))
    assert source.pulled <= MOST_PULLED
    assert len({request.jobs[0].id for request in fake.of(messages.Submit)}) <= 8


@pytest.mark.parametrize("is_async", [False, True])
async def test_a_coroutine_pulls_only_as_fast_as_jobs_are_accepted(
    fake: FakeDispatcher, is_async: bool
) -> None:
    fake.replies[messages.Submit] = silent
    async with App("test", fake.address, timeout_s=1) as app:
        source = Source(app, 20_000)
        with pytest.raises(DispatcherUnavailable):
            await app.submit_many_async(source.awaited() if is_async else source)
    assert source.pulled <= MOST_PULLED
    assert len({request.jobs[0].id for request in fake.of(messages.Submit)}) <= 8


def test_calls_are_forgotten_when_they_are_accepted(app: App) -> None:
    source, alive = Source(app, 4 * MOST_PULLED), []

    def calls() -> Iterator[Call[int]]:
        for call in source:
            alive.append(len(source.calls))
            yield call

    handles = app.submit_many(calls())
    assert max(alive) <= MOST_PULLED + 1
    assert len(source.calls) <= 1
    assert len(handles) == source.pulled


def test_large_arguments_make_messages_of_fewer_jobs(
    app: App, fake: FakeDispatcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_module, "MAX_CHUNK_BYTES", 10_000)
    handles = app.submit_many(iter(Source(app, 100)))
    assert [handle.id for handle in handles] == list(fake.jobs)
    assert 1 < max(sizes(fake)) < 20


def test_a_short_list_of_large_arguments_too_makes_messages_of_fewer_jobs(
    app: App, fake: FakeDispatcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_module, "MAX_CHUNK_BYTES", 10_000)
    handles = app.submit_many(list(Source(app, 100)))
    assert [handle.id for handle in handles] == list(fake.jobs)
    assert 1 < max(sizes(fake)) < 20


def test_of_smaller_messages_too_only_eight_are_under_way(
    fake: FakeDispatcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_module, "MAX_CHUNK_BYTES", 10_000)
    fake.replies[messages.Submit] = silent
    with App("test", fake.address, timeout_s=0.5) as app:
        source = Source(app, 2_000)
        with pytest.raises(DispatcherUnavailable):
            app.submit_many(iter(source))
    assert len({request.jobs[0].id for request in fake.of(messages.Submit)}) <= 8
    assert source.pulled < 9 * 20


def test_nothing_to_submit_is_submitted_without_a_word(app: App, fake: FakeDispatcher) -> None:
    assert list(app.submit_many(iter(()))) == []
    assert fake.requests == []


# errors


def test_the_first_refused_of_all_messages_is_raised_with_their_number(
    app: App, fake: FakeDispatcher
) -> None:
    def refuse_the_last(request: messages.Submit) -> object:
        *others, last = request.jobs
        place = len(fake.of(messages.Submit))
        refused = messages.SubmitAnswer(last.id, code="unknown_kind", message=f"message {place}")
        return [*(messages.SubmitAnswer(job.id, 1) for job in others), refused]

    fake.replies[messages.Submit] = refuse_the_last
    source = Source(app, 1_200)
    told = r"^message 1 \(3 of 1,200 jobs were refused, the others accepted\)$"
    with pytest.raises(UnknownKind, match=told):
        app.submit_many(iter(source), strict=True)
    assert source.pulled == 1_200
    assert all(request.strict for request in fake.of(messages.Submit))


@pytest.fixture
def out_of_order(fake: FakeDispatcher) -> Iterator[App]:
    """An app whose first message is answered last; the last job of each is refused on request."""

    def answer(request: messages.Submit) -> object:
        if len(fake.of(messages.Submit)) == 1:
            return SILENT
        id, code = request.jobs[-1].id, "unknown_kind" if request.strict else ""
        last = messages.SubmitAnswer(id, 1, code=code, message=str(id))
        return [*(messages.SubmitAnswer(job.id, 1) for job in request.jobs[:-1]), last]

    fake.replies[messages.Submit] = answer
    with App("test", connection=lambda: Connection(fake.address, try_s=0.2)) as app:
        yield app


def test_handles_are_in_the_order_of_the_calls_whatever_is_answered_first(
    out_of_order: App,
) -> None:
    source = Source(out_of_order, 1_200)
    handles = out_of_order.submit_many(iter(source))
    assert [handle.id for handle in handles] == source.ids


def test_the_first_refused_is_the_first_of_the_calls_whatever_is_answered_first(
    out_of_order: App,
) -> None:
    source = Source(out_of_order, 1_200)
    with pytest.raises(UnknownKind) as raised:
        out_of_order.submit_many(iter(source), strict=True)
    assert str(raised.value).startswith(f"{source.ids[CHUNK - 1]} (3 of 1,200 jobs")


def test_a_message_that_fails_ends_the_pulling(app: App, fake: FakeDispatcher) -> None:
    fake.replies[messages.Submit] = lambda request: Conflict("no more of these")
    source = Source(app, 50_000)
    with pytest.raises(Conflict, match=r"^no more of these$"):
        app.submit_many(iter(source))
    assert source.pulled <= MOST_PULLED


def broken(calls: Source, at: int, error: BaseException) -> Iterator[Call[int]]:
    for number, call in enumerate(calls):
        if number == at:
            raise error from KeyError("the cause")
        yield call


def test_what_a_generator_raises_is_raised_and_what_was_sent_is_accepted(
    app: App, fake: FakeDispatcher
) -> None:
    with pytest.raises(ValueError, match=r"gone") as raised:
        app.submit_many(broken(Source(app, 2_000), 1_300, ValueError("the cursor is gone")))
    assert str(raised.value) == "the cursor is gone"
    assert len(fake.jobs) == 1_000
    assert isinstance(raised.value.__cause__, KeyError)
    assert raised.value.__notes__ == [
        "Of 1,000 jobs sent before this, 1,000 are known to be accepted."
    ]


def test_a_generator_that_raises_at_once_sends_nothing(app: App, fake: FakeDispatcher) -> None:
    with pytest.raises(ValueError, match="gone") as raised:
        app.submit_many(broken(Source(app, 2_000), 100, ValueError("gone")))
    assert fake.requests == []
    assert not hasattr(raised.value, "__notes__")


@pytest.mark.parametrize("reply", [silent, lambda request: Conflict("no")])
def test_what_a_generator_raises_is_raised_although_no_job_is_accepted(
    fake: FakeDispatcher, reply: Any
) -> None:
    fake.replies[messages.Submit] = reply
    with (
        App("test", fake.address, timeout_s=0.3) as app,
        pytest.raises(ValueError, match="gone") as raised,
    ):
        app.submit_many(broken(Source(app, 2_000), 600, ValueError("gone")))
    assert raised.value.__notes__ == ["Of 500 jobs sent before this, 0 are known to be accepted."]


async def test_what_an_asynchronous_generator_raises_is_raised(
    app: App, fake: FakeDispatcher
) -> None:
    async def calls() -> AsyncIterator[Call[int]]:
        async for call in Source(app, 700).awaited():
            yield call
        raise ValueError("gone")

    with pytest.raises(ValueError, match="gone") as raised:
        await app.submit_many_async(calls())
    assert len(fake.jobs) == 500
    assert raised.value.__notes__ == ["Of 500 jobs sent before this, 500 are known to be accepted."]
    await app.close_async()


def test_an_interrupt_does_not_wait_for_a_dispatcher(app: App, fake: FakeDispatcher) -> None:
    fake.replies[messages.Submit] = silent
    with pytest.raises(KeyboardInterrupt):
        app.submit_many(broken(Source(app, 2_000), 600, KeyboardInterrupt()))

    async def pending() -> int:
        for _ in range(10):
            await asyncio.sleep(0)
        return len(app._access.connection()._pending)

    assert app._access.run(pending()) == 0


def test_what_is_no_call_is_refused(app: App, fake: FakeDispatcher) -> None:
    calls: list[Any] = [*Source(app, 700), 7]
    with pytest.raises(InvalidInput, match=r"^7 is not a call"):
        app.submit_many(calls)
    assert fake.requests == []
    with pytest.raises(InvalidInput, match=r"^7 is not a call"):
        app.submit_many(iter(calls))
    assert len(fake.jobs) == 500


async def test_only_coroutines_take_asynchronous_iterables(app: App) -> None:
    calls: Any = Source(app, 1).awaited()
    with pytest.raises(InvalidInput, match=r"is asynchronous; await submit_many_async\(…\)"):
        await asyncio.to_thread(app.submit_many, calls)
    await app.close_async()


def test_a_silent_dispatcher_is_left_for_the_next(fake: FakeDispatcher) -> None:
    with FakeDispatcher() as away:
        away.fall_silent()
        addresses = [away.address, fake.address]
        with App("test", connection=lambda: Connection(addresses, try_s=0.2)) as app:
            handles = app.submit_many(iter(Source(app, 6_000)))
    assert {handle.id for handle in handles} == set(fake.jobs)
    assert len(handles) == 6_000


def test_closing_the_app_ends_it(app: App, fake: FakeDispatcher) -> None:
    fake.replies[messages.Submit] = silent
    with ThreadPoolExecutor(1) as pool:
        submitting = pool.submit(app.submit_many, iter(Source(app, 20_000)))
        fake.heard(messages.Submit, 8)
        app.close()
        with pytest.raises(Unavailable, match="closed"):
            submitting.result()


async def test_a_cancelled_coroutine_leaves_nothing_under_way(
    app: App, fake: FakeDispatcher
) -> None:
    fake.replies[messages.Submit] = silent
    submitting = asyncio.create_task(app.submit_many_async(Source(app, 20_000)))
    await asyncio.to_thread(fake.heard, messages.Submit, 8)
    submitting.cancel()
    await asyncio.wait([submitting])
    assert submitting.cancelled()
    await asyncio.sleep(0)
    assert app._access.connection()._pending == {}
    await app.close_async()


def test_a_submitted_call_keeps_its_id(app: App) -> None:
    call = app.job(add).call(1)
    app.submit_many([call])
    assert call.take_id(UUID(int=9)).id == call.id != UUID(int=9)


# progress


class Terminal(io.StringIO):
    """A standard error on which a bar can be drawn."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bar does not wait until it is worth while."""
    monkeypatch.setattr(progress, "AFTER_S", 0)
    monkeypatch.setenv("TERM", "xterm")


@pytest.mark.parametrize("has_length", [True, False])
@pytest.mark.usefixtures("at_once")
def test_a_bar_shows_the_total_if_there_is_one(
    app: App, monkeypatch: pytest.MonkeyPatch, has_length: bool
) -> None:
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    source = Source(app, 700)
    app.submit_many(list(source) if has_length else iter(source), progress=True)
    assert ("700/700" if has_length else "700/?") in terminal.getvalue()


@pytest.mark.usefixtures("at_once")
async def test_a_coroutine_draws_a_bar_too(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    await app.submit_many_async(list(Source(app, 700)), progress=True)
    assert "700/700" in terminal.getvalue()
    await app.close_async()


@pytest.mark.usefixtures("at_once")
def test_nothing_is_drawn_where_there_is_no_terminal(
    app: App, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    app.submit_many(list(Source(app, 700)), progress=True)
    monkeypatch.setattr(sys, "stderr", None)
    app.submit_many([app._kinds["add"].call(number) for number in range(3)], progress=True)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(("wanted", "after_s"), [(False, 0), (True, 3600)])
def test_nothing_is_drawn_unasked_or_for_a_short_one(
    app: App, monkeypatch: pytest.MonkeyPatch, wanted: bool, after_s: float
) -> None:
    monkeypatch.setattr(progress, "AFTER_S", after_s)
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    app.submit_many(list(Source(app, 700)), progress=wanted)
    assert terminal.getvalue() == ""
