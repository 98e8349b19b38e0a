"""Actors and the dispatcher around them, told as stories on virtual time."""

from __future__ import annotations

import asyncio
import itertools
from math import nan
from random import Random
from typing import Any

import pytest
from msgspec import msgpack, structs

from longshore.config import DispatcherSettings
from longshore.dispatcher.ends import Decisions
from longshore.errors import InvalidInput
from longshore.model.actor import (
    ActorStatus,
    ActorTerms,
    ActorVerdict,
    Message,
    NewActor,
    Reply,
    ReplyTo,
    Timer,
    Turn,
    TurnInput,
)
from longshore.model.attempt import Attempt
from longshore.model.ends import End, Failed, Released, TurnTaken
from longshore.model.job import JobState, Options, Submission
from longshore.model.reports import (
    CancelReport,
    OutboxJob,
    OutboxMessage,
    OutboxNode,
    OutboxReply,
    ReleaseReport,
    Report,
    SkipReport,
    SnoozeReport,
    SuccessReport,
    TurnReport,
)
from longshore.model.worker import KindInfo, Pool
from longshore.testing.builders import a_job, new_id
from longshore.testing.faults import Fault, scripted
from longshore.wire import actor_messages as am
from longshore.wire import messages as m

from .stage import LOOK_S, Client, Stage
from .test_impostors import Stranger, introduction
from .test_stories import tell

STATE = b"\x80"
KINDS = {"Counter@1": KindInfo(Pool.COROUTINE)}
_inputs = msgpack.Decoder(TurnInput)


class TurnTaker(Stranger):
    """A worker of actors that is played by hand."""

    @property
    def given(self) -> list[m.Assignment]:
        return [job for one in self.heard if isinstance(one, m.Jobs) for job in one.jobs]

    async def turn(self, count: int) -> tuple[m.Assignment, TurnInput]:
        """The turn that it is given as the so-many-th attempt."""
        await self._stage.until(lambda: len(self.given) >= count)
        assignment = self.given[count - 1]
        return assignment, _inputs.decode(assignment.args)

    def take(self, assignment: m.Assignment, **left: Any) -> None:
        """Ends a turn, with what it leaves."""
        outbox = left.pop("outbox", ())
        turn = Turn(left.pop("state", STATE), 1, left.pop("read", 0), **left)
        self.say(m.Done(self.worker, (TurnReport(*assignment.key, turn, outbox),)))


async def a_taker(stage: Stage) -> TurnTaker:
    taker = TurnTaker(stage)
    taker.say(introduction(kinds=KINDS))
    await taker.told(m.Welcome)
    return taker


async def start(client: Client, key: str = "a") -> None:
    answer = await client.ask(am.StartActors(1, (NewActor(new_id(), "Counter", key, STATE),)))
    assert isinstance(answer, tuple), answer
    assert answer[0].code == ""


def message(name: str = "add", **fields: Any) -> Message:
    return Message(new_id(), "Counter", "a", name, STATE, **fields)


async def sent(client: Client, *messages: Message) -> list[am.SendAnswer]:
    answer = await client.ask(am.Send(2, messages))
    assert isinstance(answer, tuple), answer
    return list(answer)


def test_an_ask_is_answered_when_its_turn_is_committed() -> None:
    async def story(stage: Stage) -> None:
        await stage.dispatcher()
        taker, client, asker = await a_taker(stage), stage.client(), stage.client()
        await start(client)
        first, _ = await taker.turn(1)
        taker.take(first)
        ask = message(reply_to=ReplyTo())
        assert await sent(asker, ask) == [am.SendAnswer(ask.id)]
        second, given = await taker.turn(2)
        assert [event.name for event in given.events] == ["add"]
        assert second.worker == taker.worker
        reply = Reply(ask.id, b"\x07")
        taker.take(second, read=1, outbox=(OutboxReply(reply, ReplyTo()),))
        assert await asker.ask(am.AwaitReplies(3, (ask.id,), 100.0)) == (reply,)

    tell(story)


def test_who_sends_an_ask_may_wait_for_its_reply_with_one_request() -> None:
    async def story(stage: Stage) -> None:
        await stage.dispatcher()
        taker, client, asker = await a_taker(stage), stage.client(), stage.client()
        await start(client)
        first, _ = await taker.turn(1)
        taker.take(first)
        ask = message(reply_to=ReplyTo())
        asking = asyncio.create_task(asker.ask(am.Send(2, (ask,), 100.0)))
        second, _ = await taker.turn(2)
        reply = Reply(ask.id, b"\x07")
        # No store is asked for a reply that this dispatcher records itself.
        stage.store.plan = scripted(("replies", Fault.BEFORE))
        taker.take(second, read=1, outbox=(OutboxReply(reply, ReplyTo()),))
        assert await asking == (am.SendAnswer(ask.id, reply=reply),)
        stage.store.plan = scripted()
        again = am.SendAnswer(ask.id, reply=reply)
        assert await client.ask(am.Send(3, (ask,), 100.0)) == (again,), "it was sent before"

    tell(story)


def test_an_ask_that_gets_no_reply_in_time_or_cannot_be_sent_says_so() -> None:
    async def story(stage: Stage) -> None:
        await stage.dispatcher()
        client = stage.client()
        await start(client)
        ask, note = message(reply_to=ReplyTo()), message()
        assert await client.ask(am.Send(2, (ask,), 3.0)) == (am.SendAnswer(ask.id),)
        assert await client.ask(am.Send(3, (note,), 3.0)) == (am.SendAnswer(note.id),)
        lost = Message(new_id(), "Counter", "none", "add", reply_to=ReplyTo())
        refused = await client.ask(am.Send(4, (lost,), 100.0))
        assert isinstance(refused, tuple)
        assert refused[0].code == "not_found"
        for rid, wrong in enumerate((am.Send(5, (ask, note), 1.0), am.Send(6, (ask,), nan)), 5):
            answer = await client.ask(wrong)
            assert isinstance(answer, m.Err), rid
            assert answer.code == "invalid_input"

    tell(story)


def test_a_reply_that_another_dispatcher_recorded_is_found() -> None:
    async def story(stage: Stage) -> None:
        await stage.dispatcher("d1")
        other = await stage.dispatcher("d2")
        taker = await a_taker(stage)
        client, elsewhere = stage.client("d1"), stage.client("d2")
        await start(client)
        first, _ = await taker.turn(1)
        taker.take(first)
        ask = message(reply_to=ReplyTo())
        await sent(elsewhere, ask)
        second, _ = await taker.turn(2)
        waiting = asyncio.create_task(elsewhere.ask(am.AwaitReplies(3, (ask.id,), 100.0)))
        await stage.until(lambda: other._replies.is_awaited(ask.id))
        taker.take(second, read=1, outbox=(OutboxReply(Reply(ask.id, b"\x07"), ReplyTo()),))
        assert await waiting == (Reply(ask.id, b"\x07"),)

    tell(story)


def test_a_message_whose_answer_got_lost_is_sent_again_and_arrives_once() -> None:
    async def story(stage: Stage) -> None:
        await stage.dispatcher()
        client = stage.client()
        await start(client)
        stage.store.plan = scripted(("pump", Fault.AFTER))
        one = message()
        assert await sent(client, one) == [am.SendAnswer(one.id)]
        mail = await client.ask(am.ListMail(4, "Counter", "a"))
        assert isinstance(mail, tuple)
        assert [view.number for view in mail] == [1]

    tell(story)


def test_what_cannot_be_sent_is_refused_item_by_item() -> None:
    async def story(stage: Stage) -> None:
        await stage.dispatcher(max_mailbox=2)
        client = stage.client()
        await start(client)
        to_nobody = Message(new_id(), "Counter", "none", "add")
        named = message("undelivered")
        answers = await sent(client, message(), named, to_nobody, message(), message())
        codes = [answer.code for answer in answers]
        assert codes[:4] == ["", "invalid_input", "not_found", ""]
        assert codes[4] != "", "the mailbox is full"

    tell(story)


def test_a_turn_of_a_paused_actor_is_put_aside_and_not_sent() -> None:
    """Handed back while its actor was paused, it is claimed again, but nobody runs it."""

    async def story(stage: Stage) -> None:
        await stage.dispatcher()
        taker, client = await a_taker(stage), stage.client()
        await start(client)
        first, _ = await taker.turn(1)
        verdict = await client.ask(am.PauseActor(2, new_id(), "Counter", "a", True))
        assert verdict is ActorVerdict.DONE
        taker.say(m.Done(taker.worker, (ReleaseReport(*first.key),)))
        await stage.until(lambda: stage.model._jobs[first.job].state is JobState.WAITING)
        assert len(taker.given) == 1
        await client.ask(am.PauseActor(3, new_id(), "Counter", "a", False))
        again, _ = await taker.turn(2)
        taker.take(again)
        await stage.until(lambda: first.job not in stage.model._jobs)

    tell(story)


def test_a_timer_wakes_its_actor_on_time() -> None:
    async def story(stage: Stage) -> None:
        await stage.dispatcher(promote_s=1000.0, poll_s=1000.0, group_poll_s=1000.0)
        taker, client = await a_taker(stage), stage.client()
        await start(client)
        first, _ = await taker.turn(1)
        taker.take(first, timers=(Timer("tick", after_s=8.0),))
        took_s = await stage.until(lambda: len(taker.given) == 2)
        assert 7 < took_s < 9
        _, given = await taker.turn(2)
        assert [(event.kind, event.name) for event in given.events] == [("timer", "tick")]

    tell(story)


def test_a_turn_that_its_worker_cannot_stop_gets_the_chance_to_recover() -> None:
    """Its handler hangs for good. The dispatcher ends it by force, as often as it takes."""

    async def story(stage: Stage) -> None:
        await stage.dispatcher(lease_s=600.0)
        taker, client = TurnTaker(stage), stage.client()
        taker.say(introduction(kinds={"Counter@1": KindInfo(Pool.COROUTINE, recovers=True)}))
        await taker.told(m.Welcome)
        terms = ActorTerms(options=Options(timeout_s=5.0))
        new = NewActor(new_id(), "Counter", "a", STATE, terms=terms)
        await client.ask(am.StartActors(1, (new,)))
        first, _ = await taker.turn(1)
        taker.take(first)
        await sent(client, message("hangs"))
        got: list[TurnInput] = []
        for count in (2, 3, 4):
            hanging, given = await taker.turn(count)
            got.append(given)
            seen = max(one.seq for one in taker.heard if isinstance(one, m.Jobs))
            taker.say(m.Ping(taker.worker, count, seen, (hanging.key,)))
        assert [[event.name for event in one.events] for one in got] == [["hangs"]] * 3
        failures = [one.failure for one in got]
        assert failures[:2] == [None, None]
        assert failures[2] is not None
        assert failures[2].reason == "timed_out"

    tell(story)


def test_a_stopped_actor_goes_when_its_turn_has_ended() -> None:
    async def story(stage: Stage) -> None:
        await stage.dispatcher(sweep_s=1000.0)
        taker, client, asker = await a_taker(stage), stage.client(), stage.client()
        await start(client)
        first, _ = await taker.turn(1)
        ask = message(reply_to=ReplyTo())
        await sent(client, ask)
        await client.ask(am.StopActor(5, new_id(), "Counter", "a"))
        shown: Any = await client.ask(am.ShowActor(6, "Counter", "a"))
        assert shown.status is ActorStatus.STOPPING
        abort: Any = await taker.told(m.Abort)
        assert abort.attempts == (first.key,)
        taker.say(m.Done(taker.worker, (CancelReport(*first.key),)))
        replies: Any = await asker.ask(am.AwaitReplies(3, (ask.id,), 100.0))
        assert [reply.error is not None for reply in replies] == [True]
        await stage.until(lambda: not stage.model._actors)

    tell(story)


# what a report means


def decide(report: Report, claimed: Attempt | None) -> End:
    return Decisions(DispatcherSettings(), Random(1)).decide(report, claimed)


def an_attempt(*, turn: bool) -> Attempt:
    given = TurnInput(new_id(), "Counter", "a", 7, STATE, 1, now=0)
    fields = (1, 1, "Counter@1", msgpack.encode(given), Options(turn=turn), new_id(), 1, 1, 0, 0)
    return Attempt(new_id(), *fields)


def test_a_turn_that_was_taken_names_its_actor_and_its_number() -> None:
    claimed = an_attempt(turn=True)
    end = decide(TurnReport(*claimed.key, Turn(STATE, 1, 3)), claimed)
    assert isinstance(end, TurnTaken)
    given = _inputs.decode(claimed.args)
    assert (end.actor, end.number, end.turn) == (given.actor, 7, Turn(STATE, 1, 3))


@pytest.mark.parametrize("report", [SuccessReport, SkipReport, SnoozeReport])
def test_a_turn_that_ends_like_a_job_has_failed(report: Any) -> None:
    claimed = an_attempt(turn=True)
    more = (1.0,) if report is SnoozeReport else ()
    end = decide(report(*claimed.key, *more), claimed)
    assert isinstance(end, Failed)
    assert "did not end like one" in end.error.message


def test_a_job_that_ends_like_a_turn_has_failed() -> None:
    claimed = an_attempt(turn=False)
    end = decide(TurnReport(*claimed.key, Turn(STATE, 1, 0)), claimed)
    assert isinstance(end, Failed)
    assert "no turn of an actor" in end.error.message


def test_a_turn_that_nobody_knows_runs_again() -> None:
    claimed = an_attempt(turn=True)
    assert isinstance(decide(TurnReport(*claimed.key, Turn(STATE, 1, 0)), None), Released)


@pytest.mark.parametrize(
    ("turn", "outbox"),
    [
        (Turn(b"x" * 2_000_000, 1, 0), ()),
        (Turn(STATE, 1, 0, timers=(Timer("tick"),)), ()),
        (Turn(STATE, 1, 0), (OutboxNode("more", a_job()),)),
        (Turn(STATE, 1, 0), (OutboxMessage(message("reply:it")),)),
        (Turn(STATE, 1, 0), (OutboxJob(Submission(new_id(), "", b"")),)),
    ],
)
def test_a_turn_that_leaves_what_cannot_be_has_failed(turn: Turn, outbox: Any) -> None:
    claimed = an_attempt(turn=True)
    end = decide(TurnReport(*claimed.key, turn, outbox), claimed)
    assert isinstance(end, Failed)
    assert "the turn leaves what cannot be" in end.error.message


def test_nobody_submits_a_turn() -> None:
    async def story(stage: Stage) -> None:
        await stage.dispatcher()
        (answer,) = await stage.client().submit(
            structs.replace(a_job(), options=Options(turn=True))
        )
        assert answer.code == InvalidInput.code

    tell(story)


# a worker that dies


async def stays(stage: Stage, taker: TurnTaker) -> None:
    """It says that it is there, as a live worker does."""
    for no in itertools.count(1):
        taker.say(m.Ping(taker.worker, no))
        await asyncio.sleep(stage.settings.ping_s)


def test_the_actors_of_a_dead_worker_go_on_elsewhere_within_its_lease() -> None:
    """The one whose turn it runs, and the one that sleeps and whose next turn it would have got."""

    async def story(stage: Stage) -> None:
        await stage.dispatcher()
        dead, client = await a_taker(stage), stage.client()
        await start(client, "a")
        first, _ = await dead.turn(1)
        await start(client, "b")
        late, _ = await dead.turn(2)
        dead.take(first)
        died_at = stage.clock.now()
        other = await a_taker(stage)
        staying = asyncio.create_task(stays(stage, other))
        await sent(client, message())
        await stage.until(lambda: len(other.given) == 2)
        staying.cancel()
        lease_s = stage.settings.lease_s
        looks_s = lease_s / 10
        assert stage.clock.now() - died_at <= lease_s + looks_s + 2 * LOOK_S
        turns = {given.key: (one, given) for one, given in [await other.turn(n) for n in (1, 2)]}
        assert [event.name for event in turns["a"][1].events] == ["add"]
        assert turns["a"][1].last_worker == dead.worker
        assert turns["b"][0].token > late.token
        dead.take(late, state=b"\x01")
        for one, _ in turns.values():
            other.take(one, read=1)
        for key in "ab":
            seen = await stage.model.actor("Counter", key)
            while seen is not None and seen.status is not ActorStatus.SLEEPING:
                await asyncio.sleep(LOOK_S)
                seen = await stage.model.actor("Counter", key)
            assert seen is not None
            assert (seen.state, seen.worker) == (STATE, other.worker), "the late one is stale"

    tell(story)
