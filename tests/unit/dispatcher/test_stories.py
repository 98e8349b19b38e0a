"""One dispatcher and its workers, told as stories on virtual time."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable
from uuid import UUID

import pytest
from msgspec import structs

from longshore.core.lane_estimates import LaneEstimates
from longshore.core.lanes import lane_of
from longshore.errors import InvalidArguments, InvalidInput, TooLarge, UnknownKind
from longshore.model.job import CancelVerdict, JobState, Options, RetryPolicy
from longshore.model.reports import CrashReport, SuccessReport
from longshore.model.worker import Lane, Pool
from longshore.payload.values import pack
from longshore.ports import Batch
from longshore.testing.builders import a_job, new_id
from longshore.testing.faults import Fault, scripted
from longshore.testing.loopback import Listener
from longshore.testing.virtual import run_virtually
from longshore.wire import messages as m
from longshore.wire.codec import encode

from .stage import KINDS, Stage, worker_id

Story = Callable[[Stage], Awaitable[None]]


def tell(story: Story) -> None:
    async def main() -> None:
        async with Stage() as stage:
            await story(stage)

    run_virtually(main())


def test_a_job_is_run_and_its_result_told_to_who_waits() -> None:
    async def story(stage: Stage) -> None:
        await stage.dispatcher()
        worker, client = await stage.worker(), stage.client()
        job = a_job()
        (answer,) = await client.submit(job)
        assert (answer.id, answer.number, answer.code) == (job.id, 1, "")
        await stage.until(lambda: bool(worker.jobs.running))
        worker.jobs.succeed()
        (ended,) = await client.wait(job)
        assert (ended.state, ended.result) == (JobState.SUCCEEDED, b"\x2a")

    tell(story)


def test_a_hundred_jobs_share_the_slots_there_are_and_all_end() -> None:
    async def story(stage: Stage) -> None:
        await stage.dispatcher()
        one, two = await stage.worker("w1", slots=3), await stage.worker("w2", slots=5)
        client = stage.client()
        jobs = [a_job() for _ in range(100)]
        await client.submit(*jobs)
        await stage.until(lambda: len(one.jobs.running) == 3 and len(two.jobs.running) == 5)
        while len(one.jobs.started) + len(two.jobs.started) < 100:
            one.jobs.succeed()
            two.jobs.succeed()
            await stage.until(lambda: bool(one.jobs.running and two.jobs.running))
        one.jobs.succeed()
        two.jobs.succeed()
        ended = await client.wait(*jobs)
        assert {e.state for e in ended} == {JobState.SUCCEEDED}
        assert len(ended) == 100

    tell(story)


def test_a_silent_workers_job_goes_to_another_and_its_late_result_is_refused() -> None:
    """G2, G3: one owner, one outcome."""

    async def story(stage: Stage) -> None:
        await stage.dispatcher()
        first = await stage.worker("w1")
        client = stage.client()
        job = a_job()
        await client.submit(job)
        await stage.until(lambda: bool(first.jobs.running))
        (late,) = first.jobs.running.values()
        await first.die()
        second = await stage.worker("w2")
        waited = await stage.until(lambda: bool(second.jobs.running))
        assert 13.0 < waited < 20.0
        (again,) = second.jobs.running.values()
        assert again.token > late.token
        report = SuccessReport(late.job, late.token, result=b"\x01")
        ghost = m.Done(worker_id(second), (report,))
        second.worker._session._outgoing.append(ghost)
        second.worker._flush()
        second.jobs.succeed()
        (ended,) = await client.wait(job)
        assert ended.result == b"\x2a"

    tell(story)


def test_a_job_that_takes_three_workers_down_is_failed_as_poisonous() -> None:
    async def story(stage: Stage) -> None:
        await stage.dispatcher()
        worker, client = await stage.worker(), stage.client()
        job = a_job()
        await client.submit(job)
        for _ in range(3):
            await stage.until(lambda: bool(worker.jobs.running))
            worker.jobs.fail(CrashReport)
        (ended,) = await client.wait(job)
        assert ended.state is JobState.FAILED
        assert ended.error is not None
        assert ended.error.reason == "poisonous"
        assert len(worker.jobs.started) == 3

    tell(story)


def test_a_failing_job_backs_off_and_recovers() -> None:
    async def story(stage: Stage) -> None:
        await stage.dispatcher()
        worker, client = await stage.worker(), stage.client()
        policy = RetryPolicy(attempts=3, backoff_s=10.0, factor=2.0, jitter=0.0)
        job = structs.replace(a_job(), options=Options(retry=policy))
        await client.submit(job)
        waits = []
        for _ in range(2):
            await stage.until(lambda: bool(worker.jobs.running))
            worker.jobs.fail()
            waits.append(await stage.until(lambda: bool(worker.jobs.running)))
        worker.jobs.succeed()
        (ended,) = await client.wait(job)
        assert ended.state is JobState.SUCCEEDED
        assert waits == [pytest.approx(10.0, abs=0.1), pytest.approx(20.0, abs=0.1)]

    tell(story)


def test_why_names_the_error_that_delays_a_job() -> None:
    async def story(stage: Stage) -> None:
        await stage.dispatcher()
        worker, client = await stage.worker(), stage.client()
        policy = RetryPolicy(attempts=3, backoff_s=60.0, jitter=0.0)
        job = structs.replace(a_job(), options=Options(retry=policy))
        await client.submit(job)
        await stage.until(lambda: bool(worker.jobs.running))
        worker.jobs.fail()
        while await stage.state(job) is not JobState.DELAYED:
            await stage.until(lambda: True)
            await client.why(job)
        words = await client.why(job)
        assert "by its 1st retry, after ValueError: it did not work" in words

    tell(story)


def test_a_drained_worker_hands_back_and_it_costs_the_job_nothing() -> None:
    async def story(stage: Stage) -> None:
        await stage.dispatcher()
        first, client = await stage.worker("w1"), stage.client()
        job = a_job()
        await client.submit(job)
        await stage.until(lambda: bool(first.jobs.running))
        second = await stage.worker("w2")
        first.worker.drain()
        waited = await stage.until(lambda: bool(second.jobs.running))
        assert 9.0 < waited < 12.0
        await first.task
        view = await stage.model.job(job.id)
        assert view is not None
        assert (view.failures, view.crashes, view.attempt) == (0, 0, 2)
        second.jobs.succeed()
        await client.wait(job)
        assert [w.alive for w in await stage.model.workers() if w.info.name == "w1"] == [False]

    tell(story)


def test_a_draining_worker_finishes_what_it_can_and_leaves_at_once() -> None:
    async def story(stage: Stage) -> None:
        await stage.dispatcher()
        worker, client = await stage.worker(), stage.client()
        job = a_job()
        await client.submit(job)
        await stage.until(lambda: bool(worker.jobs.running))
        worker.worker.drain()
        await client.why(job)
        worker.jobs.succeed()
        await worker.task
        assert stage.clock.now() < 2.0
        assert await stage.state(job) is JobState.SUCCEEDED

    tell(story)


def test_a_running_job_is_cancelled_at_its_worker() -> None:
    async def story(stage: Stage) -> None:
        await stage.dispatcher()
        worker, client = await stage.worker(), stage.client()
        job = a_job()
        await client.submit(job)
        await stage.until(lambda: bool(worker.jobs.running))
        answer = await client.ask(m.Cancel(5, new_id(), (job.id,)))
        assert answer == (m.CancelAnswer(job.id, job.id, CancelVerdict.CANCELLING),)
        (ended,) = await client.wait(job)
        assert ended.state is JobState.CANCELLED
        assert not worker.jobs.running
        assert stage.clock.now() < 1.0

    tell(story)


def test_a_worker_that_does_not_stop_a_cancelled_job_loses_it_after_the_grace() -> None:
    async def story(stage: Stage) -> None:
        await stage.dispatcher(cancel_grace_s=30.0)
        worker, client = await stage.worker(), stage.client()
        worker.jobs.stubborn = True
        job = a_job()
        await client.submit(job)
        await stage.until(lambda: bool(worker.jobs.running))
        await client.ask(m.Cancel(5, new_id(), (job.id,)))
        (ended,) = await client.wait(job)
        assert ended.state is JobState.CANCELLED
        assert 29.0 < stage.clock.now() < 32.0
        worker.jobs.succeed()
        assert await stage.state(job) is JobState.CANCELLED

    tell(story)


def test_a_job_whose_worker_does_not_stop_it_at_its_timeout_is_timed_out_by_the_store() -> None:
    async def story(stage: Stage) -> None:
        await stage.dispatcher()
        worker, client = await stage.worker(), stage.client()
        worker.jobs.stubborn = True
        job = a_job(timeout_s=5.0)
        await client.submit(job)
        (ended,) = await client.wait(job)
        assert ended.error is not None
        assert ended.error.reason == "timed_out"
        assert 14.0 < stage.clock.now() < 21.0

    tell(story)


def test_a_delayed_job_starts_when_its_time_has_come() -> None:
    async def story(stage: Stage) -> None:
        await stage.dispatcher()
        worker, client = await stage.worker(), stage.client()
        await client.submit(a_job(delay_s=600.0))
        waited = await stage.until(lambda: bool(worker.jobs.running), at_most_s=700.0)
        assert waited == pytest.approx(600.0, abs=0.1)

    tell(story)


def test_a_paused_queue_holds_its_jobs_and_says_so() -> None:
    async def story(stage: Stage) -> None:
        await stage.dispatcher()
        worker, client = await stage.worker(), stage.client()
        await client.ask(m.Pause(5, new_id(), "mail", True))
        job = a_job(queue="mail")
        await client.submit(job)
        assert "queue 'mail' is paused" in await client.why(job)
        await client.wait(job, wait_s=30.0)
        assert not worker.jobs.started
        await client.ask(m.Pause(6, new_id(), "mail", False))
        await stage.until(lambda: bool(worker.jobs.running), at_most_s=0.5)

    tell(story)


def test_an_unknown_kind_waits_and_strict_refuses_it() -> None:
    async def story(stage: Stage) -> None:
        await stage.dispatcher()
        await stage.worker()
        client = stage.client()
        job = a_job(kind="wrok")
        (answer,) = await client.submit(job)
        assert answer.code == ""
        assert await client.why(job) == "no worker serves kind 'wrok' (nearest: 'work')"
        (answer,) = await client.submit(a_job(kind="wrok"), strict=True)
        assert answer.code == UnknownKind.code
        assert "leave out strict (--strict) and it waits for one" in answer.message

    tell(story)


def test_jobs_like_their_neighbours_are_checked_for_what_is_their_own() -> None:
    async def story(stage: Stage) -> None:
        await stage.dispatcher(max_value_bytes=100)
        own = [
            a_job(),
            a_job(delay_s=-1.0),
            a_job(args=bytes(101)),
            a_job(unique_key=""),
            a_job(kind="longshore.mine"),
            a_job(priority=10**6),
            a_job(),
        ]
        codes = [answer.code for answer in await stage.client().submit(*own)]
        wrong, large = InvalidInput.code, TooLarge.code
        assert codes == ["", wrong, large, wrong, wrong, wrong, ""]

    tell(story)


def test_wrong_arguments_are_refused_by_name_and_the_rest_of_the_batch_is_taken() -> None:
    async def story(stage: Stage) -> None:
        await stage.dispatcher()
        await stage.worker()
        client = stage.client()
        wrong = a_job(args=pack({"m": 1}, "args"))
        good, bad, good_too = await client.submit(a_job(), wrong, a_job())
        assert (good.code, bad.code, good_too.code) == ("", InvalidArguments.code, "")
        assert "no parameter 'm'" in bad.message

    tell(story)


def test_a_submit_whose_answer_got_lost_is_one_job() -> None:
    """G1, G3: committed, answer lost, sent again."""

    async def story(stage: Stage) -> None:
        await stage.dispatcher()
        client = stage.client()
        stage.store.plan = scripted(("pump", Fault.AFTER), ("pump", Fault.BEFORE))
        job = a_job()
        (answer,) = await client.submit(job)
        assert answer.number == 1
        assert (await stage.model.queues())[0].counts == {"ready": 1}

    tell(story)


def test_a_claim_whose_answer_got_lost_is_read_back_and_started() -> None:
    async def story(stage: Stage) -> None:
        await stage.dispatcher()
        worker, client = await stage.worker(), stage.client()
        stage.store.plan = scripted(("pump", Fault.AFTER))
        job = a_job()
        await client.submit(job)
        await stage.until(lambda: bool(worker.jobs.running), at_most_s=5.0)
        worker.jobs.succeed()
        (ended,) = await client.wait(job)
        view = await stage.model.job(job.id)
        assert view is not None
        assert (ended.state, view.attempt) == (JobState.SUCCEEDED, 1)

    tell(story)


def test_a_finish_whose_answer_got_lost_is_recorded_once() -> None:
    async def story(stage: Stage) -> None:
        await stage.dispatcher()
        worker, client = await stage.worker(), stage.client()
        job = a_job()
        await client.submit(job)
        await stage.until(lambda: bool(worker.jobs.running))
        stage.store.plan = scripted(("pump", Fault.AFTER), ("pump", Fault.AFTER))
        worker.jobs.succeed()
        await client.wait(job)
        view = await stage.model.job(job.id)
        assert view is not None
        states = [entry.state for entry in view.history]
        assert states.count(JobState.SUCCEEDED) == 1

    tell(story)


JUNK: list[list[bytes]] = [
    [],
    [b""],
    [b"PING", b""],
    [b"", b"PING", b"\xc1"],
    [b"", b"DONE", b"\xc1"],
    [b"", b"DONE", encode(m.Ping(UUID(int=1), 1))[2]],
    [b"", b"SUBMIT", b""],
    [b"\xff" * 9, b"\xff", b"\xff"],
    [b"x"] * 50,
]


def test_junk_from_strangers_changes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """It arrives with, and before, the messages of workers and clients."""

    def precede(listener: Listener) -> None:
        junk, hear = [(b"stranger", frames) for frames in JUNK], listener.on_messages
        listener.on_messages = lambda arrived: hear([*junk, *arrived])

    async def story(stage: Stage) -> None:
        dispatcher = await stage.dispatcher()
        for listener in stage.network.listeners.values():
            precede(listener)
        job, client = a_job(), stage.client()
        async with asyncio.timeout(60):
            worker = await stage.worker()
            await client.submit(job)
            await stage.until(lambda: bool(worker.jobs.running))
            worker.jobs.succeed()
            (ended,) = await client.wait(job)
        assert ended.state is JobState.SUCCEEDED
        assert [one.info.name for one in await stage.model.workers()] == ["w1"]
        assert [one.counts for one in await stage.model.queues()] == [{"succeeded": 1}]
        assert not dispatcher.broken.is_set()

    tell(story)
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


def test_what_a_kind_is_like_is_known_wherever_its_workers_are() -> None:
    async def story(stage: Stage) -> None:
        await stage.dispatcher("d1")
        await stage.dispatcher("d2")
        await stage.worker(to="d1")
        for dispatcher in ("d1", "d2"):
            client = stage.client(dispatcher)
            assert await client.ask(m.ShowKind(7, "work")) == KINDS["work"]
            assert await client.ask(m.ShowKind(8, "wrok")) is None

    tell(story)


def test_what_a_kind_is_like_is_not_forgotten_with_its_last_worker() -> None:
    """Submits go on as before while the only worker of an app restarts."""

    async def story(stage: Stage) -> None:
        await stage.dispatcher()
        worker, client = await stage.worker(), stage.client()
        await worker.die()
        await stage.until(lambda: not [one for one in stage.model._workers.values() if one.alive])
        assert await client.ask(m.ShowKind(7, "work")) == KINDS["work"]
        assert await client.ask(m.ShowKind(8, "wrok")) is None

    tell(story)


def test_strict_knows_what_the_workers_of_other_dispatchers_serve() -> None:
    async def story(stage: Stage) -> None:
        await stage.dispatcher("d1")
        await stage.dispatcher("d2")
        await stage.worker(to="d1")
        (answer,) = await stage.client("d2").submit(a_job(), strict=True)
        assert answer.code == ""

    tell(story)


def test_strict_refuses_a_kind_that_only_a_gone_worker_served() -> None:
    async def story(stage: Stage) -> None:
        await stage.dispatcher()
        worker, client = await stage.worker(), stage.client()
        (answer,) = await client.submit(a_job(), strict=True)
        assert answer.code == ""
        await worker.die()
        await stage.until(lambda: not [one for one in stage.model._workers.values() if one.alive])
        (answer,) = await client.submit(a_job(), strict=True)
        assert answer.code == UnknownKind.code

    tell(story)


def test_there_are_only_so_many_lanes() -> None:
    async def story(stage: Stage) -> None:
        await stage.dispatcher(max_lanes=2)
        client = stage.client()
        for kind in ("a", "b"):
            await client.submit(a_job(kind=kind))
        again, too_many = await client.submit(a_job(kind="a"), a_job(kind="c"))
        assert (again.code, too_many.code) == ("", TooLarge.code)
        assert "max_lanes" in too_many.message

    tell(story)


def test_a_job_past_the_limit_of_lanes_says_so_and_the_log_says_it_once(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An application enqueued it by itself, past the dispatcher, which refuses such a job."""

    async def lanes(most: int | None = None, served: Collection[int] = ()) -> list[Lane]:
        assert most == 1
        return [lane_of("default", "a", "")]

    async def story(stage: Stage) -> None:
        # As on PostgreSQL, where no lane past the limit is taken note of.
        monkeypatch.setattr(stage.model, "lanes", lanes)
        await stage.dispatcher(max_lanes=1)
        client = stage.client()
        await client.submit(a_job(kind="a"))
        enqueued = a_job(kind="c")
        await stage.model.pump(new_id(), Batch(submits=[enqueued]))
        assert "max_lanes is 1, and there are as many others" in await client.why(enqueued)

    tell(story)
    assert caplog.text.count("max_lanes is 1") == 1


def test_jobs_past_the_limit_of_lanes_take_no_memory_when_their_time_comes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An application enqueued them by itself, with delays, each in a lane of its own."""
    heated: set[int] = set()
    mark_ready = LaneEstimates.mark_ready

    def note(known: LaneEstimates, lanes: Iterable[int]) -> None:
        some = list(lanes)
        heated.update(some)
        mark_ready(known, some)

    async def lanes(most: int | None = None, served: Collection[int] = ()) -> list[Lane]:
        return [lane_of("default", "a", "")]

    async def story(stage: Stage) -> None:
        monkeypatch.setattr(stage.model, "lanes", lanes)
        monkeypatch.setattr(LaneEstimates, "mark_ready", note)
        await stage.dispatcher(max_lanes=1)
        await stage.client().submit(a_job(kind="a"))
        enqueued = [a_job(kind=f"c{place}", delay_s=1) for place in range(20)]
        await stage.model.pump(new_id(), Batch(submits=enqueued))
        await stage.client().wait(*enqueued, wait_s=10)
        assert await stage.state(enqueued[-1]) is JobState.READY
        assert heated <= {lane_of("default", "a", "").hash}

    tell(story)


def test_a_lane_is_not_starved_by_another_that_could_fill_every_batch() -> None:
    """A worker has more free slots for coroutines than a batch has room for."""

    async def story(stage: Stage) -> None:
        await stage.dispatcher(max_batch=10)
        worker, client = await stage.worker(slots=10), stage.client()
        first = a_job(), a_job(kind="grind")
        await client.submit(*first)
        await stage.until(lambda: all(one.running for one in worker.executors.values()))
        for executor in worker.executors.values():
            executor.succeed()
        await client.wait(*first)
        # Accepted elsewhere, so that nothing is known of it here until the next look around.
        await stage.model.pump(new_id(), Batch((), [a_job(kind="grind")]))
        await stage.until(lambda: bool(worker.executors[Pool.PROCESS].running), at_most_s=10.0)

    tell(story)
