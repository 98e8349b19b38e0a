"""Actors at the same moment as something else: whichever comes first, nothing is lost or twice.

Two dispatchers with their own connections, again and again. Which of them wins is left to chance.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from longshore.model.actor import (
    ActorFilter,
    ActorPage,
    ActorVerdict,
    Message,
    ReplyTo,
    Sent,
    Started,
)
from longshore.model.attempt import Attempt
from longshore.model.ends import PutAside
from longshore.model.job import Refused, Verdict
from longshore.testing.actor_builders import (
    KEY,
    TYPE,
    ActorScene,
    a_message,
    an_actor,
    an_ask,
    answered,
    given,
    names,
    taken,
)
from longshore.testing.backends import Backend
from longshore.testing.builders import Scene

ROUNDS = 8


@pytest.fixture
async def actors(scene: Scene) -> ActorScene:
    return await ActorScene.begin(scene)


@pytest.fixture
async def rival(backend: Backend, actors: ActorScene) -> AsyncIterator[ActorScene]:
    """Another dispatcher with a worker, on its own connection to the same database."""
    async with backend.opened() as store:
        yield await ActorScene.begin(Scene(store))


async def next_turn(actors: ActorScene) -> Attempt:
    """The one turn that is ready. A store may come a little later to what another made ready."""
    while not (claimed := await actors.claim()):
        pass
    [attempt] = claimed
    return attempt


async def turn_of(actors: ActorScene, key: str) -> Attempt:
    """The turn of this actor, which gets a message for it."""
    await actors.send(a_message("go", key))
    attempt = await next_turn(actors)
    assert given(attempt).key == key
    return attempt


async def read_all(actors: ActorScene, key: str) -> list[str]:
    """Takes turns until the mailbox is empty; answers what they read."""
    read: list[str] = []
    while (await actors.actor(key)).unread:
        attempt = await next_turn(actors)
        read += names(attempt)
        await actors.take(attempt)
    assert await actors.status(key) == "sleeping"
    return read


async def test_two_that_send_at_once_are_both_in_and_wake_one_turn(
    actors: ActorScene, rival: ActorScene
) -> None:
    for turn in range(ROUNDS):
        key = str(turn)
        await actors.sleeping(an_actor(key))
        mine, theirs = ([a_message(f"{who} {n}", key) for n in range(5)] for who in "ab")
        await asyncio.gather(actors.send(*mine), rival.send(*theirs))
        mail = await actors.mail(key)
        assert [one.number for one in mail] == [*range(1, 11)]
        sent = [one.name for one in mail]
        assert sent in ([f"{who} {n}" for who in order for n in range(5)] for order in ("ab", "ba"))
        attempt = await next_turn(actors)
        assert names(attempt) == sent
        assert await actors.claim() == await rival.claim() == []
        await actors.take(attempt)


async def test_same_message_sent_to_two_dispatchers_is_in_once(
    actors: ActorScene, rival: ActorScene
) -> None:
    for turn in range(ROUNDS):
        key = str(turn)
        await actors.sleeping(an_actor(key))
        messages = [a_message(str(n), key) for n in range(5)]
        answers = await asyncio.gather(actors.send(*messages), rival.send(*reversed(messages)))
        assert sorted(one.id for one in answers[0]) == sorted(one.id for one in answers[1])
        assert all(isinstance(one, Sent) for some in answers for one in some)
        assert len(await actors.mail(key)) == 5
        assert len(await read_all(actors, key)) == 5


async def test_message_at_the_commit_of_a_turn_is_never_lost(
    actors: ActorScene, rival: ActorScene
) -> None:
    """The turn did not get it, so it wakes the next one."""
    for turn in range(ROUNDS):
        key = str(turn)
        await actors.sleeping(an_actor(key))
        attempt = await turn_of(actors, key)
        await asyncio.gather(actors.take(attempt), rival.send(a_message("late", key)))
        assert await read_all(actors, key) == ["late"]


async def test_two_turns_that_send_to_each_other(actors: ActorScene, rival: ActorScene) -> None:
    for turn in range(ROUNDS):
        one, two = f"{turn} a", f"{turn} b"
        await actors.sleeping(an_actor(one), an_actor(two))
        first, second = await turn_of(actors, one), await turn_of(actors, two)
        [mine], [theirs] = await asyncio.gather(
            actors.take(first, outbox=[a_message("from a", two)]),
            rival.take(second, outbox=[a_message("from b", one)]),
        )
        assert mine.verdict is theirs.verdict is Verdict.RECORDED
        assert await actors.mail_names(one) == ["from b"]
        assert await actors.mail_names(two) == ["from a"]
        for attempt in [*await actors.claim(), *await rival.claim()]:
            await actors.take(attempt)


async def test_stop_and_send_agree(actors: ActorScene, rival: ActorScene) -> None:
    """Whoever sent before the stop was accepted; nobody else, and no turn is left."""
    for turn in range(ROUNDS):
        key = str(turn)
        await actors.sleeping(an_actor(key))
        ask = an_ask(key=key)
        verdict, [answer] = await asyncio.gather(
            actors.store.stop_actor(TYPE, key), rival.send(ask)
        )
        assert verdict is ActorVerdict.DONE
        assert await actors.store.actor(TYPE, key) is None
        assert await actors.claim() == []
        replies = await actors.store.replies([ask.id])
        assert [reply.id for reply in replies] == [ask.id] * isinstance(answer, Sent)
        assert isinstance(answer, Sent | Refused)


async def test_stop_and_turn_agree(actors: ActorScene, rival: ActorScene) -> None:
    """The ask is answered once, by the turn or by the stop, and the actor goes."""
    for turn in range(ROUNDS):
        key = str(turn)
        await actors.sleeping(an_actor(key))
        ask = an_ask(key=key)
        await actors.send(ask)
        attempt = await next_turn(actors)
        end = taken(attempt, outbox=answered(attempt))
        pumped, verdict = await asyncio.gather(actors.pump(end), rival.store.stop_actor(TYPE, key))
        assert verdict is ActorVerdict.DONE
        assert [one.verdict for one in pumped.finished] == [Verdict.RECORDED]
        await actors.store.tend_actors()
        assert await actors.store.actor(TYPE, key) is None
        [reply] = await actors.store.replies([ask.id])
        assert (reply.result, reply.error) == (b"\x2a", None)


async def test_two_actors_that_asked_each_other_are_stopped_at_once(
    actors: ActorScene, rival: ActorScene
) -> None:
    """Each stop answers the other actor, if that is still there."""
    for turn in range(ROUNDS):
        one, two = f"{turn} a", f"{turn} b"
        await actors.sleeping(an_actor(one), an_actor(two))
        for own, other in ((one, two), (two, one)):
            ask = a_message("what", other, reply_to=ReplyTo(TYPE, own, "told"))
            attempt = await next_turn(actors) if own == two else await turn_of(actors, own)
            await actors.take(attempt, outbox=[ask])
        mine, theirs = await asyncio.gather(
            actors.store.stop_actor(TYPE, one), rival.store.stop_actor(TYPE, two)
        )
        assert mine is theirs is ActorVerdict.DONE
        assert await actors.store.actors(ActorFilter()) == ActorPage()
        assert await actors.claim() == []


async def test_pause_and_commit_of_a_turn_agree(actors: ActorScene, rival: ActorScene) -> None:
    """The turn ends as usual. What it sent to itself waits until the actor is resumed."""
    for turn in range(ROUNDS):
        key = str(turn)
        await actors.sleeping(an_actor(key))
        attempt = await turn_of(actors, key)
        [finished], verdict = await asyncio.gather(
            actors.take(attempt, outbox=[a_message("again", key)]),
            rival.store.pause_actor(TYPE, key, True),
        )
        assert (finished.verdict, verdict) == (Verdict.RECORDED, ActorVerdict.DONE)
        assert await actors.status(key) == "paused"
        assert await actors.claim() == []
        assert await actors.store.pause_actor(TYPE, key, False) is ActorVerdict.DONE
        assert await read_all(actors, key) == ["again"]


async def test_pause_and_claim_agree(actors: ActorScene, rival: ActorScene) -> None:
    """A turn that was claimed all the same is marked, and can be put aside."""
    for turn in range(ROUNDS):
        key = str(turn)
        await actors.sleeping(an_actor(key))
        await actors.send(a_message("one", key))
        claimed, _ = await asyncio.gather(actors.claim(), rival.store.pause_actor(TYPE, key, True))
        assert await actors.status(key) == "paused"
        for attempt in claimed:
            if attempt.paused:
                await actors.pump(PutAside(attempt.id, attempt.token))
            else:
                await actors.take(attempt)
        assert await actors.claim() == []
        await actors.store.pause_actor(TYPE, key, False)
        read = await read_all(actors, key)
        assert read == ([] if claimed and not claimed[0].paused else ["one"])


async def test_resume_at_the_moment_a_turn_is_put_aside(
    actors: ActorScene, rival: ActorScene
) -> None:
    """The turn is ready afterwards: it never waits for a resume that has been."""
    for turn in range(ROUNDS):
        key = str(turn)
        await actors.sleeping(an_actor(key))
        attempt = await turn_of(actors, key)
        await actors.store.pause_actor(TYPE, key, True)
        await asyncio.gather(
            actors.pump(PutAside(attempt.id, attempt.token)),
            rival.store.pause_actor(TYPE, key, False),
        )
        assert await actors.status(key) == "ready"
        assert await read_all(actors, key) == ["go"]


async def test_harvest_and_turn_never_both_count(actors: ActorScene, rival: ActorScene) -> None:
    """Either the turn was taken, or another attempt takes it with the same events."""
    for turn in range(ROUNDS):
        key = str(turn)
        await actors.sleeping(an_actor(key))
        await actors.send(a_message("one", key))
        lost = await ActorScene.begin(actors.scene)
        attempt = await next_turn(lost)
        sent = [a_message("sent", key)]
        [finished], harvested = await asyncio.gather(
            actors.take(attempt, outbox=sent),
            rival.store.harvest(attempt.worker, attempt.session, "", crash=True, crash_limit=9),
        )
        recorded = finished.verdict is Verdict.RECORDED
        assert recorded or finished.verdict is Verdict.STALE
        assert harvested.requeued == (0 if recorded else 1)
        assert await read_all(actors, key) == (["sent"] if recorded else ["one"])


async def test_one_turn_reported_to_two_dispatchers_counts_once(
    actors: ActorScene, rival: ActorScene
) -> None:
    for turn in range(ROUNDS):
        key = str(turn)
        await actors.sleeping(an_actor(key))
        attempt = await turn_of(actors, key)
        end = taken(attempt, outbox=[a_message("sent", key)])
        answers = await asyncio.gather(actors.pump(end), rival.pump(end))
        verdicts = sorted(one.finished[0].verdict for one in answers)
        assert verdicts == [Verdict.RECORDED, Verdict.STALE]
        assert await read_all(actors, key) == ["sent"]
        assert (await actors.actor(key)).turn == 3


async def test_one_key_goes_to_one_of_two_starts(actors: ActorScene, rival: ActorScene) -> None:
    for turn in range(ROUNDS):
        keys = [f"{turn} {n}" for n in range(5)]
        mine, theirs = ([an_actor(key) for key in keys] for _ in range(2))
        one, two = await asyncio.gather(
            actors.store.start_actors(mine), rival.store.start_actors(theirs[::-1])
        )
        won = sum(isinstance(answer, Started) for answer in (*one, *two))
        assert won == 5
        claimed = await actors.claim() + await rival.claim()
        assert sorted(given(attempt).key for attempt in claimed) == keys
        for attempt in claimed:
            await actors.take(attempt)


async def test_stop_and_start_of_one_key(actors: ActorScene, rival: ActorScene) -> None:
    """There is the old one, or none, or the new one; never both."""
    for turn in range(ROUNDS):
        key = str(turn)
        await actors.sleeping(an_actor(key))
        new = an_actor(key)
        verdict, [answer] = await asyncio.gather(
            actors.store.stop_actor(TYPE, key), rival.store.start_actors([new])
        )
        assert verdict is ActorVerdict.DONE
        found = await actors.store.actor(TYPE, key)
        if isinstance(answer, Started):
            assert found is not None
            assert found.id == new.id
            await actors.take(await next_turn(actors))
        else:
            assert found is None


async def test_many_send_to_many_in_opposite_orders(actors: ActorScene, rival: ActorScene) -> None:
    keys = [f"{n:03}" for n in range(100)]
    await actors.start(*(an_actor(key) for key in keys))

    def messages(order: list[str]) -> list[Message]:
        return [a_message(key=key) for key in order]

    for _ in range(3):
        await asyncio.gather(actors.send(*messages(keys)), rival.send(*messages(keys[::-1])))
    for key in keys:
        assert [one.number for one in await actors.mail(key)] == [*range(1, 7)]


async def test_mail_after_a_resume_is_read_though_its_dispatcher_knew_the_actor_as_paused(
    actors: ActorScene, rival: ActorScene
) -> None:
    """What a dispatcher remembers of an actor may be older than a resume."""
    await actors.sleeping()
    await actors.store.pause_actor(TYPE, KEY, True)
    await actors.send(a_message("first"))
    await actors.store.pause_actor(TYPE, KEY, False)
    turn = await actors.turn()
    await rival.send(a_message("second"))
    assert (await actors.take(turn))[0].verdict is Verdict.RECORDED
    assert len(await actors.claim()) == 1, "its next turn reads the second message"
