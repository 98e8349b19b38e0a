"""A synchronous standby: whatever was acknowledged is on it too, also what was only found.

While the standby is frozen, commits wait. If the waiting backend is ended then, what it wrote can
be seen on the primary, and nowhere else.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Final, NamedTuple

import asyncpg
import pytest
from tests.unit.store.outside import (
    Tap,
    end_waiting_for_standby,
    execute,
    until_waiting_for_standby,
)

from longshore.errors import StoreUnavailable
from longshore.model.ends import Failed, Released
from longshore.model.job import (
    CancelVerdict,
    JobState,
    RetryVerdict,
    Submission,
    Submitted,
    Verdict,
)
from longshore.store.postgres.app_connection import talk_async
from longshore.store.postgres.enqueue import enqueue
from longshore.store.postgres.store import PostgresStore
from longshore.testing.builders import Scene, a_job, done, new_id, some_jobs
from longshore.testing.servers import PgBouncer, PostgresServer, PostgresStandby

_WAIT_FOR_STANDBY: Final = "ALTER SYSTEM SET synchronous_standby_names = '*'"
_RIGHTS: Final = """
GRANT USAGE ON SCHEMA longshore TO {role};
GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA longshore TO {role};
GRANT USAGE ON ALL SEQUENCES IN SCHEMA longshore TO {role};
"""


class Pair(NamedTuple):
    """A primary whose commits wait for its standby."""

    primary: PostgresServer
    standby: PostgresStandby
    database: str

    @property
    def url(self) -> str:
        return self.primary.url(self.database)


class Repeat(NamedTuple):
    """A call that writes, one that then finds what was written, and its answer."""

    first: Callable[[], Awaitable[object]]
    again: Callable[[], Awaitable[object]]
    answer: object


Story = Callable[[Scene, Pair], Awaitable[Repeat]]
Interruption = Callable[[Pair], Awaitable[None]]
GivingUp = Callable[[Scene, Pair, Submission], Awaitable[None]]


@contextmanager
def paired() -> Iterator[tuple[PostgresServer, PostgresStandby]]:
    with PostgresServer(fsync=False) as primary, PostgresStandby(primary) as standby:
        yield primary, standby


@pytest.fixture(scope="module")
def servers() -> Iterator[tuple[PostgresServer, PostgresStandby]]:
    """A pair that no test breaks."""
    with paired() as pair:
        yield pair


async def synchronous(primary: PostgresServer, standby: PostgresStandby) -> Pair:
    """The pair with a new database, in which commits wait for the standby."""
    standby.thaw()
    database = f"test_{new_id().hex}"
    url = primary.create_database(database)
    store = PostgresStore(url)
    await store.migrate()
    await store.close()
    await execute(url, _WAIT_FOR_STANDBY)
    await execute(url, "SELECT pg_reload_conf()")
    return Pair(primary, standby, database)


@pytest.fixture
async def pair(servers: tuple[PostgresServer, PostgresStandby]) -> Pair:
    return await synchronous(*servers)


@asynccontextmanager
async def opened(store: PostgresStore) -> AsyncIterator[Scene]:
    await store.open()
    try:
        yield Scene(store)
    finally:
        await store.close()


async def terminated(pair: Pair) -> None:
    """Whoever waits for the standby is ended."""
    await end_waiting_for_standby(pair.url)


async def crashed(pair: Pair) -> None:
    """The primary goes down as if it had crashed, and comes back."""
    pair.primary.restart("immediate")


async def written_here_only(
    pair: Pair, first: Callable[[], Awaitable[object]], interrupt: Interruption = terminated
) -> None:
    """The standby is frozen, and the call was interrupted while its commit waited for it."""
    pair.standby.freeze()
    call = asyncio.ensure_future(first())
    await until_waiting_for_standby(pair.url, call)
    await interrupt(pair)
    with pytest.raises((StoreUnavailable, asyncpg.PostgresError)):
        await call


# what is found


async def known_id(scene: Scene, _: Pair) -> Repeat:
    job = a_job()
    return Repeat(lambda: scene.submit(job), lambda: scene.submit(job), [Submitted(job.id, 1)])


async def known_ids(scene: Scene, _: Pair) -> Repeat:
    """Past the single statement that is enough for jobs of lanes that were seen before."""
    jobs = some_jobs(3)
    await scene.accepted(a_job())
    answers = [Submitted(job.id, number) for number, job in enumerate(jobs, 2)]
    return Repeat(lambda: scene.submit(*jobs), lambda: scene.submit(*jobs), answers)


async def holder_of_a_unique_key(scene: Scene, _: Pair) -> Repeat:
    holder, other = a_job(unique_key="k"), a_job(unique_key="k")
    found = [Submitted(holder.id, 1, existing=True)]
    return Repeat(lambda: scene.submit(holder), lambda: scene.submit(other), found)


async def recorded_end(scene: Scene, _: Pair) -> Repeat:
    end = done(await scene.running())

    async def verdicts() -> list[Verdict]:
        return [answer.verdict for answer in await scene.finish(end)]

    return Repeat(verdicts, verdicts, [Verdict.ALREADY_RECORDED])


async def end_of_a_released_attempt(scene: Scene, _: Pair) -> Repeat:
    """That an end does not count is an answer too: its worker forgets the result."""
    attempt = await scene.running()

    async def verdicts() -> list[Verdict]:
        return [answer.verdict for answer in await scene.finish(done(attempt))]

    released = done(attempt, Released)
    return Repeat(lambda: scene.finish(released), verdicts, [Verdict.STALE])


async def cancelled_job(scene: Scene, _: Pair) -> Repeat:
    job = a_job()
    await scene.accepted(job)
    verdicts = [(job.id, CancelVerdict.ALREADY_ENDED)]

    async def call() -> object:
        return await scene.store.cancel([job.id])

    return Repeat(call, call, verdicts)


async def retried_job(scene: Scene, _: Pair) -> Repeat:
    job = (await scene.ended(Failed)).id
    verdicts = [(job, RetryVerdict.NOT_ENDED)]

    async def call() -> object:
        return await scene.store.retry([job])

    return Repeat(call, call, verdicts)


async def enqueued_job(_: Scene, pair: Pair) -> Repeat:
    """Through the application's own connection, on which each statement commits by itself."""
    job = a_job()

    async def submit() -> object:
        connection = await asyncpg.connect(pair.url)
        try:
            return await talk_async(connection, enqueue([job]))
        finally:
            connection.terminate()

    return Repeat(submit, submit, [Submitted(job.id, 1)])


STORIES: Final = [
    known_id,
    known_ids,
    holder_of_a_unique_key,
    recorded_end,
    end_of_a_released_attempt,
    cancelled_job,
    retried_job,
    enqueued_job,
]


@pytest.mark.parametrize("story", STORIES)
async def test_repeat_is_answered_once_the_standby_has_what_it_found(
    pair: Pair, story: Story
) -> None:
    """G1: an answer that rests on a row that was found waits as that row's commit did."""
    async with opened(PostgresStore(pair.url)) as scene:
        first, again, answer = await story(scene, pair)
        await written_here_only(pair, first)
        repeat = asyncio.ensure_future(again())
        await until_waiting_for_standby(pair.url, repeat)
        pair.standby.thaw()
        assert await repeat == answer


async def test_repeat_through_pgbouncer_waits_for_the_standby_too(pair: Pair) -> None:
    job = a_job()
    with PgBouncer(pair.primary) as bouncer:
        store = PostgresStore(bouncer.url(pair.database), prepared=False, listen_url=pair.url)
        async with opened(store) as scene:
            await written_here_only(pair, lambda: scene.submit(job))
            repeat = asyncio.ensure_future(scene.submit(job))
            await until_waiting_for_standby(pair.url, repeat)
            pair.standby.thaw()
            assert await repeat == [Submitted(job.id, 1)]


async def test_ordinary_role_may_do_all_of_it(pair: Pair) -> None:
    """Nothing that is written so that a commit waits needs a right beyond those on the tables."""
    role = f"role_{new_id().hex}"
    await execute(pair.url, f"CREATE ROLE {role} LOGIN; {_RIGHTS.format(role=role)}")
    job = a_job()
    async with opened(PostgresStore(pair.url.replace("postgres@", f"{role}@"))) as scene:
        assert await scene.submit(job) == await scene.submit(job)


# commits that are given up


async def given_up(scene: Scene, pair: Pair, job: Submission) -> None:
    """The caller goes away while the commit waits for the standby."""
    call = asyncio.ensure_future(scene.submit(job))
    await until_waiting_for_standby(pair.url, call)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call


async def timed_out(scene: Scene, _: Pair, job: Submission) -> None:
    """The caller waits for as long as the store lets it."""
    with pytest.raises(StoreUnavailable, match="Timeout"):
        await scene.submit(job)


@pytest.mark.parametrize("lane_is_known", [True, False], ids=["statement", "transaction"])
@pytest.mark.parametrize("give_up", [given_up, timed_out])
async def test_no_commit_is_ever_cancelled(
    pair: Pair, give_up: GivingUp, lane_is_known: bool
) -> None:
    """G1: a cancelled commit would be visible here and not there; so it is let end by itself."""
    job = a_job()
    async with Tap(pair.primary.port).listening() as tap:
        url = pair.url.replace(f":{pair.primary.port}/", f":{tap.port}/")
        async with opened(PostgresStore(url, timeout_s=1.0)) as scene:
            if lane_is_known:
                await scene.accepted(a_job())
            pair.standby.freeze()
            await give_up(scene, pair, job)
            # Whatever the driver still wants to say, it says before another connection is used.
            await execute(url, "SELECT 1")
            assert await scene.store.job(job.id) is None, "it is visible before the standby has it"
            assert tap.cancels == 0
            pair.standby.thaw()
            while await scene.store.job(job.id) is None:
                pass
            assert tap.cancels == 0


# failover


@pytest.mark.parametrize("interrupt", [terminated, crashed])
async def test_whatever_was_acknowledged_survives_a_failover(interrupt: Interruption) -> None:
    """G1: the old primary showed a job that the standby never got; nobody was told of it."""
    kept, unsure = some_jobs(5), a_job()
    with paired() as (primary, standby):
        pair = await synchronous(primary, standby)
        async with opened(PostgresStore(pair.url)) as scene:
            await scene.accepted(*kept)
            await written_here_only(pair, lambda: scene.submit(unsure), interrupt)
        async with opened(PostgresStore(pair.url)) as scene:
            assert await scene.state(unsure.id) is JobState.READY
            repeat = asyncio.ensure_future(scene.submit(unsure))
            await until_waiting_for_standby(pair.url, repeat)
            primary.stop("immediate")
            with pytest.raises(StoreUnavailable):
                await repeat
        standby.crash()
        standby.start()
        standby.promote()
        async with opened(PostgresStore(standby.url(pair.database))) as scene:
            assert [(await scene.job(job.id)).id for job in kept] == [job.id for job in kept]
            assert await scene.store.job(unsure.id) is None
            await scene.accepted(unsure)
