"""A unique key in a group that is not whole yet: nobody gets a job that may come to nothing."""

from __future__ import annotations

import asyncio

import asyncpg

from longshore.errors import Conflict, Unavailable
from longshore.model.group import GroupPart, GroupState, GroupSubmitted
from longshore.model.job import Refused, Submission, Submitted
from longshore.store.postgres.enqueue import enqueue
from longshore.testing.backends import Backend, PostgresBackend
from longshore.testing.builders import Scene, a_group, a_job

G = GroupState


def with_key(key: str = "k") -> tuple[GroupPart, GroupPart]:
    """A group in two parts. A job of the first one has the unique key."""
    whole = a_group({"a": "", "b": "a"}, jobs={"a": a_job(unique_key=key)})
    first, second = whole.nodes
    return GroupPart(whole.head, 0, (first,)), GroupPart(whole.head, 1, (second,))


async def staged(scene: Scene) -> tuple[GroupPart, GroupPart]:
    """Such a group, of which the first part is there."""
    first, second = with_key()
    answer = await scene.store.submit_group(first)
    assert getattr(answer, "state", None) is G.STAGING
    return first, second


async def put_off(scene: Scene, job: Submission) -> str:
    """What is said to the submitter of a job that may be accepted later."""
    [answer] = await scene.submit(job)
    assert isinstance(answer, Refused)
    assert answer.code == Unavailable.code
    assert await scene.store.job(job.id) is None
    return answer.message


async def test_a_staged_group_whose_unique_key_somebody_else_submits(scene: Scene) -> None:
    first, second = await staged(scene)
    job = a_job(unique_key="k")
    message = await put_off(scene, job)
    assert message == (
        f"job {job.id} was not accepted: its unique key 'k' belongs to group {first.head.id}, "
        "which is still being submitted; try again in a moment"
    )
    await scene.store.submit_group(second)
    [answer] = await scene.submit(job)
    assert isinstance(answer, Submitted)
    assert (answer.id, answer.existing) == (first.nodes[0].job.id, True)


async def test_the_key_of_a_staged_group_that_is_given_up_is_free(scene: Scene) -> None:
    first, _ = await staged(scene)
    job = a_job(unique_key="k")
    await put_off(scene, job)
    await scene.store.cancel_group(first.head.id, "me")
    await scene.settle()
    [answer] = await scene.submit(job)
    assert isinstance(answer, Submitted)
    assert (answer.id, answer.existing) == (job.id, False)


async def test_other_jobs_of_the_batch_are_accepted(scene: Scene) -> None:
    await staged(scene)
    jobs = a_job(unique_key="k"), a_job(unique_key="other"), a_job()
    answers = await scene.submit(*jobs)
    assert [type(answer) for answer in answers] == [Refused, Submitted, Submitted]


async def test_a_group_with_the_key_of_a_staged_one_may_be_tried_again(scene: Scene) -> None:
    _, second = await staged(scene)
    rival, _ = with_key()
    answer = await scene.store.submit_group(rival)
    assert isinstance(answer, Refused)
    assert answer.code == Unavailable.code
    assert "of job 'a', its unique key 'k' belongs to group" in answer.message
    assert await scene.store.group(rival.head.id) is None
    await scene.store.submit_group(second)
    answer = await scene.store.submit_group(rival)
    assert isinstance(answer, Refused)
    assert answer.code == Conflict.code


async def test_two_parts_of_one_group_with_one_unique_key_are_no_matter_of_time(
    scene: Scene,
) -> None:
    jobs = {"a": a_job(unique_key="k"), "b": a_job(unique_key="k")}
    whole = a_group({"a": "", "b": ""}, jobs=jobs)
    first, second = whole.nodes
    await scene.store.submit_group(GroupPart(whole.head, 0, (first,)))
    answer = await scene.store.submit_group(GroupPart(whole.head, 1, (second,)))
    assert isinstance(answer, Refused)
    assert answer.code == Conflict.code


async def test_a_submit_against_the_last_part_of_a_group(scene: Scene, backend: Backend) -> None:
    """One job has the key in the end, whoever came first, and its submitter knows which."""
    async with backend.opened() as store:
        rival = Scene(store)
        for turn in range(8):
            first, second = with_key(f"k{turn}")
            await scene.store.submit_group(first)
            job = a_job(unique_key=f"k{turn}")
            [answer], whole = await asyncio.gather(
                rival.submit(job), scene.store.submit_group(second)
            )
            assert isinstance(whole, GroupSubmitted)
            if isinstance(answer, Refused):
                assert answer.code == Unavailable.code
                [answer] = await rival.submit(job)
            assert isinstance(answer, Submitted)
            assert (answer.id, answer.existing) == (first.nodes[0].job.id, True)
            assert await scene.store.job(job.id) is None


async def enqueued(url: str, job: Submission) -> Submitted | Refused:
    """What an application hears that submits a job in a transaction of its own."""
    connection = await asyncpg.connect(url)
    try:
        asking = enqueue([job])
        ask = next(asking)
        while True:
            rows = await connection.fetch(ask.sql, *ask.values)
            ask = asking.send([tuple(row) for row in rows])
    except StopIteration as done:
        [answer] = done.value
        assert isinstance(answer, Submitted | Refused)
        return answer
    finally:
        await connection.close()


async def test_an_application_that_enqueues_such_a_key_gets_the_job_of_the_group(
    postgres_backend: PostgresBackend,
) -> None:
    """Its transaction cannot wait until the group is whole."""
    await postgres_backend.clear()
    async with postgres_backend.opened() as store:
        first, _ = await staged(Scene(store))
        answer = await enqueued(postgres_backend.url, a_job(unique_key="k"))
    assert isinstance(answer, Submitted)
    assert (answer.id, answer.existing) == (first.nodes[0].job.id, True)
