"""Requests that change something, sent again because their answer got lost: one effect each."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from longshore.client.connection import Connection
from longshore.model.job import Job, JobState, RetryVerdict, Submission
from longshore.model.worker import DrainVerdict, WorkerView
from longshore.testing.builders import a_job, new_id
from longshore.wire import messages as m

from .stage import Client, Stage, StagedWorker
from .test_stories import tell


async def job(stage: Stage, submission: Submission) -> Job:
    found = await stage.model.job(submission.id)
    assert found is not None
    return found


async def failed(stage: Stage, worker: StagedWorker, client: Client) -> Submission:
    """A job that was run once, and failed."""
    submission = a_job()
    await client.submit(submission)
    await fails(stage, worker)
    await client.wait(submission)
    return submission


async def fails(stage: Stage, worker: StagedWorker) -> None:
    await stage.until(lambda: bool(worker.jobs.running))
    worker.jobs.fail()


def test_a_retry_whose_answer_got_lost_opens_one_round_though_the_job_fails_at_once() -> None:
    """G3: the client repeats it after the job has failed once more."""

    async def story(stage: Stage) -> None:
        await stage.dispatcher()
        worker, client = await stage.worker(), stage.client()
        submission = await failed(stage, worker, client)
        listener = stage.network.listeners["d1/clients"]
        send, lost = listener.send, list[Sequence[bytes]]()

        def lose_the_first(peer: bytes, frames: Sequence[bytes]) -> bool:
            if not lost:
                lost.append(frames)
                return True
            return send(peer, frames)

        listener.send = lose_the_first  # type: ignore[method-assign]
        async with Connection(
            "tcp://d1", connect=lambda _, heard: stage.network.connect("d1/clients", heard)
        ) as connection:
            asking = asyncio.create_task(connection.retry([submission.id]))
            await fails(stage, worker)
            [answer] = await asking
        assert lost
        assert answer.verdict is RetryVerdict.RETRIED
        found = await job(stage, submission)
        assert (found.state, found.round) == (JobState.FAILED, 2)

    tell(story)


def test_a_retry_by_another_request_opens_another_round() -> None:
    async def story(stage: Stage) -> None:
        await stage.dispatcher()
        worker, client = await stage.worker(), stage.client()
        submission = await failed(stage, worker, client)
        for rid in (5, 6):
            await client.ask(m.Retry(rid, new_id(), (submission.id,)))
            await fails(stage, worker)
            await client.wait(submission)
        assert (await job(stage, submission)).round == 3

    tell(story)


def test_a_cancel_again_changes_nothing() -> None:
    async def story(stage: Stage) -> None:
        await stage.dispatcher()
        worker, client, ready = await stage.worker(slots=1), stage.client(), a_job()
        running = a_job()
        await client.submit(running)
        await stage.until(lambda: bool(worker.jobs.running))
        await client.submit(ready)
        worker.jobs.stubborn = True
        request = m.Cancel(5, new_id(), (running.id, ready.id))
        await client.ask(request)
        before = [await job(stage, one) for one in (running, ready)]
        assert [one.state for one in before] == [JobState.CANCELLING, JobState.CANCELLED]
        await client.ask(request)
        assert [await job(stage, one) for one in (running, ready)] == before

    tell(story)


def test_a_pause_again_changes_nothing() -> None:
    async def story(stage: Stage) -> None:
        await stage.dispatcher()
        client = stage.client()
        await client.submit(a_job(queue="mail"))
        for paused in (True, False):
            request = m.Pause(5, new_id(), "mail", paused)
            await client.ask(request)
            before = await stage.model.queues()
            await client.ask(request)
            assert await stage.model.queues() == before
            assert [one.paused for one in before] == [paused]

    tell(story)


def test_a_drain_again_changes_nothing() -> None:
    async def story(stage: Stage) -> None:
        await stage.dispatcher()
        worker, client = await stage.worker("w1"), stage.client()
        await client.submit(a_job())
        await stage.until(lambda: bool(worker.jobs.running))
        request = m.Drain(5, new_id(), ("w1",))
        await client.ask(request)
        before = await workers(stage)
        [answer] = await answers(client, request)
        assert answer.verdict is DrainVerdict.ALREADY_DRAINING
        assert await workers(stage) == before

    async def answers(client: Client, request: m.Drain) -> tuple[m.DrainAnswer, ...]:
        found = await client.ask(request)
        assert isinstance(found, tuple), found
        return found

    async def workers(stage: Stage) -> list[tuple[bool, bool]]:
        found: list[WorkerView] = await stage.model.workers()
        return [(one.alive, one.draining) for one in found]

    tell(story)


def test_a_prune_again_removes_nothing_more() -> None:
    async def story(stage: Stage) -> None:
        await stage.dispatcher()
        worker, client = await stage.worker(), stage.client()
        gone, kept = [await failed(stage, worker, client) for _ in range(2)]
        request = m.Prune(5, new_id(), (JobState.FAILED,), keep=1)
        for _ in range(2):
            await client.ask(request)
            assert await stage.model.job(gone.id) is None
            assert await stage.model.job(kept.id) is not None

    tell(story)
