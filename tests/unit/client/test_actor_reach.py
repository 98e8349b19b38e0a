"""Lists of actors, and handlers that only read, as their authors and callers see them."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import pytest

import longshore
from longshore import ActorContext, ActorRef, App
from longshore.errors import AppError, AskFailed, InvalidArguments, InvalidInput, NotFound
from longshore.testing import run_inline


class Plan(StrEnum):
    BASIC = "basic"
    PRO = "pro"


def an_app() -> tuple[App, Any]:
    app = App("billing")

    @app.job
    def mail(to: str) -> None: ...

    @app.actor(listed=("plan", "seats"))
    class Account:
        plan: Plan = Plan.BASIC
        seats: int = 1
        log: list[str] = []  # noqa: RUF012

        async def upgrade(self, ctx: ActorContext, plan: Plan) -> None:
            self.plan = plan
            self.log.append(plan)

        def tag(self, ctx: ActorContext, text: str) -> None:
            self.plan = text  # type: ignore[assignment]

        @longshore.reads
        async def price(self, ctx: ActorContext, each: int = 10) -> int:
            return self.seats * each

        @longshore.reads
        def history(self, ctx: ActorContext) -> tuple[str, list[str]]:
            return ctx.key, self.log

        @longshore.reads
        def cheats(self, ctx: ActorContext, how: str) -> None:
            match how:
                case "field":
                    self.log.append("changed")
                case "timer":
                    ctx.timer("x", after_s=1)
                case "send":
                    ctx.send(ctx.ref, "upgrade", plan="pro")
                case "current":
                    longshore.current().submit(mail.call("ann"))
                case _:
                    raise ValueError("boom")

    return app, Account


def test_actors_are_listed_by_what_their_class_declares() -> None:
    app, account = an_app()
    with run_inline(app) as kit:
        account.start("ann", plan=Plan.PRO)
        account.start("bob")
        kit.drain()
        assert [one.key for one in app.actors(account, plan=Plan.PRO)] == ["ann"]
        account.ref("bob").ask("upgrade", plan="pro")
        assert [one.key for one in app.actors("Account", plan="pro", seats=1)] == ["ann", "bob"]
        account.ref("bob").edit(plan=Plan.BASIC)
        app.actor_ref("Account", "ann").edit(seats=3)
        assert [one.key for one in app.actors("Account", plan="pro")] == ["ann"]
        assert [one.key for one in app.actors(account, seats=3)] == ["ann"]
        assert [one.key for one in app.actors(account, status="sleeping")] == ["ann", "bob"]
        account.ref("ann").restart()
        assert list(app.actors(account, seats=3)) == []


def test_a_wrong_list_says_what_is_wrong() -> None:
    app, account = an_app()
    with run_inline(app):
        wrong: list[tuple[Any, dict[str, Any], str]] = [
            (account, {"plna": "pro"}, "nearest: 'plan'"),
            (account, {"log": "x"}, "listed by: plan, seats"),
            (None, {"plan": "pro"}, "give the type first"),
            (account, {"status": "asleep"}, "an actor is one of: ready"),
            (account, {"plan": [1]}, "listed by text, whole numbers"),
            (account, {"plan": "x" * 300}, "at most 200"),
        ]
        for of, given, words in wrong:
            with pytest.raises(InvalidInput, match=words):
                list(app.actors(of, **given))
    for listed, words in ((("plna",), "no field of it .nearest: 'plan'"), ("plan", "give names")):
        with pytest.raises(AppError, match=words):

            @App("x").actor(listed=listed)
            class Account:
                plan: str = ""


def test_a_handler_that_reads_sees_the_state_and_takes_no_turn() -> None:
    app, account = an_app()
    with run_inline(app) as kit:
        ann = account.start("ann", seats=2)
        kit.drain()
        ann.pause()
        ann.upgrade.send(plan="pro")
        assert ann.read("history") == ("ann", [])  # the message waits
        ann.resume()
        kit.drain()
        turn = ann.actor().turn
        assert ann.read("history") == ("ann", ["pro"])
        assert ann.price.read(each=7) == 14
        assert app.actor_ref("Account", "ann").read("price", each=7) == 14
        assert ann.actor().turn == turn
        assert kit.submitted() == []


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("field", "it changed a field"),
        ("timer", r"called ctx.timer\(…\)"),
        ("send", r"called ctx.send\(…\)"),
        ("current", "it submitted or sent something"),
        ("raise", "boom"),
    ],
)
def test_a_handler_that_reads_cannot_change_anything(how: str, words: str) -> None:
    app, account = an_app()
    with run_inline(app) as kit:
        ann = account.start("ann")
        kit.drain()
        before = ann.actor()
        with pytest.raises(AskFailed, match=words):
            ann.read("cheats", how=how)
        assert ann.actor() == before
        assert kit.submitted() == []


def test_reads_and_messages_are_kept_apart() -> None:
    app, account = an_app()
    with run_inline(app) as kit:
        ann = account.start("ann")
        kit.drain()
        with pytest.raises(InvalidArguments, match=r"only reads; call it with ref.read\('price'\)"):
            ann.ask("price")
        with pytest.raises(InvalidArguments, match=r"marked with .* are: cheats"):
            ann.read("upgrade", plan="pro")
        without_class: Any = ActorRef(app._access, "Account", "ann", app._new_id)
        assert without_class.read("price", each=7) == 7
        with pytest.raises(AskFailed, match="does not handle it"):
            without_class.ask("price")
        with pytest.raises(AskFailed, match="no handler 'upgrade' that reads"):
            without_class.read("upgrade")
        with pytest.raises(AskFailed, match="each"):
            without_class.read("price", each="x")
        with pytest.raises(NotFound, match="there is no actor Account 'eve'"):
            account.ref("eve").read("price")
    with pytest.raises(AppError, match="@reads is for messages"):

        @App("x").actor
        class Odd:
            @longshore.reads
            def start(self, ctx: ActorContext) -> None: ...


def test_a_job_hears_of_every_commit() -> None:
    app = App("billing")
    heard: list[tuple[Any, ...]] = []

    @app.job
    def audit(type: str, key: str, turn: int, what: str, state: dict[str, Any]) -> None:
        heard.append((type, key, turn, what, state["n"]))

    @app.actor(history=audit)
    class Counter:
        n: int = 0

        def add(self, ctx: ActorContext, by: int) -> None:
            self.n += by

    counters: Any = Counter
    with run_inline(app) as kit:
        ref = counters.start("a")
        kit.drain()
        ref.send("add", by=3)
        kit.drain()
        ref.edit(n=7)
        ref.stop()
        kit.drain()
    changes = [(0, "created", 0), (1, "updated", 0), (2, "updated", 3), (3, "updated", 7)]
    assert heard == [("Counter", "a", *one) for one in [*changes, (3, "removed", 7)]]


def test_a_history_must_take_what_it_is_told() -> None:
    app = App("billing")

    @app.job
    def odd(type: str, key: str) -> None: ...

    wrong: list[tuple[Any, str]] = [(odd, "must take exactly these: type"), (len, "give a job")]
    for history, words in wrong:
        with pytest.raises(AppError, match=words):

            @app.actor(history=history)
            class Counter:
                n: int = 0
