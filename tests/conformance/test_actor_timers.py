"""Timers of actors: they lie in what a turn leaves, so none outlives its actor."""

from __future__ import annotations

import pytest

from longshore.core.turns import MICROS
from longshore.model.actor import Timer
from longshore.model.ends import Retried
from longshore.testing.actor_builders import (
    KEY,
    TYPE,
    ActorScene,
    a_message,
    an_actor,
    given,
    names,
    taken,
)
from longshore.testing.backends import Backend
from longshore.testing.builders import Scene, done


@pytest.fixture
async def actors(scene: Scene) -> ActorScene:
    return await ActorScene.begin(scene)


async def start_with(actors: ActorScene, *timers: Timer) -> None:
    """An actor that sleeps, with these timers."""
    await actors.start(an_actor())
    await actors.pump(taken(await actors.turn(), timers=timers))


async def due(actors: ActorScene, backend: Backend, seconds: float) -> None:
    """So much time passes."""
    await backend.pass_time(seconds)
    await actors.store.promote()


async def test_timer_wakes_its_actor_once(actors: ActorScene, backend: Backend) -> None:
    await start_with(actors, Timer("tick", after_s=60, args=b"\x03"))
    actor = await actors.actor()
    assert (actor.status, actor.timers[0].name, actor.timers[0].after_s) == (
        "sleeping",
        "tick",
        None,
    )
    assert actor.next_at is not None
    assert actor.timers[0].at == round(actor.next_at.timestamp() * MICROS)
    await due(actors, backend, 30)
    assert await actors.claim() == []
    await due(actors, backend, 31)
    attempt = await actors.turn()
    [event] = given(attempt).events
    assert (event.kind, event.name, event.args) == ("timer", "tick", b"\x03")
    await actors.take(attempt)
    actor = await actors.actor()
    assert (actor.timers, actor.job, actor.next_at) == ((), None, None)


async def test_first_timer_wakes_and_the_others_stay(actors: ActorScene, backend: Backend) -> None:
    await start_with(actors, Timer("late", after_s=600), Timer("soon", after_s=60))
    await due(actors, backend, 61)
    attempt = await actors.turn()
    assert names(attempt) == ["soon"]
    await actors.take(attempt)
    assert [one.name for one in (await actors.actor()).timers] == ["late"]
    await due(actors, backend, 540)
    assert names(await actors.turn()) == ["late"]


async def test_timer_stays_when_a_message_comes_first(actors: ActorScene, backend: Backend) -> None:
    await start_with(actors, Timer("tick", after_s=60))
    before = (await actors.actor()).timers
    await actors.send(a_message())
    attempt = await actors.turn()
    assert (names(attempt), given(attempt).timers) == (["add"], before)
    await actors.take(attempt)
    assert (await actors.actor()).timers == before
    await due(actors, backend, 61)
    assert names(await actors.turn()) == ["tick"]


async def test_repeated_timer_that_was_due_often_during_an_outage_fires_once(
    actors: ActorScene, backend: Backend
) -> None:
    await start_with(actors, Timer("tick", after_s=10, every_s=10))
    await due(actors, backend, 1005)
    attempt = await actors.turn()
    assert names(attempt) == ["tick"]
    await actors.take(attempt)
    [timer] = (await actors.actor()).timers
    assert timer.at is not None
    assert given(attempt).now < timer.at <= given(attempt).now + 10 * MICROS
    await actors.store.promote()
    assert await actors.claim() == []
    await due(actors, backend, 11)
    assert names(await actors.turn()) == ["tick"]


async def test_timers_come_before_the_mail_that_arrived_after_they_were_due(
    actors: ActorScene, backend: Backend
) -> None:
    await start_with(actors, Timer("second", after_s=20), Timer("first", after_s=10))
    await backend.pass_time(60)
    await actors.send(a_message("mail"))
    assert names(await actors.turn()) == ["first", "second", "mail"]


async def test_timer_due_while_a_turn_runs_fires_in_the_next(
    actors: ActorScene, backend: Backend
) -> None:
    await start_with(actors, Timer("tick", after_s=60))
    await actors.send(a_message())
    attempt = await actors.turn()
    await backend.pass_time(61)
    [timer] = (await actors.actor()).timers
    await actors.pump(taken(attempt, timers=[timer]))
    assert names(await actors.turn()) == ["tick"]


async def test_timer_that_a_turn_takes_away_never_fires(
    actors: ActorScene, backend: Backend
) -> None:
    await start_with(actors, Timer("tick", after_s=60))
    await actors.send(a_message())
    await actors.pump(taken(await actors.turn(), timers=()))
    assert (await actors.actor()).job is None
    await due(actors, backend, 100)
    assert await actors.claim() == []


async def test_timer_of_a_failed_turn_fires_again(actors: ActorScene, backend: Backend) -> None:
    await start_with(actors, Timer("tick", after_s=60))
    await due(actors, backend, 61)
    await actors.pump(done(await actors.turn(), Retried, delay_s=0))
    await actors.store.promote()
    assert names(await actors.turn()) == ["tick"]


async def test_stopped_actor_never_comes_back_through_a_late_timer(
    actors: ActorScene, backend: Backend
) -> None:
    await start_with(actors, Timer("tick", after_s=60, every_s=60))
    assert await actors.store.stop_actor(TYPE, KEY) == "done"
    await due(actors, backend, 1000)
    assert await actors.claim() == []
    assert await actors.store.actor(TYPE, KEY) is None


async def test_timers_of_a_paused_actor_wait(actors: ActorScene, backend: Backend) -> None:
    await start_with(actors, Timer("tick", after_s=60))
    assert await actors.store.pause_actor(TYPE, KEY, True) == "done"
    await due(actors, backend, 61)
    assert await actors.claim() == []
    assert await actors.store.pause_actor(TYPE, KEY, False) == "done"
    assert names(await actors.turn()) == ["tick"]
