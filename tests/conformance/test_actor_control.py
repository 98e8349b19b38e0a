"""What users do to actors: pause, resume, stop, edit, restart."""

from __future__ import annotations

from datetime import timedelta

import pytest

from longshore.errors import Conflict, NotFound, StoreUnavailable
from longshore.model.actor import ActorVerdict, MailAction, Message, Reply, ReplyTo, Started, Timer
from longshore.model.attempt import Attempt
from longshore.model.ends import Cancelled, Failed, PutAside, Retried
from longshore.model.job import JobState, Reason, Refused, Verdict
from longshore.model.reports import OutboxItem
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
    replied,
    taken,
)
from longshore.testing.backends import Backend
from longshore.testing.builders import Scene, done
from longshore.testing.faults import Fault, FaultyStore, scripted

S, V = JobState, ActorVerdict


@pytest.fixture
async def actors(scene: Scene) -> ActorScene:
    return await ActorScene.begin(scene)


async def pause(actors: ActorScene) -> None:
    assert await actors.store.pause_actor(TYPE, KEY, True) is V.DONE
    assert await actors.store.pause_actor(TYPE, KEY, True) is V.ALREADY


async def resume(actors: ActorScene) -> None:
    assert await actors.store.pause_actor(TYPE, KEY, False) is V.DONE
    assert await actors.store.pause_actor(TYPE, KEY, False) is V.ALREADY


def put_aside(attempt: Attempt) -> PutAside:
    return PutAside(attempt.id, attempt.token)


# pause and resume


async def test_paused_actor_that_was_ready_waits(actors: ActorScene) -> None:
    await actors.start(an_actor())
    await pause(actors)
    actor = await actors.actor()
    assert actor.status == "paused"
    assert actor.job is not None
    assert await actors.scene.state(actor.job) is S.WAITING
    await actors.send(a_message("one"))
    assert await actors.claim() == []
    await resume(actors)
    assert names(await actors.turn()) == ["start", "one"]


async def test_paused_actor_that_slept_keeps_its_mail(actors: ActorScene) -> None:
    await actors.sleeping()
    await pause(actors)
    await actors.send(a_message("one"), a_message("later", delay_s=60))
    assert await actors.claim() == []
    actor = await actors.actor()
    assert (actor.status, actor.unread, actor.job) == ("paused", 2, None)
    await resume(actors)
    assert names(await actors.turn()) == ["one"]


async def test_paused_actor_with_a_delayed_turn_goes_on_where_it_was(
    actors: ActorScene, backend: Backend
) -> None:
    await actors.sleeping()
    await actors.send(a_message("later", delay_s=60))
    before = await actors.actor()
    await pause(actors)
    assert (await actors.actor()).next_at is None
    await resume(actors)
    assert (await actors.actor()).next_at == before.next_at
    await pause(actors)
    await backend.pass_time(61)
    assert (await actors.store.promote()).count == 0
    assert await actors.claim() == []
    await resume(actors)
    assert names(await actors.turn()) == ["later"]


async def test_running_turn_of_a_paused_actor_ends_and_none_follows(actors: ActorScene) -> None:
    await actors.start(an_actor())
    attempt = await actors.turn()
    assert not attempt.paused
    await pause(actors)
    await actors.send(a_message("one"))
    [answer] = await actors.take(attempt, state=b"\x09")
    assert answer.verdict is Verdict.RECORDED
    actor = await actors.actor()
    assert (actor.status, actor.turn, actor.state) == ("paused", 1, b"\x09")
    assert await actors.claim() == []
    await resume(actors)
    assert names(await actors.turn()) == ["one"]


async def test_turn_that_backs_off_keeps_its_time_through_a_pause(
    actors: ActorScene, backend: Backend
) -> None:
    await actors.sleeping()
    await actors.send(a_message("one"))
    await actors.pump(done(await actors.turn(), Retried, delay_s=60))
    before = await actors.actor()
    await pause(actors)
    await resume(actors)
    after = await actors.actor()
    assert before.next_at is not None
    assert after.next_at is not None
    assert abs(after.next_at - before.next_at) < timedelta(milliseconds=1)
    assert await actors.claim() == []
    await pause(actors)
    await backend.pass_time(61)
    await actors.store.promote()
    assert await actors.claim() == []
    await resume(actors)
    attempt = await actors.turn()
    assert (names(attempt), attempt.failures) == (["one"], 1)


@pytest.mark.parametrize("crash", [False, True])
async def test_harvest_does_not_unpause(actors: ActorScene, crash: bool) -> None:
    await actors.start(an_actor())
    first, slot = await actors.turn(), actors.slot
    await pause(actors)
    await actors.store.harvest(slot.worker, slot.session, "lost", crash=crash, crash_limit=9)
    other = await ActorScene.begin(actors.scene)
    attempt = await other.turn()
    assert (attempt.id, attempt.paused) == (first.id, True)
    [again] = await other.store.placed([other.slot])
    assert again.paused
    [answer] = (await other.pump(put_aside(attempt))).finished
    assert (answer.verdict, answer.state) == (Verdict.RECORDED, S.WAITING)
    assert (await actors.scene.job(attempt.id)).attempt == 1
    assert await other.claim() == []
    assert await other.status() == "paused"
    await resume(other)
    assert names(await other.turn()) == ["start"]


async def test_turn_that_is_put_aside_after_the_resume_is_ready_again(actors: ActorScene) -> None:
    await actors.start(an_actor())
    slot = actors.slot
    await actors.turn()
    await pause(actors)
    await actors.store.harvest(slot.worker, slot.session, "lost", crash=False, crash_limit=9)
    other = await ActorScene.begin(actors.scene)
    attempt = await other.turn()
    await resume(other)
    pumped = await other.pump(put_aside(attempt))
    assert sum(pumped.ready_by_ends.values()) == 1
    assert names(await other.turn()) == ["start"]


async def test_failed_actor_can_be_paused_and_resumed(actors: ActorScene) -> None:
    await actors.start(an_actor())
    attempt = await actors.turn()
    await actors.pump(done(attempt, Failed))
    await pause(actors)
    assert await actors.status() == "paused"
    await resume(actors)
    assert (await actors.turn()).id == attempt.id


async def test_turn_may_pause_its_actor(actors: ActorScene) -> None:
    await actors.start(an_actor())
    await actors.pump(taken(await actors.turn(), pauses=True, outbox=[a_message("self")]))
    assert await actors.status() == "paused"
    assert await actors.claim() == []
    await resume(actors)
    assert names(await actors.turn()) == ["self"]


async def test_retried_turn_of_a_paused_actor_is_handed_out_marked(actors: ActorScene) -> None:
    await actors.start(an_actor())
    attempt = await actors.turn()
    await pause(actors)
    await actors.pump(done(attempt, Retried, delay_s=0))
    await actors.store.promote()
    again = await actors.turn()
    assert again.paused
    await actors.pump(put_aside(again))
    await resume(actors)
    third = await actors.turn()
    assert (third.paused, third.failures) == (False, 1)


async def test_message_dropped_during_a_pause_wakes_nobody(actors: ActorScene) -> None:
    await actors.sleeping()
    await actors.send(a_message("one"))
    await pause(actors)
    assert await actors.store.sort_mail(TYPE, KEY, 1, MailAction.DROP) is V.DONE
    await resume(actors)
    actor = await actors.actor()
    assert (actor.status, actor.job) == ("sleeping", None)


# stop


async def test_sleeping_actor_is_stopped_at_once_and_its_key_is_free(actors: ActorScene) -> None:
    await actors.sleeping()
    await actors.send(a_message("later", delay_s=60))
    assert await actors.store.stop_actor(TYPE, KEY) is V.DONE
    assert await actors.store.actor(TYPE, KEY) is None
    assert await actors.store.stop_actor(TYPE, KEY) is V.NOT_FOUND
    assert await actors.mail() == []
    assert await actors.store.turns(TYPE, KEY) == []
    new = an_actor(state=b"\x55")
    await actors.start(new)
    attempt = await actors.turn()
    assert (given(attempt).state, names(attempt)) == (b"\x55", ["start"])


@pytest.mark.parametrize("how", ["ready", "paused", "failed", "backing off"])
async def test_actor_whose_turn_does_not_run_is_stopped_at_once(
    actors: ActorScene, backend: Backend, how: str
) -> None:
    await actors.start(an_actor())
    job = (await actors.actor()).job
    assert job is not None
    if how == "paused":
        await pause(actors)
    elif how == "failed":
        await actors.pump(done(await actors.turn(), Failed))
    elif how == "backing off":
        await actors.pump(done(await actors.turn(), Retried, delay_s=60))
    assert await actors.store.stop_actor(TYPE, KEY) is V.DONE
    assert await actors.store.job(job) is None
    await backend.pass_time(100)
    await actors.store.promote()
    assert await actors.claim() == []


async def test_running_turn_is_stopped_first(actors: ActorScene) -> None:
    await actors.start(an_actor())
    attempt = await actors.turn()
    assert await actors.store.stop_actor(TYPE, KEY, "ann") is V.DONE
    assert await actors.store.stop_actor(TYPE, KEY, "ann") is V.ALREADY
    assert await actors.status() == "stopping"
    assert [one.id for one in await actors.store.cancelling(actors.scene.dispatcher)] == [
        attempt.id
    ]
    await actors.store.tend_actors()
    assert await actors.status() == "stopping"
    await actors.pump(done(attempt, Cancelled))
    assert not (await actors.store.tend_actors()).more
    assert await actors.store.actor(TYPE, KEY) is None
    assert await actors.store.job(attempt.id) is None


async def test_late_turn_does_not_bring_a_stopped_actor_back(actors: ActorScene) -> None:
    await actors.sleeping(an_actor(), an_actor("b"))
    await actors.send(a_message())
    attempt = await actors.turn()
    await actors.store.stop_actor(TYPE, KEY)
    end = taken(attempt, timers=[Timer("tick", after_s=0)], outbox=[a_message("bye", "b")])
    [answer] = (await actors.pump(end)).finished
    assert answer.verdict is Verdict.RECORDED
    assert await actors.mail_names("b") == ["bye"]
    await actors.store.tend_actors()
    assert await actors.store.actor(TYPE, KEY) is None
    [answer] = (await actors.pump(end)).finished
    assert answer.verdict is Verdict.STALE
    assert [given(one).key for one in await actors.claim()] == ["b"]
    await actors.start(an_actor())
    [answer] = (await actors.pump(end)).finished
    assert answer.verdict is Verdict.STALE
    assert (await actors.actor()).turn == 0


async def test_late_repeat_of_a_start_does_not_bring_a_stopped_actor_back(
    actors: ActorScene,
) -> None:
    """Its dispatcher was frozen with it; its client has long repeated it at another one."""
    actor = an_actor()
    await actors.sleeping(actor)
    await actors.send(a_message(id=actor.id))
    await actors.store.stop_actor(TYPE, KEY)
    assert await actors.store.start_actors([actor]) == [Started(actor.id)]
    assert await actors.store.actor(TYPE, KEY) is None
    again = an_actor()
    await actors.start(again)
    assert (await actors.actor()).id == again.id


async def test_lost_turn_of_a_stopping_actor_ends_it(actors: ActorScene) -> None:
    await actors.start(an_actor())
    await actors.turn()
    await actors.store.stop_actor(TYPE, KEY)
    slot = actors.slot
    await actors.store.harvest(slot.worker, slot.session, "lost", crash=True, crash_limit=9)
    await actors.store.tend_actors()
    assert await actors.store.actor(TYPE, KEY) is None


async def test_stopping_actor_takes_no_message_and_keeps_its_key(actors: ActorScene) -> None:
    await actors.start(an_actor())
    await actors.turn()
    await actors.store.stop_actor(TYPE, KEY)
    [nobody] = await actors.send(a_message())
    assert isinstance(nobody, Refused)
    assert nobody.code == NotFound.code
    for reuse in (False, True):
        [refused] = await actors.store.start_actors([an_actor()], reuse=reuse)
        assert isinstance(refused, Refused)
        assert refused.code == Conflict.code
    assert await actors.store.pause_actor(TYPE, KEY, True) is V.NOT_FOUND
    assert await actors.store.edit_actor(TYPE, KEY, b"", 1) is V.NOT_FOUND


async def test_asks_of_a_stopped_actor_are_answered_with_an_error(actors: ActorScene) -> None:
    await actors.sleeping(an_actor(), an_actor("b"))
    answered_before, read, unread = an_ask(), an_ask(), an_ask()
    await actors.send(answered_before, read)
    attempt = await actors.turn()
    await actors.pump(taken(attempt, outbox=answered(attempt)[:1]))
    await actors.send(unread, a_message("hello", "b"))
    turns = {given(one).key: one for one in await actors.claim()}
    ask = a_message("ask", reply_to=ReplyTo(TYPE, "b", "answer", b"\x0b"))
    await actors.take(turns["b"], outbox=[ask])
    await actors.store.stop_actor(TYPE, KEY)
    await actors.pump(done(turns[KEY], Cancelled))
    tended = await actors.store.tend_actors()
    assert {one.id for one in tended.replies} == {read.id, unread.id}
    kept = await actors.store.replies([answered_before.id, read.id, unread.id])
    by_id = {one.id: one for one in kept}
    assert by_id[answered_before.id] == Reply(answered_before.id, b"\x2a")
    for id in (read.id, unread.id):
        error = by_id[id].error
        assert error is not None
        assert (error.reason, error.message) == (
            Reason.CANCELLED,
            "actor counter 'a' was stopped",
        )
    [event] = given(await actors.turn()).events
    assert (event.name, event.id) == ("answer", ask.id)
    got = replied(event)
    assert (got.result, got.about, got.error is not None) == (None, b"\x0b", True)


async def test_asks_of_an_actor_that_is_stopped_asleep_are_answered(actors: ActorScene) -> None:
    await actors.sleeping()
    await pause(actors)
    ask = an_ask()
    await actors.send(ask)
    await actors.store.stop_actor(TYPE, KEY)
    [reply] = await actors.store.replies([ask.id])
    assert reply.error is not None


async def test_turn_may_stop_its_actor(actors: ActorScene) -> None:
    await actors.sleeping(an_actor(), an_actor("b"))
    ask, late = an_ask(), an_ask()
    await actors.send(ask)
    attempt = await actors.turn()
    await actors.send(late)
    sent: list[OutboxItem | Message] = [a_message("bye", "b"), a_message("self")]
    outbox = [*answered(attempt), *sent]
    pumped = await actors.pump(taken(attempt, stops=True, outbox=outbox))
    assert pumped.replies[0] == Reply(ask.id, b"\x2a")
    assert [one.id for one in pumped.replies] == [ask.id, late.id]
    assert await actors.store.actor(TYPE, KEY) is None
    assert await actors.mail_names("b") == ["bye"]
    assert await actors.store.start_actors([again := an_actor()]) == [Started(again.id)]


async def test_stop_whose_answer_was_lost_is_repeated(actors: ActorScene) -> None:
    await actors.sleeping()
    faulty = FaultyStore(actors.store, scripted(("stop_actor", Fault.AFTER)))
    with pytest.raises(StoreUnavailable):
        await faulty.stop_actor(TYPE, KEY)
    assert await faulty.stop_actor(TYPE, KEY) is V.NOT_FOUND


async def test_nobody_can_be_controlled(actors: ActorScene) -> None:
    for paused in (True, False):
        assert await actors.store.pause_actor(TYPE, "nobody", paused) is V.NOT_FOUND
    assert await actors.store.stop_actor(TYPE, "nobody") is V.NOT_FOUND
    assert await actors.store.edit_actor(TYPE, "nobody", b"", 1) is V.NOT_FOUND


# edit and restart


async def test_edit_is_a_turn_of_its_own(actors: ActorScene) -> None:
    await actors.start(an_actor())
    await actors.pump(taken(await actors.turn(), timers=[Timer("tick", after_s=60)]))
    await actors.send(a_message("one"))
    before = await actors.actor()
    assert await actors.store.edit_actor(TYPE, KEY, b"\x77", 2, turn=1) is V.DONE
    actor = await actors.actor()
    assert (actor.turn, actor.state, actor.version, actor.worker) == (2, b"\x77", 2, None)
    assert (actor.timers, actor.status) == (before.timers, "ready")
    assert await actors.store.job(before.job or 0) is None
    attempt = await actors.turn(version=2)
    assert (names(attempt), given(attempt).state, given(attempt).turn) == (["one"], b"\x77", 3)


async def test_edit_of_what_has_changed_is_refused_and_its_repeat_is_not(
    actors: ActorScene,
) -> None:
    await actors.sleeping()
    assert await actors.store.edit_actor(TYPE, KEY, b"\x02", 1, turn=0) is V.CHANGED
    faulty = FaultyStore(actors.store, scripted(("edit_actor", Fault.AFTER)))
    with pytest.raises(StoreUnavailable):
        await faulty.edit_actor(TYPE, KEY, b"\x02", 1, turn=1)
    assert await faulty.edit_actor(TYPE, KEY, b"\x02", 1, turn=1) is V.DONE
    assert await faulty.edit_actor(TYPE, KEY, b"\x03", 1, turn=1) is V.CHANGED
    actor = await actors.actor()
    assert (actor.turn, actor.state, actor.job) == (2, b"\x02", None)


async def test_actor_whose_turn_runs_is_not_edited(actors: ActorScene) -> None:
    await actors.start(an_actor())
    attempt = await actors.turn()
    assert await actors.store.edit_actor(TYPE, KEY, b"\x02", 1, turn=0) is V.BUSY
    await actors.take(attempt, state=b"\x05")
    assert (await actors.actor()).state == b"\x05"


async def test_actor_edited_before_its_first_turn_still_starts(actors: ActorScene) -> None:
    await actors.start(an_actor())
    assert await actors.store.edit_actor(TYPE, KEY, b"\x02", 1) is V.DONE
    attempt = await actors.turn()
    assert (names(attempt), given(attempt).state) == (["start"], b"\x02")


async def test_restart_begins_with_the_start_again_and_without_timers(
    actors: ActorScene, backend: Backend
) -> None:
    await actors.start(an_actor())
    await actors.pump(taken(await actors.turn(), timers=[Timer("tick", after_s=60)]))
    assert await actors.store.edit_actor(TYPE, KEY, b"\x00", 1, restart=True) is V.DONE
    await actors.send(a_message("one"))
    attempt = await actors.turn()
    assert (names(attempt), given(attempt).timers) == (["start", "one"], ())
    await actors.take(attempt)
    await backend.pass_time(100)
    await actors.store.promote()
    assert await actors.claim() == []


async def test_failed_actor_goes_on_with_the_state_of_an_edit(actors: ActorScene) -> None:
    await actors.sleeping()
    await actors.send(a_message("one"))
    failed = await actors.turn()
    await actors.pump(done(failed, Failed))
    assert await actors.store.edit_actor(TYPE, KEY, b"\x08", 1) is V.DONE
    attempt = await actors.turn()
    assert (names(attempt), given(attempt).state, attempt.failures) == (["one"], b"\x08", 0)
    assert attempt.id != failed.id


async def test_paused_actor_that_is_edited_stays_paused(actors: ActorScene) -> None:
    await actors.start(an_actor())
    await pause(actors)
    assert await actors.store.edit_actor(TYPE, KEY, b"\x08", 1) is V.DONE
    assert await actors.status() == "paused"
    assert await actors.claim() == []
    await resume(actors)
    assert names(await actors.turn()) == ["start"]
