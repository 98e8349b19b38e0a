"""The mailbox of an actor: each message is read once, in order, by whoever it was sent."""

from __future__ import annotations

import pytest
from msgspec import structs

from longshore.core.turns import MOST_EVENTS
from longshore.errors import InvalidInput, NotFound, StoreUnavailable, WrongState
from longshore.model.actor import MailAction, Reply, ReplyTo, Sent
from longshore.model.ends import Failed, Succeeded
from longshore.model.job import JobError, Reason, Refused, Verdict
from longshore.model.reports import OutboxMessage, OutboxReply
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
    undelivered,
)
from longshore.testing.backends import Backend
from longshore.testing.builders import Scene, done, new_id
from longshore.testing.faults import Fault, FaultyStore, scripted

LONG_S = 3601.0
"""Longer than a store keeps the ids of messages from outside."""


@pytest.fixture
async def actors(scene: Scene) -> ActorScene:
    return await ActorScene.begin(scene)


# sending


async def test_message_wakes_its_actor(actors: ActorScene) -> None:
    await actors.sleeping()
    message = a_message("add", args=b"\x02")
    pumped = await actors.pump(sends=[message])
    assert pumped.sent == [Sent(message.id)]
    assert (sum(pumped.ready.values()), sum(pumped.ready_by_ends.values())) == (1, 0)
    attempt = await actors.turn()
    [event] = given(attempt).events
    assert (event.kind, event.name, event.args, event.id) == ("message", "add", b"\x02", message.id)
    assert (event.number, event.was_delayed, event.reply_to) == (1, False, None)
    await actors.take(attempt)
    assert await actors.mail() == []
    assert (await actors.actor()).job is None


async def test_turn_that_the_same_batch_claims_has_the_message(actors: ActorScene) -> None:
    await actors.sleeping()
    await actors.send(a_message("one"))
    first = await actors.turn()
    await actors.pump(taken(first), sends=[a_message("two")])
    assert names(await actors.turn()) == ["two"]


async def test_messages_are_read_in_the_order_of_their_sends(actors: ActorScene) -> None:
    await actors.sleeping()
    await actors.send(a_message("one"), a_message("two"))
    await actors.send(a_message("three"))
    attempt = await actors.turn()
    assert names(attempt) == ["one", "two", "three"]
    assert [event.number for event in given(attempt).events] == [1, 2, 3]


async def test_messages_that_arrive_during_a_turn_stay_for_the_next(actors: ActorScene) -> None:
    await actors.sleeping()
    await actors.send(a_message("one"))
    attempt = await actors.turn()
    await actors.send(a_message("two"))
    await actors.take(attempt)
    assert await actors.mail_names() == ["two"]
    second = await actors.turn()
    assert names(second) == ["two"]
    await actors.take(second)
    assert await actors.claim() == []


async def test_turn_may_leave_events_for_the_next(actors: ActorScene) -> None:
    await actors.sleeping()
    await actors.send(a_message("one"), a_message("two"), a_message("three"))
    await actors.pump(taken(await actors.turn(), first=1))
    assert names(await actors.turn()) == ["two", "three"]


async def test_turn_takes_a_bounded_number_of_messages(actors: ActorScene) -> None:
    await actors.sleeping()
    many = [a_message(f"m{n}") for n in range(MOST_EVENTS + 5)]
    await actors.send(*many)
    attempt = await actors.turn()
    assert names(attempt) == [one.name for one in many[:MOST_EVENTS]]
    await actors.take(attempt)
    assert names(await actors.turn()) == [one.name for one in many[MOST_EVENTS:]]


async def test_turn_cannot_read_what_was_never_sent(actors: ActorScene) -> None:
    await actors.sleeping()
    await actors.send(a_message("one"))
    end = taken(await actors.turn())
    await actors.pump(structs.replace(end, turn=structs.replace(end.turn, read=2**62)))
    await actors.send(a_message("two"))
    attempt = await actors.turn()
    assert [event.number for event in given(attempt).events] == [2]


async def test_repeat_of_a_send_is_dropped(actors: ActorScene) -> None:
    await actors.sleeping()
    message = a_message("one")
    assert await actors.send(message, message) == [Sent(message.id)] * 2
    await actors.take(await actors.turn())
    assert await actors.send(message) == [Sent(message.id)]
    assert await actors.mail() == []
    assert await actors.claim() == []


async def test_send_whose_answer_was_lost_is_repeated_and_arrives_once(actors: ActorScene) -> None:
    await actors.sleeping()
    faulty = FaultyStore(actors.store, scripted(("pump", Fault.BEFORE), ("pump", Fault.AFTER)))
    mine = ActorScene(Scene(faulty, actors.scene.dispatcher), actors.slot)
    message = a_message("one")
    for _ in range(2):
        with pytest.raises(StoreUnavailable):
            await mine.send(message)
    assert await mine.send(message) == [Sent(message.id)]
    assert await actors.mail_names() == ["one"]


async def test_ids_of_messages_are_forgotten_after_an_hour(
    actors: ActorScene, backend: Backend
) -> None:
    await actors.sleeping()
    message = a_message("one")
    await actors.send(message)
    await actors.store.tend_actors()
    assert await actors.send(message) == [Sent(message.id)]
    assert await actors.mail_names() == ["one"]
    await backend.pass_time(LONG_S)
    await actors.store.tend_actors()
    await actors.send(message)
    assert await actors.mail_names() == ["one", "one"]


async def test_many_ids_are_forgotten_a_few_at_a_time(actors: ActorScene, backend: Backend) -> None:
    await actors.sleeping()
    await actors.send(*(a_message() for _ in range(5)))
    await backend.pass_time(LONG_S)
    assert [(await actors.store.tend_actors(2)).more for _ in range(3)] == [True, True, False]


async def test_message_to_nobody_is_refused(actors: ActorScene) -> None:
    await actors.sleeping()
    lost, found = a_message("one", "nobody"), a_message("two")
    [refused, sent] = await actors.send(lost, found)
    assert isinstance(refused, Refused)
    assert (refused.id, refused.code) == (lost.id, NotFound.code)
    assert sent == Sent(found.id)
    await actors.start(an_actor("nobody"))
    assert await actors.send(lost) == [Sent(lost.id)]


async def test_message_that_no_database_can_store_is_refused(actors: ActorScene) -> None:
    await actors.sleeping()
    [refused, sent] = await actors.send(a_message("a\0b"), a_message("two"))
    assert isinstance(refused, Refused)
    assert refused.code == InvalidInput.code
    assert isinstance(sent, Sent)


async def test_full_mailbox_takes_nothing_from_outside(actors: ActorScene) -> None:
    await actors.sleeping()
    first, second, third = a_message("one"), a_message("two", delay_s=60), a_message("three")
    answers = await actors.send(first, second, third, max_mailbox=2)
    assert answers[:2] == [Sent(first.id), Sent(second.id)]
    assert isinstance(answers[2], Refused)
    assert (answers[2].id, answers[2].code) == (third.id, WrongState.code)
    [again, refused] = await actors.send(first, third, max_mailbox=2)
    assert again == Sent(first.id)
    assert isinstance(refused, Refused)
    await actors.take(await actors.turn())
    assert await actors.send(third, max_mailbox=2) == [Sent(third.id)]


async def test_full_mailbox_takes_what_turns_send(actors: ActorScene) -> None:
    await actors.sleeping(an_actor(), an_actor("b"))
    await actors.send(a_message("one"), a_message("one", "b"))
    first = await actors.turn()
    other = "b" if given(first).key == KEY else KEY
    end = taken(first, outbox=[a_message("two", other)])
    await actors.pump(end, max_mailbox=1)
    assert await actors.mail_names(other) == ["one", "two"]


async def test_a_thousand_messages_to_a_thousand_actors_in_one_batch(actors: ActorScene) -> None:
    keys = [f"k{n:04}" for n in range(1_000)]
    await actors.start(*map(an_actor, keys))
    await actors.pump(*map(taken, await actors.claim(most=1_000)))
    messages = [a_message("hello", key, args=key.encode()) for key in keys]
    pumped = await actors.pump(sends=messages)
    assert pumped.sent == [Sent(one.id) for one in messages]
    assert sum(pumped.ready.values()) == 1_000
    inputs = [given(one) for one in await actors.claim(most=1_000)]
    assert {(one.key, one.events[0].args) for one in inputs} == {(k, k.encode()) for k in keys}


# delayed messages


async def test_delayed_message_wakes_its_actor_when_it_is_due(
    actors: ActorScene, backend: Backend
) -> None:
    await actors.sleeping()
    await actors.send(a_message("later", delay_s=60), a_message("latest", delay_s=90))
    actor = await actors.actor()
    assert (actor.status, actor.unread) == ("sleeping", 2)
    assert actor.next_at is not None
    await actors.store.promote()
    assert await actors.claim() == []
    await backend.pass_time(61)
    await actors.store.promote()
    attempt = await actors.turn()
    [event] = given(attempt).events
    assert (event.name, event.was_delayed, event.number) == ("later", True, 1)
    await actors.take(attempt)
    assert await actors.mail_names() == ["latest"]
    await backend.pass_time(31)
    await actors.store.promote()
    assert names(await actors.turn()) == ["latest"]


async def test_earlier_message_pulls_the_turn_forward(actors: ActorScene, backend: Backend) -> None:
    await actors.sleeping()
    await actors.send(a_message("later", delay_s=600))
    await actors.send(a_message("sooner", delay_s=60))
    await backend.pass_time(61)
    await actors.store.promote()
    attempt = await actors.turn()
    assert names(attempt) == ["sooner"]
    await actors.take(attempt)
    await actors.send(a_message("now"))
    attempt = await actors.turn()
    assert names(attempt) == ["now"]
    await actors.take(attempt)
    assert await actors.mail_names() == ["later"]
    await backend.pass_time(600)
    await actors.store.promote()
    assert names(await actors.turn()) == ["later"]


async def test_delayed_message_that_comes_due_during_a_turn_stays_for_the_next(
    actors: ActorScene, backend: Backend
) -> None:
    await actors.sleeping()
    await actors.send(a_message("later", delay_s=60), a_message("now"))
    attempt = await actors.turn()
    await backend.pass_time(61)
    await actors.take(attempt)
    assert await actors.mail_names() == ["later"]
    await actors.store.promote()
    assert names(await actors.turn()) == ["later"]


# parked and dropped messages


async def test_parked_message_is_passed_over_until_it_is_put_back(actors: ActorScene) -> None:
    await actors.sleeping()
    await actors.send(a_message("one"), a_message("two"))
    park = MailAction.PARK
    assert await actors.store.sort_mail(TYPE, KEY, 1, park) == "done"
    assert await actors.store.sort_mail(TYPE, KEY, 1, park) == "already"
    assert [(one.name, one.parked) for one in await actors.mail()] == [
        ("one", True),
        ("two", False),
    ]
    assert (await actors.actor()).unread == 1
    attempt = await actors.turn()
    assert names(attempt) == ["two"]
    await actors.take(attempt)
    assert await actors.mail_names() == ["one"]
    assert await actors.claim() == []
    assert await actors.store.sort_mail(TYPE, KEY, 1, MailAction.PUT_BACK) == "done"
    assert await actors.store.sort_mail(TYPE, KEY, 1, MailAction.PUT_BACK) == "already"
    attempt = await actors.turn()
    assert names(attempt) == ["one"]
    await actors.take(attempt)
    assert await actors.mail() == []


async def test_actor_whose_only_message_is_dropped_or_parked_sleeps(actors: ActorScene) -> None:
    await actors.sleeping()
    for action in (MailAction.PARK, MailAction.DROP):
        await actors.send(a_message(action))
        number = (await actors.mail())[-1].number
        assert await actors.status() == "ready"
        assert await actors.store.sort_mail(TYPE, KEY, number, action) == "done"
        actor = await actors.actor()
        assert (actor.status, actor.job) == ("sleeping", None)
    assert await actors.mail_names() == ["park"]


async def test_message_that_fails_its_turn_can_be_dropped(actors: ActorScene) -> None:
    await actors.sleeping()
    await actors.send(a_message("bad"), a_message("good"))
    await actors.pump(done(await actors.turn(), Failed))
    [bad, _] = await actors.mail()
    assert await actors.store.sort_mail(TYPE, KEY, bad.number, MailAction.DROP) == "done"
    assert await actors.store.pause_actor(TYPE, KEY, False) == "done"
    assert names(await actors.turn()) == ["good"]


async def test_mail_is_not_sorted_while_a_turn_may_have_read_it(actors: ActorScene) -> None:
    await actors.sleeping()
    await actors.send(a_message("one"))
    attempt = await actors.turn()
    for action in MailAction:
        assert await actors.store.sort_mail(TYPE, KEY, 1, action) == "busy"
    await actors.take(attempt)
    assert await actors.store.sort_mail(TYPE, KEY, 1, MailAction.DROP) == "not_found"
    assert await actors.store.sort_mail(TYPE, "nobody", 1, MailAction.DROP) == "not_found"


async def test_number_of_a_dropped_message_confuses_nobody(actors: ActorScene) -> None:
    await actors.sleeping()
    await actors.send(a_message("one"), a_message("two"))
    await actors.store.sort_mail(TYPE, KEY, 2, MailAction.DROP)
    await actors.send(a_message("three"))
    attempt = await actors.turn()
    assert names(attempt) == ["one", "three"]
    await actors.send(a_message("four"))
    await actors.take(attempt)
    assert await actors.mail_names() == ["four"]


# asks


async def test_ask_from_outside_is_answered_once(actors: ActorScene) -> None:
    await actors.sleeping()
    ask = an_ask()
    await actors.send(ask, a_message("no ask"))
    assert await actors.store.replies([ask.id]) == []
    attempt = await actors.turn()
    pumped = await actors.pump(taken(attempt, outbox=answered(attempt)))
    reply = Reply(ask.id, b"\x2a")
    assert pumped.replies == [reply]
    assert await actors.store.replies([ask.id, new_id()]) == [reply]
    assert await actors.send(ask) == [Sent(ask.id)]
    assert await actors.mail() == []


async def test_first_reply_to_an_ask_counts(actors: ActorScene) -> None:
    await actors.sleeping()
    ask = an_ask()
    await actors.send(ask)
    attempt = await actors.turn()
    outbox = [*answered(attempt, b"\x01"), *answered(attempt, b"\x02")]
    assert (await actors.pump(taken(attempt, outbox=outbox))).replies == [Reply(ask.id, b"\x01")]
    assert await actors.store.replies([ask.id]) == [Reply(ask.id, b"\x01")]


async def test_reply_may_come_from_a_later_turn_and_be_an_error(actors: ActorScene) -> None:
    await actors.sleeping()
    ask = an_ask()
    await actors.send(ask)
    await actors.take(await actors.turn())
    await actors.send(a_message())
    reply = Reply(ask.id, error=JobError(Reason.RAISED, "no", "ValueError"))
    outbox = [OutboxReply(reply, ReplyTo())]
    assert (await actors.pump(taken(await actors.turn(), outbox=outbox))).replies == [reply]
    assert await actors.store.replies([ask.id]) == [reply]


async def test_reply_that_nobody_waits_for_is_dropped(actors: ActorScene) -> None:
    await actors.sleeping()
    told = a_message()
    await actors.send(told)
    replies = [Reply(new_id(), b"\x01"), Reply(told.id, b"\x01")]
    outbox = [OutboxReply(one, ReplyTo()) for one in replies]
    pumped = await actors.pump(taken(await actors.turn(), outbox=outbox))
    assert (pumped.finished[0].verdict, pumped.replies) == (Verdict.RECORDED, [])
    assert await actors.store.replies([one.id for one in replies]) == []


async def test_replies_are_forgotten_after_an_hour(actors: ActorScene, backend: Backend) -> None:
    await actors.sleeping()
    ask = an_ask()
    await actors.send(ask)
    attempt = await actors.turn()
    await actors.pump(taken(attempt, outbox=answered(attempt)))
    await backend.pass_time(LONG_S)
    await actors.store.tend_actors()
    assert await actors.store.replies([ask.id]) == []


# from actor to actor, and from jobs


async def test_messages_of_a_turn_arrive_with_its_commit(actors: ActorScene) -> None:
    await actors.sleeping(an_actor(), an_actor("b"))
    await actors.send(a_message())
    attempt = await actors.turn()
    sent = a_message("hello", "b", args=b"\x07")
    pumped = await actors.pump(taken(attempt, outbox=[sent]), sends=[a_message("outside", "b")])
    assert sum(pumped.ready_by_ends.values()) == 1
    second = await actors.turn()
    assert (given(second).key, names(second)) == ("b", ["hello", "outside"])
    event = given(second).events[0]
    assert (event.args, event.id) == (b"\x07", sent.id)


async def test_message_of_an_actor_to_itself_wakes_it_again(actors: ActorScene) -> None:
    await actors.start(an_actor())
    outbox = [a_message("self"), a_message("later", delay_s=60)]
    await actors.take(await actors.turn(), outbox=outbox)
    assert await actors.mail_names() == ["self", "later"]
    assert names(await actors.turn()) == ["self"]


async def test_message_of_a_turn_to_nobody_comes_back(actors: ActorScene) -> None:
    await actors.start(an_actor())
    lost = a_message("hello", "nobody", args=b"\x07")
    await actors.take(await actors.turn(), outbox=[lost])
    [event] = given(await actors.turn()).events
    assert (event.kind, event.name, event.id) == ("message", "undelivered", lost.id)
    about = undelivered(event)
    assert (about.type, about.key, about.name, about.args) == (TYPE, "nobody", "hello", b"\x07")
    assert "there is no actor" in about.why


async def test_actor_that_asks_another_gets_the_reply_as_a_message(actors: ActorScene) -> None:
    await actors.sleeping(an_actor(), an_actor("b"))
    await actors.send(a_message())
    ask = a_message("ask", "b", reply_to=ReplyTo(TYPE, KEY, "answer", b"\x0b"))
    await actors.take(await actors.turn(), outbox=[ask])
    second = await actors.turn()
    [event] = given(second).events
    assert event.reply_to == ask.reply_to
    pumped = await actors.pump(taken(second, outbox=answered(second, b"\x2a")))
    assert (pumped.replies, sum(pumped.ready_by_ends.values())) == ([], 1)
    third = await actors.turn()
    [event] = given(third).events
    assert (given(third).key, event.name, event.id) == (KEY, "answer", ask.id)
    got = replied(event)
    assert (got.result, got.error, got.about) == (b"\x2a", None, b"\x0b")


async def test_reply_to_an_actor_that_is_gone_is_dropped(actors: ActorScene) -> None:
    await actors.start(an_actor())
    outbox = [OutboxReply(Reply(new_id(), b"\x01"), ReplyTo(TYPE, "gone", "answer"))]
    [answer] = await actors.take(await actors.turn(), outbox=[*outbox])
    assert answer.verdict is Verdict.RECORDED
    assert await actors.mail() == []


async def test_two_actors_that_write_to_each_other_in_one_batch(actors: ActorScene) -> None:
    await actors.start(an_actor(), an_actor("b"))
    first, second = await actors.claim()
    ends = [
        taken(first, outbox=[a_message("from a", given(second).key)]),
        taken(second, outbox=[a_message("from b", given(first).key)]),
    ]
    pumped = await actors.pump(*ends)
    assert sum(pumped.ready_by_ends.values()) == 2
    got = {given(one).key: names(one) for one in await actors.claim()}
    assert got == {given(first).key: ["from b"], given(second).key: ["from a"]}


async def test_messages_of_a_job_arrive_with_its_success(actors: ActorScene) -> None:
    await actors.sleeping()
    attempt = await actors.scene.running(slot=actors.slot)
    outbox = (OutboxMessage(a_message("done")), OutboxMessage(a_message("lost", "nobody")))
    end = Succeeded(attempt.id, attempt.token, b"\x01", outbox)
    faulty = FaultyStore(actors.store, scripted(("pump", Fault.AFTER)))
    mine = ActorScene(Scene(faulty, actors.scene.dispatcher), actors.slot)
    with pytest.raises(StoreUnavailable):
        await mine.pump(end)
    [answer] = (await mine.pump(end)).finished
    assert answer.verdict is Verdict.ALREADY_RECORDED
    assert await actors.mail_names() == ["done"]
    job = await actors.scene.job(attempt.id)
    assert job.history[-1].info.startswith("outbox item 1 refused: there is no actor")
    assert names(await actors.turn()) == ["done"]
