"""Jobs that read actors: they get the committed state, wait for no turn, and leave no job."""

from __future__ import annotations

import pytest
from msgspec import structs

from longshore.core.turns import read_job
from longshore.model.actor import Reply
from longshore.model.attempt import Attempt
from longshore.model.ends import ReadDone
from longshore.model.job import JobError, Reason, Submission, Submitted, Verdict
from longshore.ports import Batch
from longshore.testing.actor_builders import (
    TYPE,
    ActorScene,
    a_message,
    an_actor,
    given,
    names,
    taken,
)
from longshore.testing.builders import Scene, new_id


@pytest.fixture
async def actors(scene: Scene) -> ActorScene:
    return await ActorScene.begin(scene)


async def a_read(actors: ActorScene, name: str = "balance") -> Submission:
    """A read of the actor, submitted."""
    job = read_job(new_id(), await actors.actor(), name, b"\xc0", None)
    batch = Batch(submits=[job])
    [answer] = (await actors.store.pump(actors.scene.dispatcher, batch)).submitted
    assert isinstance(answer, Submitted)
    return job


async def the_read(actors: ActorScene) -> Attempt:
    """The read that is ready, claimed."""
    [attempt] = await actors.claim()
    assert attempt.options.reads
    return attempt


def done(attempt: Attempt, result: bytes = b"\x2a") -> ReadDone:
    return ReadDone(*attempt.key, reply=Reply(attempt.id, result))


async def test_a_read_gets_the_committed_state_while_a_turn_runs(actors: ActorScene) -> None:
    await actors.sleeping()
    await actors.send(a_message("one"))
    turn = await actors.turn()
    await a_read(actors)
    attempt = await the_read(actors)
    input = given(attempt)
    assert (input.reads, input.state, input.key) == (True, b"\x01", "a")
    assert names(attempt) == ["balance"]
    assert input.events[0].args == b"\xc0"
    await actors.take(turn, state=b"\x02")
    [again] = await actors.store.placed([actors.slot])
    assert given(again).state == b"\x02"


async def test_a_read_that_starts_at_its_submit_has_the_state_too(actors: ActorScene) -> None:
    await actors.sleeping()
    job = read_job(new_id(), await actors.actor(), "balance", b"", None)
    batch = Batch(submits=[job], slots=[actors.slot])
    [attempt] = (await actors.store.pump(actors.scene.dispatcher, batch)).started
    assert (given(attempt).state, names(attempt)) == (b"\x01", ["balance"])


async def test_the_end_of_a_read_keeps_the_reply_and_no_job(actors: ActorScene) -> None:
    await actors.sleeping()
    read = await a_read(actors)
    attempt = await the_read(actors)
    result = await actors.pump(done(attempt))
    assert [one.verdict for one in result.finished] == [Verdict.RECORDED]
    assert result.replies == [Reply(read.id, b"\x2a")]
    assert await actors.store.replies([read.id]) == [Reply(read.id, b"\x2a")]
    assert await actors.store.job(read.id) is None
    assert (await actors.actor()).turn == 1


async def test_the_end_of_a_read_that_is_repeated_changes_nothing(actors: ActorScene) -> None:
    await actors.sleeping()
    read = await a_read(actors)
    attempt = await the_read(actors)
    await actors.pump(done(attempt))
    result = await actors.pump(done(attempt, b"\x01"))
    assert [one.verdict for one in result.finished] == [Verdict.STALE]
    assert result.replies == []
    assert await actors.store.replies([read.id]) == [Reply(read.id, b"\x2a")]


async def test_only_its_owner_ends_a_read(actors: ActorScene) -> None:
    await actors.sleeping()
    read = await a_read(actors)
    attempt = await the_read(actors)
    for wrong in (
        structs.replace(done(attempt), token=attempt.token + 1),
        structs.replace(done(attempt), worker=new_id()),
    ):
        [answer] = (await actors.pump(wrong)).finished
        assert answer.verdict is Verdict.STALE
    assert await actors.store.replies([read.id]) == []
    assert await actors.store.job(read.id) is not None


async def test_turns_reads_and_jobs_end_in_one_batch(actors: ActorScene) -> None:
    await actors.sleeping(an_actor("a"), an_actor("b"))
    await a_read(actors)
    await actors.send(a_message(key="b"))
    read, turn = sorted(await actors.claim(), key=lambda one: one.options.turn)
    error = JobError(Reason.RAISED, "no \x00 such thing")
    failed = ReadDone(*read.key, reply=Reply(read.id, error=error))
    result = await actors.pump(taken(turn), failed, sends=[a_message(key="a")])
    assert [one.verdict for one in result.finished] == [Verdict.RECORDED] * 2
    [reply] = result.replies
    assert reply.error is not None
    assert await actors.store.replies([read.id]) == [reply]
    assert (await actors.actor("b")).turn == 2


async def test_a_read_of_a_lost_worker_is_tried_again(actors: ActorScene) -> None:
    await actors.sleeping()
    await a_read(actors)
    attempt = await the_read(actors)
    slot = actors.slot
    await actors.store.harvest(slot.worker, slot.session, "lost", crash=False, crash_limit=9)
    other = ActorScene(actors.scene, await actors.scene.attend(kinds=[f"{TYPE}@1"]))
    again = await the_read(other)
    assert (again.id, again.token > attempt.token) == (attempt.id, True)
    assert given(again).state == b"\x01"


async def test_an_actor_that_is_gone_cannot_be_read(actors: ActorScene) -> None:
    await actors.sleeping()
    await a_read(actors)
    await actors.store.stop_actor(TYPE, "a")
    attempt = await the_read(actors)
    assert attempt.problem == "the actor that it reads is gone"
