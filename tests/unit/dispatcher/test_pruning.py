"""Old jobs are removed in the background, and when a client asks; on virtual time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from longshore.config import DispatcherSettings
from longshore.dispatcher.pruner import Pruner
from longshore.errors import InvalidInput
from longshore.model.group import GroupPart
from longshore.model.job import JobState, Submission
from longshore.model.reports import SuccessReport
from longshore.model.retention import Pruned
from longshore.testing.builders import Scene, a_group, a_job, new_id, some_jobs
from longshore.testing.faults import Fault, scripted
from longshore.testing.virtual import run_virtually
from longshore.wire import messages as m

from .stage import Client, Stage, StagedWorker

S = JobState


def tell(story: Callable[[Stage], Awaitable[None]]) -> None:
    async def main() -> None:
        async with Stage() as stage:
            await story(stage)

    run_virtually(main())


async def a_dispatcher(
    stage: Stage, name: str = "d1", *, good_s: float = 100.0, bad_s: float = 300.0, most: int = 1000
) -> None:
    """A dispatcher that keeps jobs for a short time."""
    await stage.dispatcher(
        name, prune_s=10.0, keep_succeeded_s=good_s, keep_failed_s=bad_s, keep_most=most
    )


async def succeed(stage: Stage, worker: StagedWorker, client: Client, *jobs: Submission) -> None:
    """These jobs are submitted and end well."""
    await client.submit(*jobs)
    await stage.until(lambda: len(worker.jobs.running) == len(jobs))
    worker.jobs.succeed()
    await client.wait(*jobs)


def test_jobs_go_when_their_time_is_over_and_not_before() -> None:
    async def story(stage: Stage) -> None:
        await a_dispatcher(stage)
        worker, client = await stage.worker(), stage.client()
        good, bad, live = a_job(), a_job(), a_job(delay_s=1e6)
        await succeed(stage, worker, client, good)
        await client.submit(bad, live)
        await stage.until(lambda: bool(worker.jobs.running))
        worker.jobs.fail()
        await client.wait(bad)
        took = await stage.until(lambda: good.id not in stage.model._jobs)
        assert 99 < took < 112
        assert {bad.id, live.id} <= stage.model._jobs.keys()
        took += await stage.until(lambda: bad.id not in stage.model._jobs)
        assert 299 < took < 312
        assert await stage.state(live) is S.DELAYED

    tell(story)


def test_nothing_goes_if_everything_is_kept_for_ever() -> None:
    async def story(stage: Stage) -> None:
        await a_dispatcher(stage, good_s=0.0, bad_s=0.0, most=0)
        worker, client = await stage.worker(), stage.client()
        job = a_job()
        await succeed(stage, worker, client, job)
        await stage.until(lambda: stage.clock.now() > 1000, at_most_s=2000)
        assert await stage.state(job) is S.SUCCEEDED

    tell(story)


def test_no_more_are_kept_than_the_setting_says() -> None:
    async def story(stage: Stage) -> None:
        await stage.dispatcher(prune_s=10.0, keep_most=2)
        worker, client = await stage.worker(), stage.client()
        jobs = some_jobs(5)
        await succeed(stage, worker, client, *jobs)
        await stage.until(lambda: len(stage.model._jobs) == 2)
        assert [job.id for job in jobs[3:]] == list(stage.model._jobs)

    tell(story)


def test_a_job_that_was_passed_while_it_ran_goes_later() -> None:
    async def story(stage: Stage) -> None:
        await a_dispatcher(stage)
        worker, client = await stage.worker(slots=2), stage.client()
        long, short = a_job(), a_job()
        await client.submit(long, short)
        await stage.until(lambda: len(worker.jobs.running) == 2)
        attempt = next(held for held in worker.jobs.running if held[0] == short.id)
        worker.jobs.end(SuccessReport(*attempt))
        await stage.until(lambda: short.id not in stage.model._jobs)
        worker.jobs.succeed()
        await client.wait(long)
        took = await stage.until(lambda: long.id not in stage.model._jobs, at_most_s=1000)
        assert took > 99

    tell(story)


def test_an_outage_in_the_middle_is_survived_and_two_dispatchers_do_not_mind() -> None:
    async def story(stage: Stage) -> None:
        await a_dispatcher(stage)
        await a_dispatcher(stage, "d2")
        worker, client = await stage.worker(), stage.client()
        jobs = some_jobs(10)
        await succeed(stage, worker, client, *jobs)
        await stage.until(lambda: stage.clock.now() > 80)
        stage.store.plan = scripted(
            ("prune", Fault.BEFORE), ("prune", Fault.AFTER), ("prune", Fault.AFTER)
        )
        await stage.until(lambda: not stage.model._jobs)
        job = a_job()
        await succeed(stage, worker, client, job)
        assert await stage.state(job) is S.SUCCEEDED

    tell(story)


def test_a_worker_that_ended_long_ago_is_forgotten() -> None:
    async def story(stage: Stage) -> None:
        await stage.dispatcher(prune_s=10.0, keep_workers_s=100.0)
        worker = await stage.worker()
        await worker.die()
        await stage.until(lambda: not stage.model._workers)
        assert 100 < stage.clock.now() < 140

    tell(story)


def test_workers_are_forgotten_as_fast_as_they_end() -> None:
    """Many short-lived ones, or a first pruning after a long time."""

    async def story(stage: Stage) -> None:
        scene = Scene(stage.model)
        for _ in range(2_500):
            slot = await scene.attend()
            await scene.store.harvest(slot.worker, slot.session, "lost", crash=False, crash_limit=3)
        await Pruner(stage.model, DispatcherSettings(keep_workers_s=1e-9)).prune()
        assert not stage.model._workers

    tell(story)


def test_who_asks_has_pruned_what_they_name() -> None:
    async def story(stage: Stage) -> None:
        await stage.dispatcher()
        worker, client = await stage.worker(), stage.client()
        jobs = some_jobs(3)
        await succeed(stage, worker, client, *jobs)
        usual = await client.ask(m.Prune(1, new_id()))
        assert isinstance(usual, Pruned)
        assert (usual.removed, usual.done) == ({}, True)
        dry = await client.ask(m.Prune(2, new_id(), keep=1, dry_run=True))
        assert isinstance(dry, Pruned)
        assert dry.removed == {S.SUCCEEDED: 2}
        on = m.Prune(3, new_id(), keep=1, dry_run=True, after=dry.up_to, counted=dry.removed)
        more = await client.ask(on)
        assert isinstance(more, Pruned)
        assert more.removed == {}
        done = await client.ask(m.Prune(4, new_id(), (S.SUCCEEDED,), older_than_s=0.0))
        assert isinstance(done, Pruned)
        assert done.removed == {S.SUCCEEDED: 3}
        gone = await client.ask(m.Show(5, jobs[0].id))
        assert isinstance(gone, m.Err)
        assert gone.code == "not_found"

    tell(story)


async def succeed_as_group(stage: Stage, worker: StagedWorker, client: Client) -> GroupPart:
    """A group is submitted and ends well."""
    part = a_group({"a": "", "b": ""})
    await client.ask(m.SubmitGroup(1, part, 0))
    await stage.until(lambda: len(worker.jobs.running) == 2)
    worker.jobs.succeed()
    await client.ask(m.Wait(2, (part.head.id,), 60.0))
    return part


def test_a_group_goes_when_its_time_is_over_and_not_before() -> None:
    async def story(stage: Stage) -> None:
        await a_dispatcher(stage)
        part = await succeed_as_group(stage, await stage.worker(), stage.client())
        stage.store.plan = scripted(*[("prune_groups", fault) for fault in Fault])
        took = await stage.until(lambda: not stage.model._groups)
        assert 99 < took < 142
        assert not {node.job.id for node in part.nodes} & stage.model._jobs.keys()

    tell(story)


def test_who_asks_has_groups_pruned_too() -> None:
    async def story(stage: Stage) -> None:
        await stage.dispatcher()
        await succeed_as_group(stage, await stage.worker(), stage.client())
        dry = await stage.client().ask(m.Prune(3, new_id(), older_than_s=0.0, dry_run=True))
        assert dry == Pruned({}, 0, True, groups=1, group_jobs=2)
        steps: list[Pruned] = []
        while not steps or not steps[-1].done:
            step = await stage.client().ask(m.Prune(4, new_id(), older_than_s=0.0))
            assert isinstance(step, Pruned)
            steps.append(step)
        assert sum(step.groups for step in steps) == 1
        assert sum(step.group_jobs for step in steps) == 2
        assert not stage.model._groups

    tell(story)


def test_what_cannot_be_pruned_is_refused_with_what_to_do() -> None:
    async def story(stage: Stage) -> None:
        await stage.dispatcher()
        client = stage.client()
        for request, words in (
            (
                m.Prune(1, new_id(), (S.RUNNING,)),
                "a job that is running is never pruned; name a state of",
            ),
            (m.Prune(2, new_id(), older_than_s=-1.0), "give seconds, 0 or more"),
            (m.Prune(3, new_id(), keep=-1), "give a number of jobs, 0 or more"),
        ):
            answer = await client.ask(request)
            assert isinstance(answer, m.Err)
            assert answer.code == InvalidInput.code
            assert words in answer.message

    tell(story)
