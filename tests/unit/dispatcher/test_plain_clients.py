"""Clients of the plain dialogue, told as stories on virtual time."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from longshore.model.job import JobFilter, JobState
from longshore.testing.builders import new_id
from longshore.testing.faults import Fault
from longshore.wire import messages as m

from .plain_player import ready
from .stage import Stage
from .test_stories import tell


class PlainClient:
    """One socket of a plain client."""

    def __init__(self, stage: Stage) -> None:
        self._answers: asyncio.Queue[list[bytes]] = asyncio.Queue()
        self._link = stage.network.connect("d1/clients", self._receive)

    def _receive(self, arrived: list[tuple[bytes, list[bytes]]]) -> None:
        for _, frames in arrived:
            self._answers.put_nowait(frames)

    def say(self, *frames: bytes) -> None:
        self._link.send(b"", frames)

    def ask(self, job: bytes) -> None:
        self.say(b"", job)

    async def answer(self) -> list[bytes]:
        return await self._answers.get()

    async def error(self) -> dict[str, Any]:
        delimiter, verb, body = await self.answer()
        assert (delimiter, verb) == (b"", b"ERROR")
        found: dict[str, Any] = msgspec.json.decode(body)
        assert set(found) == {"reason", "type", "message", "traceback"}
        return found

    def leave(self) -> None:
        self._link.close()


async def states(stage: Stage) -> list[JobState]:
    return [job.state for job in (await stage.model.jobs(JobFilter())).jobs]


def test_a_plain_client_gets_the_result_of_its_job() -> None:
    async def story(stage: Stage) -> None:
        await stage.dispatcher()
        worker, client = await ready(stage), PlainClient(stage)
        client.ask(b"\x00 any bytes \xff")
        await stage.until(lambda: worker.jobs == [b"\x00 any bytes \xff"])
        worker.say(b"the result")
        assert await client.answer() == [b"", b"the result"]
        (job,) = (await stage.model.jobs(JobFilter())).jobs
        assert (job.kind, job.options.raw, job.state) == ("raw", True, JobState.SUCCEEDED)
        assert stage.clock.now() < 0.5

    tell(story)


def test_a_job_waits_while_no_worker_is_idle() -> None:
    """Accepted is durable: it is in the store, not in a queue of the dispatcher."""

    async def story(stage: Stage) -> None:
        await stage.dispatcher()
        client = PlainClient(stage)
        client.ask(b"x")
        client.ask(b"y")
        await stage.until(lambda: len(stage.model._jobs) == 2)
        assert await states(stage) == [JobState.READY, JobState.READY]
        worker = await ready(stage)
        for times in (1, 2):
            job = await worker.given(times)
            worker.say(b"result of " + job)
            assert await client.answer() == [b"", b"result of " + job]

    tell(story)


def test_a_failed_job_answers_with_an_error() -> None:
    async def story(stage: Stage) -> None:
        await stage.dispatcher(max_value_bytes=100)
        worker, client = await ready(stage), PlainClient(stage)
        client.ask(b"x")
        await stage.until(lambda: bool(worker.jobs))
        worker.say(b"y" * 101)
        error = await client.error()
        assert error["reason"] == "invalid_result"
        assert "max_value_bytes (100)" in error["message"]

    tell(story)


def test_a_cancelled_job_answers_with_an_error() -> None:
    async def story(stage: Stage) -> None:
        await stage.dispatcher()
        client = PlainClient(stage)
        client.ask(b"x")
        await stage.until(lambda: bool(stage.model._jobs))
        await stage.client().ask(m.Cancel(1, new_id(), (1,)))
        assert (await client.error())["reason"] == "cancelled"

    tell(story)


def test_what_cannot_be_a_job_is_refused_or_dropped() -> None:
    async def story(stage: Stage) -> None:
        await stage.dispatcher(max_value_bytes=100)
        client = PlainClient(stage)
        client.ask(b"")
        client.say(b"x", b"a job")
        client.say(b"a job")
        client.ask(b"x" * 101)
        assert (await client.error())["reason"] == "too_large"
        client.ask(b"PONG")
        assert (await client.error())["reason"] == "invalid_input"
        assert await states(stage) == []

    tell(story)


def test_too_many_jobs_of_plain_clients_are_refused_until_some_have_ended() -> None:
    async def story(stage: Stage) -> None:
        await stage.dispatcher(max_plain_requests=2)
        worker, client = await ready(stage), PlainClient(stage)
        for job in (b"1", b"2", b"3"):
            client.ask(job)
        error = await client.error()
        assert (error["reason"], "max_plain_requests" in error["message"]) == ("unavailable", True)
        await stage.until(lambda: worker.jobs == [b"1"])
        worker.say(b"one")
        assert await client.answer() == [b"", b"one"]
        client.ask(b"4")
        # The network may have brought them in another order.
        for times, jobs in ((2, (b"2", b"3")), (3, (b"4",))):
            job = await worker.given(times)
            assert job in jobs
            worker.say(b"result of " + job)
            assert await client.answer() == [b"", b"result of " + job]

    tell(story)


def test_the_result_of_a_client_that_is_gone_stays_in_the_store() -> None:
    async def story(stage: Stage) -> None:
        await stage.dispatcher()
        worker, client = await ready(stage), PlainClient(stage)
        client.ask(b"x")
        await stage.until(lambda: bool(worker.jobs))
        client.leave()
        worker.say(b"done")
        await stage.client().ask(m.Wait(1, tuple(stage.model._jobs), 5.0, all=True))
        (row,) = stage.model._jobs.values()
        assert (row.state, row.job.result) == (JobState.SUCCEEDED, b"done")

    tell(story)


def test_a_job_that_comes_while_the_store_is_away_is_run_when_it_is_back() -> None:
    async def story(stage: Stage) -> None:
        await stage.dispatcher()
        worker, client = await ready(stage), PlainClient(stage)
        stage.store.plan = lambda _verb: Fault.AFTER
        client.ask(b"x")
        await stage.until(lambda: bool(stage.model._jobs))
        stage.store.plan = lambda _verb: None
        await stage.until(lambda: worker.jobs == [b"x"])
        worker.say(b"done")
        assert await client.answer() == [b"", b"done"]
        assert await states(stage) == [JobState.SUCCEEDED]

    tell(story)


def test_a_job_that_another_dispatcher_ran_is_answered_too() -> None:
    async def story(stage: Stage) -> None:
        await stage.dispatcher("d1")
        await stage.dispatcher("d2")
        client = PlainClient(stage)
        worker = await ready(stage, to="d2")
        client.ask(b"x")
        await stage.until(lambda: worker.jobs == [b"x"], at_most_s=3.0)
        worker.say(b"done")
        assert await client.answer() == [b"", b"done"]

    tell(story)


def test_a_full_client_on_the_same_socket_is_not_disturbed() -> None:
    async def story(stage: Stage) -> None:
        await stage.dispatcher()
        await ready(stage)
        PlainClient(stage).ask(b"x")
        answer = await stage.client().ask(m.ListWorkers(1))
        assert isinstance(answer, tuple)
        (worker,) = answer
        assert worker.info.name.startswith("plain-")
        assert worker.info.pools == {"coroutine": 1}

    tell(story)
