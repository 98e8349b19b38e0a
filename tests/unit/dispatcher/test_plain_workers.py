"""Workers of the plain dialogue, played by hand, told as stories on virtual time."""

from __future__ import annotations

from functools import partial

from msgspec import structs

from longshore.model.job import CancelVerdict, JobState, Options, RetryPolicy
from longshore.testing.builders import a_job, new_id
from longshore.wire import messages as m

from .plain_player import PONG, Player, alive, raw, ready, shown, submit
from .stage import Stage
from .test_stories import tell


def test_a_plain_worker_is_given_a_job_and_its_answer_is_the_result() -> None:
    async def story(stage: Stage) -> None:
        await stage.dispatcher()
        worker, client = await ready(stage), stage.client()
        job = raw(b"\x00 not msgpack \xff")
        await client.submit(job)
        await stage.until(lambda: bool(worker.jobs))
        assert worker.jobs == [b"\x00 not msgpack \xff"]
        worker.hush()
        worker.say(b"the result")
        (ended,) = await client.wait(job)
        assert (ended.state, ended.result) == (JobState.SUCCEEDED, b"the result")
        assert stage.clock.now() < 0.5

    tell(story)


def test_jobs_wait_while_no_worker_is_idle_and_each_worker_has_one_at_a_time() -> None:
    async def story(stage: Stage) -> None:
        await stage.dispatcher()
        players = [await ready(stage), await ready(stage)]
        jobs = [raw(b"%d" % number) for number in range(10)]
        await submit(stage, *jobs)
        for turn in range(1, 6):
            for player in players:
                await player.given(turn)
            await stage.client().wait(*jobs, wait_s=5)
            assert [len(p.jobs) for p in players] == [turn, turn]
            for player in players:
                player.say(b"result of " + player.jobs[-1])
        assert len(await stage.client().wait(*jobs)) == 10

    tell(story)


def test_results_go_to_the_job_they_are_for() -> None:
    async def story(stage: Stage) -> None:
        await stage.dispatcher()
        worker, client = await ready(stage), stage.client()
        jobs = [raw(b"%d" % number) for number in range(20)]
        await submit(stage, *jobs)
        for number in range(20):
            worker.say(b"result of " + await worker.given(number + 1))
        ended = {one.id: one.result for one in await client.wait(*jobs)}
        assert ended == {job.id: b"result of " + job.args for job in jobs}

    tell(story)


def test_every_ping_is_answered_at_once_whoever_sends_it() -> None:
    async def story(stage: Stage) -> None:
        await stage.dispatcher()
        stranger = Player(stage)
        stranger.say(b"PING")
        await stage.until(lambda: stranger.pongs == 1, at_most_s=0.02)
        await submit(stage, raw(b"x"))
        await stage.until(lambda: stranger.jobs == [b"x"])
        stranger.say(b"PING")
        await stage.until(lambda: stranger.pongs == 2, at_most_s=0.02)

    tell(story)


def test_an_unknown_worker_that_pings_becomes_ready() -> None:
    """So a restarted dispatcher finds its plain workers without their help."""

    async def story(stage: Stage) -> None:
        await stage.dispatcher()
        worker = Player(stage)
        worker.say(b"PING")
        await submit(stage, raw(b"x"))
        await stage.until(lambda: worker.jobs == [b"x"], at_most_s=3)

    tell(story)


def test_a_ping_in_flight_when_a_job_is_assigned_gives_no_second_job() -> None:
    async def story(stage: Stage) -> None:
        stage.network.delay_s = 0.05
        await stage.dispatcher()
        worker = await ready(stage)
        await submit(stage, raw(b"1"), raw(b"2"))
        await stage.until(lambda: bool(worker.jobs))
        for _ in range(3):
            worker.say(b"PING")
        worker.hush()
        await stage.client().wait(raw(b"nothing"), wait_s=20)
        assert worker.jobs == [b"1"]

    tell(story)


def test_a_result_that_reads_ready_is_a_result() -> None:
    async def story(stage: Stage) -> None:
        await stage.dispatcher()
        worker, client = await ready(stage), stage.client()
        job = raw(b"x")
        await submit(stage, job)
        await stage.until(lambda: bool(worker.jobs))
        worker.say(b"READY")
        (ended,) = await client.wait(job)
        assert ended.result == b"READY"
        assert len(alive(stage)) == 1

    tell(story)


def test_an_empty_result_is_a_result() -> None:
    async def story(stage: Stage) -> None:
        await stage.dispatcher()
        worker, client = await ready(stage), stage.client()
        job = raw(b"x")
        await submit(stage, job)
        await stage.until(lambda: bool(worker.jobs))
        worker.say(b"")
        (ended,) = await client.wait(job)
        assert (ended.state, ended.result) == (JobState.SUCCEEDED, b"")

    tell(story)


def test_a_worker_that_named_itself_and_says_ready_was_restarted_and_its_job_is_run_again() -> None:
    async def story(stage: Stage) -> None:
        await stage.dispatcher()
        worker, client = await ready(stage, b"press-3"), stage.client()
        job = raw(b"x")
        await submit(stage, job)
        await stage.until(lambda: bool(worker.jobs))
        worker.say(b"READY")
        await stage.until(lambda: worker.jobs == [b"x", b"x"], at_most_s=0.5)
        worker.say(b"done")
        (ended,) = await client.wait(job)
        view = await shown(stage, job)
        assert (ended.result, view.attempt, view.crashes) == (b"done", 2, 1)

    tell(story)


def test_a_job_that_takes_its_worker_down_three_times_is_failed_as_poisonous() -> None:
    async def story(stage: Stage) -> None:
        await stage.dispatcher()
        worker, client = await ready(stage, b"press-3"), stage.client()
        job = raw(b"x")
        await submit(stage, job)
        for times in (1, 2, 3):
            await worker.given(times)
            worker.say(b"READY")
        (ended,) = await client.wait(job)
        assert ended.error is not None
        assert ended.error.reason == "poisonous"

    tell(story)


def test_what_an_idle_or_unknown_worker_says_besides_changes_nothing() -> None:
    async def story(stage: Stage) -> None:
        await stage.dispatcher()
        worker, stranger = await ready(stage), Player(stage)
        for player in (worker, stranger):
            for frame in (b"", b"result", b"PONG", b"ERROR", b"\0" * 1000):
                player.say(frame)
            for frames in ((b"READY",), (b"x", b"READY"), (b"", b"READY", b""), (b"",), ()):
                player.frames(*frames)
        assert len(alive(stage)) == 1
        await submit(stage, raw(b"x"))
        await stage.until(lambda: worker.jobs == [b"x"])
        assert len(alive(stage)) == 1
        assert stranger.heard == []

    tell(story)


def test_an_idle_worker_that_falls_silent_is_removed_and_no_job_is_sent_to_it() -> None:
    async def story(stage: Stage) -> None:
        await stage.dispatcher()
        worker = await ready(stage)
        worker.hush()
        waited = await stage.until(lambda: not alive(stage))
        assert 2.9 < waited < 3.6
        job = raw(b"x")
        await submit(stage, job)
        assert worker.jobs == []
        (view,) = await stage.model.workers()
        assert view.ended_why == "not heard of for 3 s"
        worker.beat()
        await stage.until(lambda: worker.jobs == [b"x"])
        assert (await shown(stage, job)).crashes == 0

    tell(story)


def has_come(stage: Stage, at: float) -> bool:
    return stage.clock.now() >= at


def test_an_idle_worker_stays_if_it_is_heard_of_just_in_time_and_not_a_moment_longer() -> None:
    async def story(stage: Stage) -> None:
        await stage.dispatcher(plain_expire_s=4.0)
        worker = await ready(stage)
        worker.hush()
        for _ in range(3):
            worker.say(b"PING")
            just_in_time = stage.clock.now() + 3.9
            await stage.until(partial(has_come, stage, just_in_time))
            assert len(alive(stage)) == 1
        waited = await stage.until(lambda: not alive(stage))
        assert 0.1 <= waited < 0.7
        (view,) = await stage.model.workers()
        assert view.ended_why == "not heard of for 4 s"

    tell(story)


def test_an_idle_worker_that_pings_stays_for_ever() -> None:
    async def story(stage: Stage) -> None:
        await stage.dispatcher()
        await ready(stage)
        await stage.client().wait(raw(b"nothing"), wait_s=500)
        (view,) = await stage.model.workers()
        assert view.alive

    tell(story)


def test_a_busy_worker_may_be_silent_for_hours() -> None:
    async def story(stage: Stage) -> None:
        await stage.dispatcher()
        worker, client = await ready(stage), stage.client()
        worker.hush()
        job = raw(b"x")
        await submit(stage, job)
        await stage.until(lambda: bool(worker.jobs))
        await client.wait(job, wait_s=900)
        worker.say(b"at last")
        (ended,) = await client.wait(job)
        assert (ended.result, (await shown(stage, job)).attempt) == (b"at last", 1)
        assert stage.clock.now() >= 900
        assert worker.pongs > 100, "it was probed"

    tell(story)


def test_a_busy_worker_whose_connection_is_gone_loses_its_job_to_another_within_seconds() -> None:
    async def story(stage: Stage) -> None:
        await stage.dispatcher()
        doomed = await ready(stage)
        job = raw(b"x")
        await submit(stage, job)
        await stage.until(lambda: bool(doomed.jobs))
        second, client = await ready(stage), stage.client()
        doomed.die()
        waited = await stage.until(lambda: bool(second.jobs))
        assert waited < 6.0
        second.say(b"done")
        (ended,) = await client.wait(job)
        view = await shown(stage, job)
        assert (ended.result, view.attempt, view.crashes) == (b"done", 2, 1)

    tell(story)


def test_a_result_that_comes_over_a_new_connection_is_nobodys_and_the_worker_is_ready() -> None:
    """A reconnect has a new identity: the old one is a ghost, and its job is run again."""

    async def story(stage: Stage) -> None:
        await stage.dispatcher()
        worker, client = await ready(stage), stage.client()
        job = raw(b"x")
        await submit(stage, job)
        await stage.until(lambda: bool(worker.jobs))
        worker.die()
        again = Player(stage)
        again.say(b"the result of x")
        again.say(b"READY")
        again.beat()
        await stage.until(lambda: again.jobs == [b"x"], at_most_s=6.0)
        assert await stage.state(job) is JobState.RUNNING
        again.say(b"once more")
        (ended,) = await client.wait(job)
        assert ended.result == b"once more"

    tell(story)


def test_a_job_for_a_worker_that_is_gone_goes_to_another_at_once_and_at_no_cost() -> None:
    async def story(stage: Stage) -> None:
        await stage.dispatcher()
        gone, second = await ready(stage), await ready(stage)
        gone.die()
        job = raw(b"x")
        await submit(stage, job)
        await stage.until(lambda: second.jobs == [b"x"], at_most_s=0.1)
        view = await shown(stage, job)
        assert (view.crashes, view.failures) == (0, 0)
        assert len(alive(stage)) == 1

    tell(story)


def test_a_timed_out_job_is_taken_away_and_the_late_result_is_refused() -> None:
    """G2: the worker owes its answer, and is given nothing until it has come."""

    async def story(stage: Stage) -> None:
        await stage.dispatcher()
        worker, client = await ready(stage), stage.client()
        late, next_one = raw(b"late", timeout_s=5.0), raw(b"next")
        await submit(stage, late)
        await stage.until(lambda: bool(worker.jobs))
        worker.hush()
        (ended,) = await client.wait(late)
        assert ended.error is not None
        assert ended.error.reason == "timed_out"
        assert 14.0 < stage.clock.now() < 21.0
        await submit(stage, next_one)
        await client.wait(next_one, wait_s=30)
        assert worker.jobs == [b"late"]
        worker.say(b"too late")
        await stage.until(lambda: worker.jobs == [b"late", b"next"], at_most_s=0.1)
        worker.say(b"in time")
        (ended,) = await client.wait(next_one)
        assert ended.result == b"in time"
        assert await stage.state(late) is JobState.FAILED

    tell(story)


def test_a_ping_after_its_job_was_taken_away_makes_a_worker_ready() -> None:
    async def story(stage: Stage) -> None:
        await stage.dispatcher()
        worker, client = await ready(stage), stage.client()
        job = structs.replace(
            raw(b"x"), options=Options(raw=True, timeout_s=5.0, retry=RetryPolicy(attempts=2))
        )
        await submit(stage, job)
        await stage.until(lambda: bool(worker.jobs))
        worker.hush()
        await stage.client().wait(job, wait_s=60)
        assert worker.jobs == [b"x"]
        worker.say(b"PING")
        await stage.until(lambda: worker.jobs == [b"x", b"x"])
        worker.say(b"done")
        (ended,) = await client.wait(job)
        assert ended.result == b"done"

    tell(story)


def test_one_that_pings_at_work_is_not_given_more_before_it_has_answered() -> None:
    """G2: its late result would be recorded as that of another job."""

    async def story(stage: Stage) -> None:
        await stage.dispatcher()
        worker, client = await ready(stage), stage.client()
        late, next_one = raw(b"late", timeout_s=5.0), raw(b"next")
        await submit(stage, late, next_one)
        await client.wait(late)
        await client.wait(next_one, wait_s=30)
        assert worker.jobs == [b"late"]
        worker.say(b"result of late")
        await stage.until(lambda: len(worker.jobs) == 2, at_most_s=0.1)
        worker.say(b"result of next")
        (ended,) = await client.wait(next_one)
        assert ended.result == b"result of next"

    tell(story)


def test_a_cancelled_job_cannot_be_stopped_and_its_worker_goes_on_after_it() -> None:
    async def story(stage: Stage) -> None:
        await stage.dispatcher()
        worker, client = await ready(stage), stage.client()
        job = raw(b"x")
        await submit(stage, job)
        await stage.until(lambda: bool(worker.jobs))
        worker.hush()
        answer = await client.ask(m.Cancel(5, new_id(), (job.id,)))
        assert answer == (m.CancelAnswer(job.id, job.id, CancelVerdict.CANCELLING),)
        (ended,) = await client.wait(job)
        assert ended.state is JobState.CANCELLED
        assert 29.0 < stage.clock.now() < 33.0
        assert worker.jobs == [b"x"], "it was told nothing that it would take for a job"
        worker.say(b"result of x")
        await submit(stage, raw(b"y"))
        await stage.until(lambda: worker.jobs == [b"x", b"y"], at_most_s=0.1)
        assert await stage.state(job) is JobState.CANCELLED

    tell(story)


def test_a_drained_worker_gets_no_more_jobs_and_nothing_else_either() -> None:
    async def story(stage: Stage) -> None:
        await stage.dispatcher()
        worker = await ready(stage)
        (view,) = await stage.model.workers()
        await stage.model.set_draining(view.info.id, True)
        job = raw(b"x")
        await submit(stage, job)
        await stage.client().wait(job, wait_s=10)
        assert worker.jobs == []
        assert set(worker.heard) == {PONG}
        await stage.model.set_draining(view.info.id, False)
        await stage.until(lambda: worker.jobs == [b"x"], at_most_s=3)

    tell(story)


def test_jobs_that_the_dialogue_cannot_carry_fail_and_say_so() -> None:
    async def story(stage: Stage) -> None:
        await stage.dispatcher()
        worker, client = await ready(stage), stage.client()
        jobs = [raw(b"PONG"), raw(b""), a_job(kind="raw")]
        await submit(stage, *jobs)
        ended = await client.wait(*jobs)
        assert {one.error.reason for one in ended if one.error} == {"invalid_arguments"}
        assert worker.jobs == []
        await submit(stage, raw(b"x"))
        await stage.until(lambda: worker.jobs == [b"x"], at_most_s=0.1)

    tell(story)


def test_a_result_past_the_limit_fails_the_job_and_names_the_limit() -> None:
    async def story(stage: Stage) -> None:
        await stage.dispatcher(max_value_bytes=100)
        worker, client = await ready(stage), stage.client()
        job = raw(b"x")
        await submit(stage, job)
        await stage.until(lambda: bool(worker.jobs))
        worker.say(b"y" * 101)
        (ended,) = await client.wait(job)
        assert ended.error is not None
        assert "max_value_bytes (100)" in ended.error.message

    tell(story)


def test_a_full_worker_is_not_given_raw_jobs_and_a_plain_one_no_others() -> None:
    async def story(stage: Stage) -> None:
        await stage.dispatcher()
        full, plain = await stage.worker(), await ready(stage)
        work, data = a_job(), raw(b"x")
        await submit(stage, work, data)
        await stage.until(lambda: bool(full.jobs.running and plain.jobs))
        assert [one.job for one in full.jobs.started] == [work.id]
        assert plain.jobs == [b"x"]

    tell(story)


def test_one_identity_speaks_one_dialogue() -> None:
    async def story(stage: Stage) -> None:
        await stage.dispatcher()
        full, client = await stage.worker(), stage.client()
        full.worker._link.send(b"", [b"", b"READY"])
        full.worker._link.send(b"", [b"", b"PING"])
        full.worker._link.send(b"", [b"", b"result"])
        await submit(stage, raw(b"x"))
        job = a_job()
        await submit(stage, job)
        await stage.until(lambda: bool(full.jobs.running))
        full.jobs.succeed()
        (ended,) = await client.wait(job)
        assert ended.state is JobState.SUCCEEDED
        assert len(alive(stage)) == 1

    tell(story)
