"""Callbacks: a token is resolved once, as long as its actor lives."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from msgspec import structs

from longshore.core.callbacks import Callback, resolution, sign, verified
from longshore.errors import NotFound, WrongState
from longshore.model.actor import Message, Sent
from longshore.model.attempt import Attempt
from longshore.model.job import Refused
from longshore.testing.actor_builders import (
    KEY,
    TYPE,
    ActorScene,
    a_message,
    an_actor,
    given,
    names,
    replied,
)
from longshore.testing.backends import Backend
from longshore.testing.builders import Scene

ROUNDS = 8


@pytest.fixture
async def actors(scene: Scene) -> ActorScene:
    actors = await ActorScene.begin(scene)
    await actors.sleeping()
    return actors


@pytest.fixture
async def rival(backend: Backend, actors: ActorScene) -> AsyncIterator[ActorScene]:
    """Another dispatcher, on its own connection to the same database."""
    async with backend.opened() as store:
        yield await ActorScene.begin(Scene(store))


def token_of(turn: Attempt, index: int = 0) -> str:
    """A token as a handler of this turn makes it."""
    got = given(turn)
    which = got.actor, got.turn, index
    return sign(got.callback_key, Callback(*which, got.type, got.key, "paid", b"\x2a"))


async def resolving(actors: ActorScene, token: str, value: bytes = b"\x07") -> Message:
    """The message that a dispatcher makes of a token."""
    return resolution(verified(await actors.store.callback_secret(), token), value)


async def a_token(actors: ActorScene) -> str:
    """The token that a turn made, which was taken."""
    await actors.send(a_message("go"))
    turn = await actors.turn()
    await actors.take(turn)
    return token_of(turn)


async def test_value_comes_as_a_message_with_what_it_is_about(actors: ActorScene) -> None:
    message = await resolving(actors, await a_token(actors))
    assert await actors.send(message) == [Sent(message.id)]
    turn = await actors.turn()
    [event] = given(turn).events
    assert (event.name, event.id) == ("reply:paid", message.id)
    said = replied(event)
    assert (said.result, said.error, said.about) == (b"\x07", None, b"\x2a")


async def test_token_can_be_resolved_before_its_turn_is_over(actors: ActorScene) -> None:
    """The next attempt of the turn makes the same token."""
    await actors.send(a_message("go"))
    turn = await actors.turn()
    message = await resolving(actors, token_of(turn))
    assert await actors.send(message) == [Sent(message.id)]
    [again] = [one for one in await actors.store.placed([actors.slot]) if one.id == turn.id]
    assert token_of(again) == token_of(turn)
    await actors.take(turn)
    assert names(await actors.turn()) == ["reply:paid"]


async def test_second_value_is_told_that_it_does_not_count(actors: ActorScene) -> None:
    """In the same batch, in another one, and after the first was read."""
    token = await a_token(actors)
    first, second = await resolving(actors, token), await resolving(actors, token, b"\x08")
    already = Sent(first.id, existing=True)
    assert await actors.send(first, second) == [Sent(first.id), already]
    assert await actors.send(second) == [already]
    await actors.take(await actors.turn())
    assert await actors.send(second) == [already]
    assert (await actors.actor()).unread == 0


async def test_ordinary_message_that_is_repeated_is_answered_as_before(
    actors: ActorScene,
) -> None:
    message = a_message("go")
    assert await actors.send(message, message) == [Sent(message.id)] * 2


async def test_two_callbacks_of_a_turn_are_apart(actors: ActorScene) -> None:
    await actors.send(a_message("go"))
    turn = await actors.turn()
    await actors.take(turn)
    for index in range(2):
        message = await resolving(actors, token_of(turn, index))
        assert await actors.send(message) == [Sent(message.id)]
    assert (await actors.actor()).unread == 2


async def test_actor_that_is_gone_gets_nothing_and_nor_does_the_next_with_its_key(
    actors: ActorScene,
) -> None:
    used, unused = await a_token(actors), await a_token(actors)
    first = await resolving(actors, used)
    await actors.send(first)
    await actors.store.stop_actor(TYPE, KEY)
    for _ in range(2):
        for token in (used, unused):
            [refused] = await actors.send(await resolving(actors, token))
            assert isinstance(refused, Refused)
            assert refused.code == NotFound.code
        await actors.sleeping(an_actor())
        await actors.store.stop_actor(TYPE, KEY)


async def test_full_mailbox_leaves_the_token_as_it_is(actors: ActorScene) -> None:
    message = await resolving(actors, await a_token(actors))
    await actors.send(a_message("a"))
    [refused] = await actors.send(message, max_mailbox=1)
    assert isinstance(refused, Refused)
    assert refused.code == WrongState.code
    assert await actors.send(message) == [Sent(message.id)]


async def test_resolved_callback_is_remembered_for_as_long_as_the_actor_lives(
    actors: ActorScene, backend: Backend
) -> None:
    """Ids of other messages are forgotten after an hour."""
    message, other = await resolving(actors, await a_token(actors)), a_message("other")
    await actors.send(message, other)
    await actors.take(await actors.turn())
    await backend.pass_time(2 * 3600.0)
    await actors.store.tend_actors()
    assert await actors.send(message) == [Sent(message.id, existing=True)]
    assert await actors.send(other) == [Sent(other.id)]
    assert await actors.mail_names() == ["other"]


async def test_stores_have_one_secret_each(actors: ActorScene, rival: ActorScene) -> None:
    secret = await actors.store.callback_secret()
    assert secret == await rival.store.callback_secret()
    assert secret


async def test_of_two_that_resolve_it_at_once_one_counts(
    actors: ActorScene, rival: ActorScene
) -> None:
    for _ in range(ROUNDS):
        token = await a_token(actors)
        mine, theirs = await resolving(actors, token), await resolving(rival, token, b"\x08")
        answers = await asyncio.gather(actors.send(mine), rival.send(theirs))
        told = [answer for some in answers for answer in some]
        first, second = Sent(mine.id), Sent(mine.id, existing=True)
        assert sorted(told, key=str) == sorted([first, second], key=str)
        assert await actors.mail_names() == ["reply:paid"]
        while not (claimed := await actors.claim(most=1)):
            pass
        await actors.take(claimed[0])


async def test_message_that_is_for_another_actor_is_refused(actors: ActorScene) -> None:
    message = await resolving(actors, await a_token(actors))
    [refused] = await actors.send(structs.replace(message, actor=message.id))
    assert isinstance(refused, Refused)
    assert refused.code == NotFound.code
