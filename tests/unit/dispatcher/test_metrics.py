"""What dispatchers count: the sum over them is the truth, whatever dies."""

from __future__ import annotations

import asyncio
from collections import defaultdict

import pytest

from longshore.core import metering as m
from longshore.core.metering import OTHER, Histogram, Metric
from longshore.dispatcher.engine import Dispatcher
from longshore.dispatcher.meter import OUTCOMES, Meter
from longshore.model.ends import End
from longshore.model.job import Options, RetryPolicy, Submission
from longshore.model.limits import JobLimit
from longshore.model.reports import CrashReport
from longshore.testing.builders import a_job, new_id
from longshore.testing.faults import Fault, scripted
from longshore.wire import messages

from .stage import Stage
from .test_stories import tell

LABELS = 50
LOOK_S = 5.0
LATER_S = 1.0
ONCE = Options(retry=RetryPolicy(attempts=1))


async def metered(stage: Stage, name: str = "d1", labels: int = LABELS) -> Dispatcher:
    stage.make_meter = lambda: Meter(labels)
    return await stage.dispatcher(name, metrics_s=LOOK_S)


def shown(metric: Metric, *dispatchers: Dispatcher) -> dict[tuple[str, ...], float]:
    """The sum over dispatchers, of what is not 0; of a histogram, how many values it has."""
    found: defaultdict[tuple[str, ...], float] = defaultdict(float)
    for dispatcher in dispatchers:
        assert dispatcher.figures is not None
        for sample in dispatcher.figures.samples():
            if sample.metric is metric:
                found[sample.labels] += _number(sample.value)
    return {labels: value for labels, value in found.items() if value}


def _number(value: float | Histogram) -> float:
    return sum(value.counts) if isinstance(value, Histogram) else value


def tellers(*dispatchers: Dispatcher) -> list[bool]:
    return [bool(shown(m.JOBS, one)) for one in dispatchers]


def test_what_a_dispatcher_does_is_counted() -> None:
    async def story(stage: Stage) -> None:
        dispatcher = await metered(stage)
        worker, client = await stage.worker(slots=2), stage.client()
        jobs = [Submission(job.id, "work", job.args, options=ONCE) for job in map(_job, range(4))]
        await client.submit(*jobs)
        await stage.until(lambda: len(worker.jobs.running) == 2)
        assert shown(m.USED_SLOTS, dispatcher) == {("coroutine",): 2}
        worker.jobs.succeed()
        await stage.until(lambda: len(worker.jobs.running) == 2)
        worker.jobs.fail()
        await client.wait(*jobs)
        assert shown(m.SUBMITS, dispatcher) == {("accepted",): 4}
        assert shown(m.STARTED, dispatcher) == {("work", "submit"): 2, ("work", "claim"): 2}
        ended = {("work", "succeeded"): 2, ("work", "failed"): 2}
        assert shown(m.ENDED_ATTEMPTS, dispatcher) == ended
        assert shown(m.ENDED_JOBS, dispatcher) == {("succeeded",): 2, ("failed",): 2}
        assert shown(m.RUN, dispatcher) == {("work",): 4}
        assert shown(m.WAIT, dispatcher) == {("work",): 4}
        assert shown(m.LEASES, dispatcher) == {(): 1}
        assert shown(m.SLOTS, dispatcher) == {("coroutine",): 2, ("process",): 2}

    tell(story)


def _job(_: int) -> Submission:
    return a_job()


def test_end_whose_answer_got_lost_is_counted_once() -> None:
    async def story(stage: Stage) -> None:
        dispatcher = await metered(stage)
        worker, client, job = await stage.worker(), stage.client(), a_job()
        await client.submit(job)
        await stage.until(lambda: bool(worker.jobs.running))
        stage.store.plan = scripted(("pump", Fault.AFTER))
        worker.jobs.succeed()
        await client.wait(job)
        await stage.until(lambda: shown(m.ENDED_ATTEMPTS, dispatcher))
        assert shown(m.ENDED_JOBS, dispatcher) == {("succeeded",): 1}
        assert shown(m.ENDED_ATTEMPTS, dispatcher) == {("work", "succeeded"): 1}
        assert shown(m.STORE_ERRORS, dispatcher) == {("pump",): 1}

    tell(story)


def test_one_dispatcher_tells_what_is_in_the_store_and_never_two() -> None:
    async def story(stage: Stage) -> None:
        first = await metered(stage, "d1")
        await asyncio.sleep(LATER_S)
        second = await metered(stage, "d2")
        await stage.client("d1").submit(*(a_job() for _ in range(3)))
        await asyncio.sleep(2 * LOOK_S)
        assert tellers(first, second) == [True, False]
        assert shown(m.JOBS, first, second) == {("default", "work", "ready"): 3}
        [(labels, at)] = shown(m.OLDEST, first, second).items()
        assert (labels, at < stage.clock.utc().timestamp()) == (("default", "work"), True)
        stage.store.plan = _away
        await stage.until(lambda: not any(tellers(first, second)))
        stage.store.plan = lambda verb: None
        await stage.until(lambda: any(tellers(first, second)))
        await stage.kill(first)
        await stage.until(lambda: tellers(second) == [True])
        assert first.figures is not None
        assert tellers(first) == [False]  # its lease ended before
        assert shown(m.JOBS, first, second) == {("default", "work", "ready"): 3}

    tell(story)


def _away(verb: str) -> Fault | None:
    return Fault.BEFORE


def test_dispatcher_that_cannot_reach_the_store_is_not_ready_and_says_why() -> None:
    async def story(stage: Stage) -> None:
        dispatcher = await metered(stage)
        figures = dispatcher.figures
        assert figures is not None
        assert figures.troubles() == []
        stage.store.plan = _away
        await stage.until(lambda: len(figures.troubles()) == 2)
        assert figures.troubles() == [
            "the store does not answer",
            "its own lease in the store has ended",
        ]
        assert shown(m.READY, dispatcher) == {}
        stage.store.plan = lambda verb: None
        await stage.until(lambda: figures.troubles() == [])
        assert shown(m.READY, dispatcher) == {(): 1}

    tell(story)


def test_ready_jobs_are_shown_by_what_holds_them_back() -> None:
    async def story(stage: Stage) -> None:
        dispatcher = await metered(stage)
        worker, client = await stage.worker(slots=1), stage.client()
        await client.ask(messages.Pause(9, new_id(), "held", True))
        await client.submit(*(a_job() for _ in range(3)), *(a_job(queue="held") for _ in range(2)))
        await client.submit(a_job(kind="unknown"))
        await stage.until(lambda: bool(worker.jobs.running))
        await asyncio.sleep(2 * LOOK_S)
        blocked = {("busy",): 2, ("paused_queue",): 2, ("no_worker",): 1}
        assert shown(m.BLOCKED, dispatcher) == blocked
        before, began = shown(m.BLOCKED_TIME, dispatcher), stage.clock.now()
        await asyncio.sleep(10 * LOOK_S)
        after, took_s = shown(m.BLOCKED_TIME, dispatcher), stage.clock.now() - began
        for cause, jobs in blocked.items():
            passed_s = after[cause] - before[cause]
            assert passed_s == pytest.approx(jobs * took_s, abs=2 * jobs * LOOK_S)

    tell(story)


def test_what_the_jobs_of_a_queue_wait_for_is_added_up_and_kept() -> None:
    async def story(stage: Stage) -> None:
        dispatcher = await metered(stage)
        worker, client = await stage.worker(slots=4), stage.client()
        limits = (JobLimit("t=a", 1),)
        await client.submit(*(a_job(limits=limits) for _ in range(3)), a_job(queue="mail"))
        await stage.until(lambda: len(worker.jobs.running) == 2)
        await client.submit(a_job(queue="mail", delay_s=3600))
        await asyncio.sleep(2 * LOOK_S)
        assert shown(m.BLOCKED, dispatcher) == {("limit",): 2}
        before, began = shown(m.QUEUE_WAIT, dispatcher), stage.clock.now()
        await asyncio.sleep(10 * LOOK_S)
        after, took_s = shown(m.QUEUE_WAIT, dispatcher), stage.clock.now() - began
        for what, jobs in ((("default", "limit"), 2), (("mail", "delay"), 1)):
            passed_s = after[what] - before.get(what, 0.0)
            assert passed_s == pytest.approx(jobs * took_s, abs=2 * jobs * LOOK_S)
        kept = {one.name: one.waited for one in await stage.store.queues()}
        assert kept["default"]["limit"] == pytest.approx(after["default", "limit"])

    tell(story)


def test_lost_worker_is_counted_and_its_job_ends_once() -> None:
    async def story(stage: Stage) -> None:
        first, second = await metered(stage, "d1"), await metered(stage, "d2")
        worker, client, job = await stage.worker("w1", to="d1"), stage.client("d1"), a_job()
        await client.submit(job)
        await stage.until(lambda: bool(worker.jobs.running))
        await worker.die()
        other = await stage.worker("w2", to="d2")
        await stage.until(lambda: bool(other.jobs.running))
        other.jobs.succeed()
        await client.wait(job)
        assert shown(m.LOST, first, second) == {(): 1}
        assert shown(m.ENDED_JOBS, first, second) == {("succeeded",): 1}
        assert sum(shown(m.STARTED, first, second).values()) == 2

    tell(story)


def test_job_that_crashes_its_processes_and_one_that_is_cancelled_are_counted() -> None:
    async def story(stage: Stage) -> None:
        dispatcher = await metered(stage)
        worker, client, job = await stage.worker(), stage.client(), a_job()
        await client.submit(job)
        for _ in range(stage.settings.crash_limit):
            await stage.until(lambda: bool(worker.jobs.running))
            worker.jobs.fail(CrashReport)
        await client.wait(job)
        waiting = a_job(kind="unknown")
        await client.submit(waiting)
        await client.ask(messages.Cancel(8, waiting.id, (waiting.id,)))
        assert shown(m.ENDED_JOBS, dispatcher) == {("failed",): 1, ("cancelled",): 1}
        assert shown(m.ENDED_ATTEMPTS, dispatcher)[("work", "crashed")] >= 2

    tell(story)


def test_labels_past_the_bound_are_one() -> None:
    async def story(stage: Stage) -> None:
        dispatcher = await metered(stage, labels=2)
        client = stage.client()
        await client.submit(*(a_job(kind=f"kind-{n}") for n in range(5)))
        await asyncio.sleep(2 * LOOK_S)
        jobs = shown(m.JOBS, dispatcher)
        assert jobs.pop((OTHER, OTHER, "ready")) == 3
        assert sum(jobs.values()) == len(jobs) == 2

    tell(story)


def test_dispatcher_without_metrics_has_no_figures() -> None:
    async def story(stage: Stage) -> None:
        assert (await stage.dispatcher()).figures is None

    tell(story)


def test_every_end_of_an_attempt_has_a_name() -> None:
    assert set(OUTCOMES) == set(End.__args__)


def test_histogram_counts_values_up_to_each_bound() -> None:
    histogram = Histogram((1.0, 5.0))
    for value in (0.5, 1.0, 3.0, 7.0):
        histogram.observe(value)
    histogram.observe(5.0, times=2)
    assert histogram.buckets() == [("1.0", 2), ("5.0", 5), ("+Inf", 6)]
    assert histogram.total == 21.5
