"""Several workers through one connection: each has its own session."""

from __future__ import annotations

from uuid import UUID

import pytest

from longshore.dispatcher.sessions import joining
from longshore.model.job import JobState, LogEntry, LogKind, Submission
from longshore.model.reports import SuccessReport
from longshore.model.worker import KindInfo, Parameter
from longshore.testing.builders import a_job, new_id
from longshore.wire import messages as m

from .stage import Stage
from .test_impostors import Stranger, introduction
from .test_stories import tell

KINDS = {"work": KindInfo(parameters=(Parameter("n", required=False),))}


async def attended(stage: Stage, connection: Stranger) -> UUID:
    """One more worker that attends through a connection, with one slot."""
    worker = new_id()
    connection.say(introduction(worker=worker, kinds=KINDS, pools={"coroutine": 1}))
    await stage.until(lambda: m.Welcome in {type(one) for one in heard(connection, worker)})
    return worker


def heard(connection: Stranger, worker: UUID) -> list[m.DispatcherMessage]:
    """What one of the workers was told."""
    return [one for one in connection.heard if one.worker == worker]


def given(connection: Stranger, worker: UUID) -> list[m.Assignment]:
    """The attempts that one of the workers was told to start."""
    told = heard(connection, worker)
    return [job for one in told if isinstance(one, m.Jobs) for job in one.jobs]


def succeed(connection: Stranger, worker: UUID, job: m.Assignment) -> None:
    report = SuccessReport(job.job, job.token, result=b"\x2a")
    connection.say(m.Done(worker, (report,)))


async def ended_well(stage: Stage, *jobs: Submission) -> bool:
    return [await stage.state(job) for job in jobs] == [JobState.SUCCEEDED] * len(jobs)


def test_two_workers_of_one_connection_each_get_jobs_and_finish_them() -> None:
    async def story(stage: Stage) -> None:
        await stage.dispatcher()
        connection, client, jobs = Stranger(stage), stage.client(), (a_job(), a_job())
        workers = [await attended(stage, connection) for _ in range(2)]
        await client.submit(*jobs)
        await stage.until(lambda: all(given(connection, one) for one in workers))
        for worker in workers:
            succeed(connection, worker, given(connection, worker)[0])
        await client.wait(*jobs)
        assert await ended_well(stage, *jobs)

    tell(story)


def test_one_of_them_leaves_and_the_other_goes_on() -> None:
    async def story(stage: Stage) -> None:
        dispatcher = await stage.dispatcher()
        connection, client, job = Stranger(stage), stage.client(), a_job()
        leaving, staying = [await attended(stage, connection) for _ in range(2)]
        connection.say(m.Bye(leaving, "enough"))
        await stage.until(lambda: [one.worker for one in dispatcher._roster] == [staying])
        await client.submit(job)
        await stage.until(lambda: bool(given(connection, staying)))
        connection.say(m.Ping(staying, 1, seen=1, held=(given(connection, staying)[0].key,)))
        await connection.told(m.Pong)
        assert [type(one) for one in heard(connection, leaving)] == [m.Welcome]
        succeed(connection, staying, given(connection, staying)[0])
        await client.wait(job)
        assert await ended_well(stage, job)

    tell(story)


def test_a_stranger_that_names_another_connections_worker_changes_nothing() -> None:
    """G2: neither can it end that worker's jobs, nor keep it alive, nor send it away."""

    async def story(stage: Stage) -> None:
        dispatcher = await stage.dispatcher()
        connection, stranger = Stranger(stage), Stranger(stage)
        client, job = stage.client(), a_job()
        worker = await attended(stage, connection)
        await attended(stage, stranger)
        [session] = dispatcher._roster.of_peer(connection._link.identity).values()
        session.draining = False
        await client.submit(job, a_job())
        await stage.until(lambda: bool(given(connection, worker)))
        [mine] = given(connection, worker)
        stranger.say(m.Ping(worker, 1, draining=True))
        stranger.say(m.Logs(worker, (LogEntry(mine.job, mine.token, 1, LogKind.STEP, b"stolen"),)))
        succeed(stranger, worker, mine)
        stranger.say(m.Bye(worker))
        sent_at = stage.clock.now()
        await stage.until(lambda: stage.clock.now() > sent_at + 1.0)
        assert worker not in {one.worker for one in stranger.heard}
        assert session in dispatcher._roster
        assert not session.draining
        assert session.holds(mine.key)
        assert await stage.model.logs(mine.job) == []

    tell(story)


def test_what_one_of_them_says_keeps_only_itself_alive() -> None:
    async def story(stage: Stage) -> None:
        dispatcher = await stage.dispatcher()
        connection = Stranger(stage)
        silent, living = [await attended(stage, connection) for _ in range(2)]
        began, no = stage.clock.now(), 0
        while stage.clock.now() < began + 20.0:
            no += 1
            connection.say(m.Ping(living, no))
            now = stage.clock.now()
            await stage.until(lambda now=now: stage.clock.now() >= now + 1.0)  # type: ignore[misc]
        assert [one.worker for one in dispatcher._roster] == [living]
        assert silent not in {one.worker for one in dispatcher._roster}

    tell(story)


def test_a_connection_carries_so_many_workers_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joining, "MAX_CONNECTION_WORKERS", 2)

    async def story(stage: Stage) -> None:
        dispatcher = await stage.dispatcher()
        connection = Stranger(stage)
        first, _ = [await attended(stage, connection) for _ in range(2)]
        connection.say(introduction())
        told = await connection.told(m.Exit)
        assert isinstance(told, m.Exit)
        assert told.reason == "its connection carries 2 workers; open another one"
        assert (told.worker, len(dispatcher._roster)) == (connection.worker, 2)
        connection.heard.clear()
        connection.say(introduction(worker=first, session=2, kinds=KINDS))
        await connection.told(m.Welcome)

    tell(story)
