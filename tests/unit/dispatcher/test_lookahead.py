"""Jobs that a worker holds ahead of its slots: what is shown of them, and what never waits so."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from longshore.config import WorkerSettings
from longshore.model.job import Job, JobPage, JobState, Submission
from longshore.model.reports import CrashReport
from longshore.model.worker import Pool
from longshore.testing.builders import a_job, new_id
from longshore.wire import messages as m

from .stage import Client, Stage, StagedWorker
from .test_stories import tell

PATIENT = WorkerSettings(drain_s=10.0, lookahead_s=20.0, lookahead_runs=1)
"""One short run is enough to know a kind, and what is held ahead goes back after 40 s."""


def grind(priority: int = 0) -> Submission:
    return a_job(kind="grind", priority=priority)


async def looking_ahead(
    stage: Stage, client: Client, name: str = "w1", *, slots: int = 1, to: str = "d1"
) -> StagedWorker:
    """A worker that asks for jobs ahead of its processes."""
    worker = await stage.worker(name, slots=slots, to=to, settings=PATIENT)
    await client.submit(first := grind())
    await stage.until(lambda: bool(worker.processes.running))
    worker.processes.succeed()
    await client.wait(first)
    return worker


async def begun(stage: Stage, worker: StagedWorker, *jobs: Submission) -> None:
    """Waits until exactly these run."""
    ids = {job.id for job in jobs}
    await stage.until(lambda: {key[0] for key in worker.processes.running} == ids)


async def shown(client: Client, job: Submission) -> Job:
    answer = await client.ask(m.Show(5, job.id))
    assert isinstance(answer, Job), answer
    return answer


async def list_of(client: Client) -> Sequence[Job]:
    answer = await client.ask(m.ListJobs(6))
    assert isinstance(answer, JobPage), answer
    return answer.jobs


def test_a_job_that_is_held_ahead_is_not_shown_as_running() -> None:
    async def story(stage: Stage) -> None:
        await stage.dispatcher()
        client = stage.client()
        worker = await looking_ahead(stage, client)
        jobs = [grind() for _ in range(3)]
        await client.submit(*jobs)
        await begun(stage, worker, jobs[0])
        assert await stage.state(jobs[2]) is JobState.RUNNING, "a worker has it"
        assert (await client.why(jobs[0])).startswith("running on w1 for ")
        assert await client.why(jobs[1]) == "held ahead by w1, behind 1 running job"
        job = await shown(client, jobs[1])
        assert (job.held_behind, job.started_at) == (1, None)
        behind = {job.id: job.held_behind for job in await list_of(client)}
        assert [behind[job.id] for job in jobs] == [None, 1, 1]

    tell(story)


def test_another_dispatcher_says_that_it_does_not_know_whether_a_job_runs() -> None:
    async def story(stage: Stage) -> None:
        await stage.dispatcher("d1")
        await stage.dispatcher("d2")
        worker = await looking_ahead(stage, stage.client("d1"), to="d1")
        jobs = [grind() for _ in range(3)]
        await stage.client("d1").submit(*jobs)
        await begun(stage, worker, jobs[0])
        why = await stage.client("d2").why(jobs[2])
        assert why.endswith(", or held ahead there: it has 3 jobs for 1 process")

    tell(story)


def test_a_job_started_when_its_body_began_not_when_it_was_claimed() -> None:
    async def story(stage: Stage) -> None:
        await stage.dispatcher()
        client = stage.client()
        worker = await looking_ahead(stage, client)
        first, second = grind(), grind()
        await client.submit(first, second)
        await begun(stage, worker, first)
        await stage.until(lambda: stage.clock.now() >= 5.0)
        worker.processes.succeed()
        began_at = stage.clock.utc()
        await begun(stage, worker, second)
        await stage.until(lambda: stage.clock.now() >= 8.0)
        worker.processes.succeed()
        await client.wait(first, second)
        job = await stage.model.job(second.id)
        assert job is not None
        assert job.started_at is not None
        assert abs(job.started_at - began_at) < timedelta(milliseconds=1)
        assert job.history[-2].at < began_at - timedelta(seconds=1), "it was claimed before"

    tell(story)


def test_the_backstop_does_not_count_the_time_that_a_job_is_held_ahead() -> None:
    async def story(stage: Stage) -> None:
        await stage.dispatcher()
        client = stage.client()
        worker = await looking_ahead(stage, client)
        first = grind()
        second = a_job(kind="grind", timeout_s=1.0)
        await client.submit(first, second)
        await begun(stage, worker, first)
        await stage.until(lambda: stage.clock.now() >= 20.0)
        worker.processes.succeed()
        await begun(stage, worker, second)
        await stage.until(lambda: stage.clock.now() >= 25.0)
        assert await stage.state(second) is JobState.RUNNING
        [ended] = await client.wait(second)
        assert ended.error is not None
        assert stage.clock.now() >= 31.0

    tell(story)


def test_an_urgent_job_begins_before_all_that_is_held_ahead() -> None:
    async def story(stage: Stage) -> None:
        await stage.dispatcher()
        client = stage.client()
        worker = await looking_ahead(stage, client)
        first, second, urgent = grind(), grind(), grind(priority=9)
        await client.submit(first, second)
        await begun(stage, worker, first)
        await client.submit(urgent)
        worker.processes.succeed()
        await begun(stage, worker, urgent)
        worker.processes.succeed()
        await begun(stage, worker, second)

    tell(story)


def test_a_job_with_a_crash_behind_it_waits_for_a_free_slot_and_gets_it() -> None:
    """It is never held ahead; nor is it passed over while short jobs keep coming."""

    async def story(stage: Stage) -> None:
        await stage.dispatcher()
        client = stage.client()
        worker = await looking_ahead(stage, client)
        suspect, others = grind(), [grind() for _ in range(5)]
        await client.submit(suspect)
        await begun(stage, worker, suspect)
        await client.submit(*others[:3])
        worker.processes.fail(CrashReport)
        await begun(stage, worker, others[0])
        await stage.until(lambda: stage.model._jobs[suspect.id].job.crashes == 1)
        assert await stage.state(suspect) is JobState.READY
        await client.submit(*others[3:])
        order = [key[0] for key in worker.processes.running]
        while suspect.id not in order:
            assert (await shown(client, suspect)).held_behind is None
            worker.processes.succeed()
            await stage.until(lambda: bool(worker.processes.running))
            order += [key[0] for key in worker.processes.running]
        assert order == [*(job.id for job in others[:3]), suspect.id]

    tell(story)


def test_losses_never_poison_a_job_that_was_held_ahead_each_time() -> None:
    async def story(stage: Stage) -> None:
        await stage.dispatcher()
        client = stage.client()
        running, held = grind(priority=1), grind()
        for name, previous in (("w1", ""), ("w2", "w1"), ("w3", "w2")):
            worker = await looking_ahead(stage, client, name)
            # Its dispatcher sees only now that the worker before has died.
            stage.ended.add(previous)
            if not previous:
                await client.submit(running, held)
            await begun(stage, worker, running)
            line = worker.worker._lines[Pool.PROCESS]
            await stage.until(line.__len__)
            await worker.die()
        stage.ended.add("w3")
        [ended] = await client.wait(running)
        assert ended.state is JobState.FAILED
        job = await stage.model.job(held.id)
        assert job is not None
        assert (job.state, job.crashes) == (JobState.READY, 0)

    tell(story)


def test_nothing_is_given_to_a_slot_that_an_aborted_attempt_still_holds() -> None:
    """Otherwise the next attempt would come and go every 0.1 s until the kill."""

    async def story(stage: Stage) -> None:
        await stage.dispatcher(cancel_grace_s=3.0)
        client = stage.client()
        worker = await stage.worker("w1", slots=1)
        stubborn, waiting = grind(), grind()
        await client.submit(stubborn)
        await begun(stage, worker, stubborn)
        worker.processes.stubborn = True
        await client.ask(m.Cancel(7, new_id(), (stubborn.id,)))
        [ended] = await client.wait(stubborn)
        assert ended.state is JobState.CANCELLED, "by force"
        await client.submit(waiting)
        before = await stage.model.job(waiting.id)
        await stage.until(lambda: stage.clock.now() >= 20.0)
        after = await stage.model.job(waiting.id)
        assert before is not None
        assert after is not None
        assert (after.state, after.token) == (JobState.READY, before.token)
        worker.processes.succeed()
        await begun(stage, worker, waiting)

    tell(story)
