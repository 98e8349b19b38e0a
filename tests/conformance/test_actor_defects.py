"""What stateful jobs are known to get wrong elsewhere, one test for each: here none of it happens.

A job there is a state in a map and a loop that owns it: it reads the state, calls `run`, and writes
what comes back. Each of these defects follows from a write that checks nothing, or from a loop that
is the only place where something is known.
"""

from __future__ import annotations

import pytest

from longshore.errors import NotFound
from longshore.model.actor import ActorFilter, ActorStatus, Timer
from longshore.model.ends import Failed, PutAside, Released, Succeeded
from longshore.model.job import JobError, JobFilter, JobState, Reason, Refused, Verdict
from longshore.model.reports import OutboxMessage
from longshore.testing.actor_builders import (
    KEY,
    TYPE,
    ActorScene,
    a_message,
    an_actor,
    given,
    names,
    taken,
    undelivered,
)
from longshore.testing.backends import Backend
from longshore.testing.builders import Scene, done

LONG_S = 10_000.0


@pytest.fixture
async def actors(scene: Scene) -> ActorScene:
    return await ActorScene.begin(scene)


async def at_rest_with(actors: ActorScene, *timers: Timer) -> None:
    """An actor that has started, and waits for these timers."""
    await actors.start(an_actor())
    await actors.pump(taken(await actors.turn(), timers=timers))


async def lost(actors: ActorScene) -> ActorScene:
    """The worker dies, and another one is there."""
    slot = actors.slot
    await actors.store.harvest(slot.worker, slot.session, "lost", crash=False, crash_limit=9)
    return await ActorScene.begin(actors.scene)


async def test_a_message_that_arrives_during_run_is_not_lost(actors: ActorScene) -> None:
    """Elsewhere: get, run, put. What a handler wrote in between is overwritten."""
    await actors.sleeping()
    await actors.send(a_message("one"))
    running = await actors.turn()
    await actors.send(a_message("two", args=b"\x02"))
    assert names(running) == ["one"]
    await actors.take(running, state=b"\x11")
    after = await actors.turn()
    assert [(one.name, one.args) for one in given(after).events] == [("two", b"\x02")]
    assert given(after).state == b"\x11"


async def test_a_message_that_arrives_with_the_end_of_run_is_not_lost(actors: ActorScene) -> None:
    """Both are in one transaction: the turn reads what it was given, and no more."""
    await actors.sleeping()
    await actors.send(a_message("one"))
    await actors.pump(taken(await actors.turn()), sends=[a_message("two")])
    assert names(await actors.turn()) == ["two"]


@pytest.mark.parametrize("when", ["before it is due", "while it runs", "after it was lost"])
async def test_an_unscheduled_job_that_waits_on_its_timer_does_not_put_itself_back(
    actors: ActorScene, backend: Backend, when: str
) -> None:
    await at_rest_with(actors, Timer("tick", after_s=60, every_s=60))
    late = None
    if when != "before it is due":
        await backend.pass_time(61)
        await actors.store.promote()
        late = taken(await actors.turn())
    await actors.store.stop_actor(TYPE, KEY)
    if when == "after it was lost":
        actors = await lost(actors)
    if late is not None:
        await actors.pump(late)
    await actors.store.tend_actors()
    await backend.pass_time(LONG_S)
    await actors.store.promote()
    assert await actors.claim() == []
    assert await actors.store.actor(TYPE, KEY) is None
    await actors.start(an_actor())
    assert names(await actors.turn()) == ["start"], "the next one with this key has no old timer"


async def test_the_failed_state_is_persisted(actors: ActorScene, backend: Backend) -> None:
    """With the error, the state before it and the mail; whoever looks, also after a restart."""
    await actors.sleeping(an_actor(state=b"\x05"))
    await actors.send(a_message("poison"), a_message("later"))
    error = JobError(Reason.RAISED, "boom", "ValueError")
    await actors.pump(done(await actors.turn(), Failed, error=error))
    async with backend.opened() as store:
        actor = await store.actor(TYPE, KEY)
        assert actor is not None
        assert (actor.status, actor.error, actor.state) == (ActorStatus.FAILED, error, b"\x01")
        assert [one.name for one in await store.mail(TYPE, KEY)] == ["poison", "later"]
        [listed] = (await store.actors(ActorFilter(status=ActorStatus.FAILED))).actors
        assert listed.key == KEY
        assert await actors.claim() == [], "it stays so until somebody resumes it"
        await store.pause_actor(TYPE, KEY, False)
    assert names(await actors.turn())[0] == "poison"


async def test_a_message_to_a_removed_job_creates_no_ghost(actors: ActorScene) -> None:
    """From outside it is an error, to a turn it comes back, and of a job it is noted."""
    await actors.sleeping(an_actor(), an_actor("other"))
    await actors.store.stop_actor(TYPE, KEY)
    [refused] = await actors.send(a_message("one"))
    assert isinstance(refused, Refused)
    assert refused.code == NotFound.code
    await actors.send(a_message("go", "other"))
    await actors.pump(taken(await actors.turn(), outbox=[a_message("two")]))
    [event] = given(await actors.turn()).events
    assert (event.name, undelivered(event).name) == ("undelivered", "two")
    job = await actors.scene.running(slot=actors.slot)
    sends = (OutboxMessage(a_message("three")),)
    await actors.pump(Succeeded(job.id, job.token, b"\x01", sends))
    noted = (await actors.scene.job(job.id)).history[-1].info
    assert noted.startswith("outbox item 0 refused: there is no actor")
    assert await actors.store.actor(TYPE, KEY) is None
    assert [one.key for one in (await actors.store.actors(ActorFilter())).actors] == ["other"]
    assert await actors.mail() == []


@pytest.mark.parametrize("how", ["asleep", "ready", "lost", "handed back"])
async def test_moving_does_not_unpause_a_paused_job(
    actors: ActorScene, backend: Backend, how: str
) -> None:
    """Whatever it did when it was paused, no worker that comes after takes a turn of it."""
    await at_rest_with(actors, Timer("tick", after_s=60))
    if how != "asleep":
        await actors.send(a_message("one"))
    turn = await actors.turn() if how in ("lost", "handed back") else None
    assert await actors.store.pause_actor(TYPE, KEY, True) == "done"
    if how == "handed back" and turn is not None:
        await actors.pump(done(turn, Released))
    other = await lost(actors)
    await backend.pass_time(LONG_S)
    await other.store.promote()
    for attempt in await other.claim():
        assert attempt.paused, "a dispatcher sends no such attempt"
        await other.pump(PutAside(attempt.id, attempt.token))
    await other.send(a_message("two"))
    assert await other.claim() == []
    assert await other.status() == ActorStatus.PAUSED
    await other.store.pause_actor(TYPE, KEY, False)
    events = names(await other.turn())
    assert set(events) == {"tick", "two"} | ({"one"} if how != "asleep" else set())


async def test_a_missing_timeout_does_not_kill_the_loop(
    actors: ActorScene, backend: Backend
) -> None:
    """A turn that sets no timer leaves an actor asleep, and the next message wakes it."""
    await at_rest_with(actors)
    actor = await actors.actor()
    assert (actor.status, actor.timers, actor.job) == (ActorStatus.SLEEPING, (), None)
    await backend.pass_time(LONG_S)
    await actors.store.promote()
    for name in ("one", "two"):
        await actors.send(a_message(name))
        attempt = await actors.turn()
        assert names(attempt) == [name]
        await actors.take(attempt)
    await actors.send(a_message("set"))
    await actors.pump(taken(await actors.turn(), timers=[Timer("tick", after_s=60)]))
    await backend.pass_time(61)
    await actors.store.promote()
    await actors.pump(taken(await actors.turn(), timers=()))
    await actors.send(a_message("three"))
    assert names(await actors.turn()) == ["three"]


async def test_no_message_is_lost_in_migration(actors: ActorScene) -> None:
    """It is sent before, between and after all steps in which an actor goes to another worker."""
    await actors.sleeping()
    await actors.send(a_message("1"))
    first = await actors.turn()
    await actors.send(a_message("2"))
    slot = actors.slot
    await actors.pump(done(first, Released), sends=[a_message("3")])
    await actors.store.harvest(slot.worker, slot.session, "goodbye", crash=False, crash_limit=9)
    await actors.send(a_message("4"))
    other = await ActorScene.begin(actors.scene)
    second = await other.turn()
    await other.send(a_message("5"))
    third = await lost(other)
    await third.send(a_message("6"))
    last = await third.turn()
    assert names(second) == ["1", "2", "3", "4"]
    assert names(last) == ["1", "2", "3", "4", "5", "6"]
    assert given(last).last_worker == slot.worker
    for late in (first, second):
        [answer] = await third.take(late, state=b"\x66")
        assert answer.verdict is Verdict.STALE
    await third.take(last)
    assert (await third.mail(), (await third.actor()).turn) == ([], 2)
    live = JobFilter(states=(JobState.READY, JobState.RUNNING, JobState.DELAYED))
    assert (await third.store.jobs(live)).jobs == ()
