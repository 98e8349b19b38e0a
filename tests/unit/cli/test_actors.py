"""`longshore actors` and `actor`: what they ask a dispatcher, and what they print."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest
from msgspec import structs
from tests.unit.cli.conftest import ScriptedDispatcher

from longshore.errors import NotFound
from longshore.model.actor import (
    Actor,
    ActorFilter,
    ActorPage,
    ActorStatus,
    ActorTerms,
    ActorVerdict,
    MailAction,
    MailView,
    Reply,
    ReplyTo,
    Timer,
    TurnView,
)
from longshore.model.job import JobError, Reason
from longshore.model.worker import KindInfo, KindTerms, Parameter, WorkerInfo, WorkerView
from longshore.payload.values import pack, unpack
from longshore.wire import actor_messages as am
from longshore.wire import messages as m

Captured = pytest.CaptureFixture[str]
ID = UUID("0193290c-6a00-7000-8000-0000000000aa")
AT = datetime(2026, 1, 31, 12, 0, 0, tzinfo=UTC)
MICROS = int(AT.timestamp() * 1_000_000)


def actor(**changes: Any) -> Actor:
    shown = Actor(
        id=ID,
        type="Subscription",
        key="ann",
        status=ActorStatus.SLEEPING,
        terms=ActorTerms(),
        created_at=AT,
        turn=3,
        state=pack({"plan": "pro"}, "it"),
        version=2,
        timers=(Timer("remind", at=MICROS, every_s=60.0),),
        unread=1,
        next_at=AT,
    )
    return structs.replace(shown, **changes)


def a_worker(**kinds: KindInfo) -> WorkerView:
    info = WorkerInfo(
        id=ID, name="dock", host="h", kinds={k.replace("_v", "@"): v for k, v in kinds.items()}
    )
    return WorkerView(
        info=info,
        session=1,
        dispatcher=ID,
        alive=True,
        draining=False,
        running={},
        started_at=AT,
        attended_at=AT,
    )


def test_actors_are_listed(dispatcher: ScriptedDispatcher, capsys: Captured) -> None:
    error = JobError(Reason.RAISED, "message 'x' (number 7): boom", "ValueError")
    failed = actor(key="bob", status=ActorStatus.FAILED, error=error, next_at=None, state=b"")
    dispatcher.answers[am.ListActors] = ActorPage((actor(state=b""), failed))
    assert dispatcher.run("actors", "--type", "Subscription", "--status", "failed") == 0
    [request] = dispatcher.asked
    wanted = ActorFilter("Subscription", ActorStatus.FAILED)
    assert request == am.ListActors(request.rid, wanted)
    head, first, second = capsys.readouterr().out.splitlines()
    assert head.split()[:5] == ["TYPE", "KEY", "STATUS", "TURN", "UNREAD"]
    assert first.split()[:5] == ["Subscription", "ann", "sleeping", "3", "1"]
    assert "boom" in second
    assert dispatcher.run("actors", "--json") == 0
    shown = json.loads(capsys.readouterr().out)
    assert [one["key"] for one in shown] == ["ann", "bob"]
    assert shown[0]["timers"][0]["at"] == "2026-01-31T12:00:00.000000Z"


def test_actors_are_listed_by_the_fields_that_their_class_declares(
    dispatcher: ScriptedDispatcher, capsys: Captured
) -> None:
    dispatcher.answers[am.ListActors] = ActorPage()
    dispatcher.answers[m.ListWorkers] = (a_worker(Club_v1=KindInfo(listed=("plan", "seats"))),)
    assert dispatcher.run("actors", "Club", "plan=pro", "seats=3", "--status", "failed") == 0
    request = dispatcher.asked[-1]
    assert isinstance(request, am.ListActors)
    assert request.wanted.fields == {"plan": '"pro"', "seats": "3"}
    assert (request.wanted.type, request.wanted.status) == ("Club", ActorStatus.FAILED)
    assert dispatcher.run("actors", "Club", "paln=pro") == 2
    assert "nearest: 'plan'" in capsys.readouterr().err
    assert dispatcher.run("actors", "plan=pro") == 2
    assert "give the TYPE first" in capsys.readouterr().err
    dispatcher.answers[m.ListWorkers] = ()
    assert dispatcher.run("actors", "--type", "Club", "plan=pro") == 0


def test_an_actor_is_read(dispatcher: ScriptedDispatcher, capsys: Captured) -> None:
    dispatcher.answers[am.ReadActor] = True
    dispatcher.answers[am.AwaitReplies] = lambda r: [Reply(r.asks[0], pack(14, "it"))]
    assert dispatcher.run("actor", "read", "Club", "ann", "price", "each=7") == 0
    read, waited = dispatcher.asked
    assert isinstance(read, am.ReadActor)
    assert isinstance(waited, am.AwaitReplies)
    assert (read.name, unpack(read.args), read.within_s) == ("price", {"each": 7}, 30.0)
    assert waited.asks == (read.id,)
    assert capsys.readouterr().out == "14\n"
    assert dispatcher.run("actor", "read", "Club", "ann") == 2
    dispatcher.answers[am.AwaitReplies] = ()
    assert dispatcher.run("actor", "read", "Club", "ann", "price", "--within", "0s") == 5


def test_an_actor_is_started_as_its_workers_say(
    dispatcher: ScriptedDispatcher, capsys: Captured
) -> None:
    fields = (Parameter("customer", True), Parameter("plan", False))
    newest = KindInfo(parameters=fields, terms=KindTerms(queue="slow"))
    dispatcher.answers[m.ListWorkers] = (a_worker(Club_v1=KindInfo(), Club_v2=newest),)
    dispatcher.answers[am.StartActors] = lambda r: [am.StartAnswer(one.id) for one in r.actors]
    assert dispatcher.run("actor", "start", "Club", "ann", "customer=Ann") == 0
    request = dispatcher.asked[-1]
    assert isinstance(request, am.StartActors)
    [started] = request.actors
    assert (started.type, started.key, started.version) == ("Club", "ann", 2)
    assert (started.terms.queue, unpack(started.state)) == ("slow", {"customer": "Ann"})
    capsys.readouterr()
    dispatcher.answers[am.EditActor] = ActorVerdict.DONE
    assert dispatcher.run("actor", "restart", "Club", "ann", "customer=Eve") == 0
    edit = dispatcher.asked[-1]
    assert isinstance(edit, am.EditActor)
    assert (unpack(edit.state), edit.version, edit.restart) == ({"customer": "Eve"}, 2, True)
    assert capsys.readouterr().out == "actor Club 'ann' starts anew\n"
    for words, why in (
        (("plan=pro",), "cannot be without 'customer'"),
        (("custmer=Ann",), "nearest: 'customer'"),
    ):
        assert dispatcher.run("actor", "start", "Club", "ann", *words) == 2
        assert why in capsys.readouterr().err
    assert dispatcher.run("actor", "start", "Clab", "ann") == 2
    assert "nearest: 'Club'" in capsys.readouterr().err


def test_a_message_is_sent_and_a_reply_printed(
    dispatcher: ScriptedDispatcher, capsys: Captured
) -> None:
    dispatcher.answers[m.ListWorkers] = ()
    dispatcher.answers[am.Send] = lambda r: [am.SendAnswer(one.id) for one in r.messages]
    assert dispatcher.run("actor", "send", "Club", "ann", "go", "n=1", "--delay", "2m") == 0
    request = dispatcher.asked[-1]
    assert isinstance(request, am.Send)
    [message] = request.messages
    assert (message.name, unpack(message.args), message.delay_s) == ("go", {"n": 1}, 120.0)
    assert message.reply_to is None
    capsys.readouterr()
    dispatcher.answers[am.AwaitReplies] = lambda r: [Reply(r.asks[0], pack([1, 2], "it"))]
    assert dispatcher.run("actor", "ask", "Club", "ann", "go") == 0
    asked = dispatcher.asked[-2]
    assert isinstance(asked, am.Send)
    assert asked.messages[0].reply_to == ReplyTo()
    assert json.loads(capsys.readouterr().out) == [1, 2]
    dispatcher.answers[am.AwaitReplies] = ()
    assert dispatcher.run("actor", "ask", "Club", "ann", "go", "--within", "0") == 5
    error = JobError(Reason.RAISED, "no")
    dispatcher.answers[am.AwaitReplies] = lambda r: [Reply(r.asks[0], error=error)]
    assert dispatcher.run("actor", "ask", "Club", "ann", "go") == 1
    assert "answered with an error: no" in capsys.readouterr().err


def test_what_no_worker_takes_is_not_sent(dispatcher: ScriptedDispatcher, capsys: Captured) -> None:
    """It would fail the turn, and with it the actor."""
    text, number = '{"type":"string"}', '{"type":"integer"}'
    takes = (Parameter("plan", schema=text), Parameter("months", False, schema=number))
    old = KindInfo(messages={"upgrade": takes})
    dispatcher.answers[m.ListWorkers] = (a_worker(Club_v1=old),)
    dispatcher.answers[am.Send] = lambda r: [am.SendAnswer(one.id) for one in r.messages]
    for words, why in (
        (("upgrde", "plan=pro"), "has no message 'upgrde' (nearest: 'upgrade'); it has: upgrade"),
        (("upgrade",), "needs argument 'plan'; it takes plan, months"),
        (("upgrade", "plan=7"), "argument 'plan' expected str, got int"),
        (("upgrade", "plan=pro", "month=2"), "has no argument 'month' (nearest: 'months')"),
    ):
        for action in ("send", "ask"):
            assert dispatcher.run("actor", action, "Club", "ann", *words) == 2
            assert why in capsys.readouterr().err
    assert not any(isinstance(one, am.Send) for one in dispatcher.asked)
    assert dispatcher.run("actor", "send", "Club", "ann", "upgrade", "plan=pro") == 0
    newer = KindInfo(messages={"upgrade": takes, "cancel": ()})
    dispatcher.answers[m.ListWorkers] = (a_worker(Club_v1=old), a_worker(Club_v1=newer))
    assert dispatcher.run("actor", "send", "Club", "ann", "cancel") == 0, "one of them takes it"
    dispatcher.answers[m.ListWorkers] = ()
    assert dispatcher.run("actor", "send", "Club", "ann", "anything") == 0, "nobody knows better"


def test_fields_of_another_type_are_refused(
    dispatcher: ScriptedDispatcher, capsys: Captured
) -> None:
    fields = (Parameter("plan", schema='{"type":"string"}'),)
    dispatcher.answers[m.ListWorkers] = (a_worker(Club_v2=KindInfo(parameters=fields)),)
    dispatcher.answers[am.ShowActor] = actor()
    for action in ("start", "edit"):
        assert dispatcher.run("actor", action, "Club", "ann", "plan=7") == 2
        assert "field 'plan' expected str, got int" in capsys.readouterr().err


def test_an_actor_is_shown(dispatcher: ScriptedDispatcher, capsys: Captured) -> None:
    dispatcher.answers[am.ShowActor] = actor()
    assert dispatcher.run("actor", "show", "Subscription", "ann") == 0
    shown = capsys.readouterr().out
    assert shown.startswith("actor Subscription 'ann' is sleeping\n")
    assert '{"plan":"pro"}' in shown
    assert "remind at 2026-01-31 12:00:00Z, every 60 s" in shown
    assert dispatcher.run("actor", "show", "Subscription", "ann", "--json") == 0
    assert json.loads(capsys.readouterr().out)["state"] == {"plan": "pro"}
    assert dispatcher.run("actor", "why", "Subscription", "ann") == 0
    assert "sleeps until 2026-01-31 12:00:00 UTC" in capsys.readouterr().out
    dispatcher.answers[am.ShowActor] = NotFound("there is no actor")
    assert dispatcher.run("actor", "show", "Subscription", "ann") == 3


def test_turns_and_mail_are_listed(dispatcher: ScriptedDispatcher, capsys: Captured) -> None:
    dispatcher.answers[am.ListTurns] = (TurnView(3, AT, ID, 7, 2, pack({"n": 1}, "it")),)
    dispatcher.answers[am.ListMail] = (
        MailView(8, "go", pack({"n": 2}, "it"), AT),
        MailView(9, "stop", b"", AT, parked=True),
    )
    assert dispatcher.run("actor", "turns", "Club", "ann") == 0
    assert '{"n":1}' in capsys.readouterr().out
    assert dispatcher.run("actor", "mail", "Club", "ann") == 0
    shown = capsys.readouterr().out
    assert '{"n":2}' in shown
    assert "parked" in shown
    assert dispatcher.run("actor", "mail", "Club", "ann", "--json") == 0
    assert [one["args"] for one in json.loads(capsys.readouterr().out)] == [{"n": 2}, None]


def test_an_actor_is_changed(dispatcher: ScriptedDispatcher, capsys: Captured) -> None:
    for request in (am.PauseActor, am.StopActor, am.EditActor, am.SortMail):
        dispatcher.answers[request] = ActorVerdict.DONE
    dispatcher.answers[am.ShowActor] = actor()
    dispatcher.answers[m.ListWorkers] = ()
    assert dispatcher.run("actor", "pause", "Club", "ann") == 0
    assert dispatcher.run("actor", "stop", "Club", "ann") == 0
    assert dispatcher.run("actor", "edit", "Club", "ann", "plan=gift") == 0
    edit = dispatcher.asked[-1]
    assert isinstance(edit, am.EditActor)
    assert (unpack(edit.state), edit.version, edit.turn) == ({"plan": "gift"}, 2, 3)
    assert dispatcher.run("actor", "edit", "Club", "ann", "pln=gift") == 2
    assert dispatcher.run("actor", "put-back", "Club", "ann", "7") == 0
    sort = dispatcher.asked[-1]
    assert isinstance(sort, am.SortMail)
    assert (sort.number, sort.action) == (7, MailAction.PUT_BACK)
    capsys.readouterr()
    dispatcher.answers[am.PauseActor] = ActorVerdict.NOT_FOUND
    assert dispatcher.run("actor", "resume", "Club", "ann") == 3
    dispatcher.answers[am.SortMail] = ActorVerdict.BUSY
    assert dispatcher.run("actor", "drop", "Club", "ann", "7") == 2


def test_an_actor_is_changed_only_after_the_turn_that_is_named(
    dispatcher: ScriptedDispatcher, capsys: Captured
) -> None:
    dispatcher.answers[am.EditActor] = ActorVerdict.DONE
    dispatcher.answers[am.ShowActor] = actor()
    serves = KindInfo(parameters=(Parameter("plan", False),))
    dispatcher.answers[m.ListWorkers] = (a_worker(Club_v2=serves),)
    for words in (("edit", "Club", "ann", "plan=gift"), ("restart", "Club", "ann")):
        assert dispatcher.run("actor", *words, "--turn", "3") == 0
        edit = dispatcher.asked[-1]
        assert isinstance(edit, am.EditActor)
        assert edit.turn == 3
        capsys.readouterr()
        assert dispatcher.run("actor", *words, "--turn", "2") == 2
        assert "actor Club 'ann' is at turn 3, not at turn 2" in capsys.readouterr().err
        assert not isinstance(dispatcher.asked[-1], am.EditActor)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("show", "Club", "ann", "--turn", "3"), "--turn is for"),
        (("send", "Club", "ann"), "needs the NAME"),
        (("ask", "Club", "ann", "n=1"), "needs the NAME"),
        (("park", "Club", "ann"), "needs the NUMBER"),
        (("drop", "Club", "ann", "x"), "needs the NUMBER"),
        (("edit", "Club", "ann"), "needs fields"),
        (("show", "Club", "ann", "more"), "takes no 'more'"),
        (("ask", "Club", "ann", "go", "--delay", "1"), "--delay is for"),
        (("show", "Club"), "needs the KEY"),
        (("resolve", "token", "1", "2"), "takes one value"),
    ],
)
def test_what_belongs_to_another_action_is_refused(
    dispatcher: ScriptedDispatcher, capsys: Captured, words: tuple[str, ...], why: str
) -> None:
    assert dispatcher.run("actor", *words) == 2
    assert why in capsys.readouterr().err


def test_a_callback_is_resolved(dispatcher: ScriptedDispatcher, capsys: Captured) -> None:
    dispatcher.answers[am.Resolve] = ActorVerdict.DONE
    assert dispatcher.run("actor", "resolve", "token", '{"sum": 3}') == 0
    asked = dispatcher.asked[-1]
    assert isinstance(asked, am.Resolve)
    assert (asked.token, unpack(asked.value or b"")) == ("token", {"sum": 3})
    assert capsys.readouterr().out == "the callback is resolved\n"
    dispatcher.answers[am.Resolve] = ActorVerdict.ALREADY
    assert dispatcher.run("actor", "resolve", "token", "--json") == 0
    assert json.loads(capsys.readouterr().out) == {"verdict": "already"}
    assert dispatcher.run("actor", "resolve", "token") == 0
    assert "was resolved before" in capsys.readouterr().out
    dispatcher.answers[am.Resolve] = ActorVerdict.NOT_FOUND
    assert dispatcher.run("actor", "resolve", "token") == 3
    assert "is gone" in capsys.readouterr().err
