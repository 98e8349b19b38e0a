"""Actors as their authors and callers see them, on a test kit."""

from __future__ import annotations

from typing import Any

import pytest

import longshore
from longshore import ActorContext, ActorStatus, Answer, App, Undelivered, when
from longshore.client.actor_class import ActorClass
from longshore.errors import (
    AppError,
    AskFailed,
    Conflict,
    InvalidArguments,
    InvalidInput,
    NotFinished,
    NotFound,
    WrongState,
)
from longshore.payload import values
from longshore.testing import run_inline

DAY_S = 86_400


def an_app() -> tuple[App, Any]:
    app = App("billing")

    @app.actor
    class Subscription:
        customer: str
        plan: str = "basic"
        reminders: int = 0
        seen: list[str] = []  # noqa: RUF012

        def start(self, ctx: ActorContext) -> None:
            ctx.timer("remind", every_s=DAY_S)

        async def upgrade(self, ctx: ActorContext, plan: str) -> str:
            before, self.plan = self.plan, plan
            return before

        def note(self, ctx: ActorContext, text: str) -> None:
            self.seen.append(text)

        def broken(self, ctx: ActorContext) -> None:
            self.plan = "never"
            raise ValueError("boom")

        def on_timer_remind(self, ctx: ActorContext) -> None:
            self.reminders += 1

        def end(self, ctx: ActorContext) -> None:
            ctx.stop()

        def rest(self, ctx: ActorContext) -> None:
            ctx.pause()

        def label(self) -> str:
            return self.customer.title()

    return app, Subscription


def test_an_actor_keeps_what_its_handlers_change() -> None:
    app, subscription = an_app()
    with run_inline(app) as kit:
        ref = subscription.start("ann", customer="ann")
        ref.upgrade.send(plan="pro")
        ref.send("note", "hello")
        kit.drain()
        state = ref.state()
        assert (state.plan, state.seen, state.label()) == ("pro", ["hello"], "Ann")
        assert ref.status() is ActorStatus.SLEEPING
        assert ref.turns()[0].turn == 1


def test_an_ask_gets_what_the_handler_returns() -> None:
    app, subscription = an_app()
    with run_inline(app):
        ref = subscription.start("ann", customer="ann")
        assert ref.ask("upgrade", plan="pro") == "basic"
        assert ref.upgrade.ask("max", timeout_s=1) == "pro"


def test_a_timer_fires_again_and_again() -> None:
    app, subscription = an_app()
    with run_inline(app) as kit:
        ref = subscription.start("ann", customer="ann")
        kit.drain()
        for _ in range(3):
            kit.advance(DAY_S)
            kit.drain()
        assert ref.state().reminders == 3
        kit.advance(10 * DAY_S)
        kit.drain()
        assert ref.state().reminders == 4, "what it missed counts once"


def test_two_actors_do_not_share_a_default_list() -> None:
    app, subscription = an_app()
    with run_inline(app) as kit:
        ann, bob = (subscription.start(name, customer=name) for name in ("ann", "bob"))
        ann.note.send("hello")
        kit.drain()
        assert (ann.state().seen, bob.state().seen) == (["hello"], [])


def test_a_failed_turn_leaves_nothing_and_names_its_event() -> None:
    app, subscription = an_app()
    with run_inline(app) as kit:
        ref = subscription.start("ann", customer="ann")
        kit.drain()
        ref.send("broken")
        kit.drain()
        actor = ref.actor()
        assert actor.status is ActorStatus.FAILED
        assert actor.error is not None
        assert actor.error.message == "message 'broken' (number 1): boom"
        assert ref.state().plan == "basic"
        ref.drop(1)
        ref.note.send("on")
        ref.resume()
        kit.drain()
        assert ref.state().seen == ["on"]


def test_a_message_can_be_parked_and_put_back() -> None:
    app, subscription = an_app()
    with run_inline(app) as kit:
        ref = subscription.start("ann", customer="ann")
        ref.pause()
        ref.note.send("first")
        ref.note.send("second")
        ref.park(1)
        assert [one.parked for one in ref.mail()] == [True, False]
        ref.resume()
        kit.drain()
        assert ref.state().seen == ["second"]
        ref.put_back(1)
        kit.drain()
        assert ref.state().seen == ["second", "first"]


def test_a_paused_actor_does_nothing() -> None:
    app, subscription = an_app()
    with run_inline(app) as kit:
        ref = subscription.start("ann", customer="ann")
        ref.rest.send()
        ref.note.send("later")
        kit.drain()
        assert ref.status() is ActorStatus.PAUSED
        assert ref.state().seen == []
        assert "paused" in ref.why()
        ref.resume()
        kit.drain()
        assert ref.state().seen == ["later"]


def test_an_actor_that_stops_is_gone() -> None:
    app, subscription = an_app()
    with run_inline(app) as kit:
        ref = subscription.start("ann", customer="ann")
        kit.drain()
        ref.end.send()
        kit.drain()
        with pytest.raises(NotFound, match="there is no actor Subscription 'ann'"):
            ref.state()
        with pytest.raises(NotFound):
            ref.note.send("hello?")
        subscription.start("ann", customer="ann")


def test_a_key_belongs_to_one_actor() -> None:
    app, subscription = an_app()
    with run_inline(app) as kit:
        subscription.start("ann", customer="ann")
        with pytest.raises(Conflict):
            subscription.start("ann", customer="eve")
        assert subscription.get_or_start("ann", customer="eve").state().customer == "ann"
        assert kit.submitted() == []


def test_fields_and_messages_are_checked_where_they_are_given() -> None:
    app, subscription = an_app()
    with run_inline(app):
        with pytest.raises(InvalidArguments, match="customer"):
            subscription.start("ann")
        with pytest.raises(InvalidArguments, match=r"no field 'custmer' \(nearest: 'customer'\)"):
            subscription.start("ann", custmer="ann")
        with pytest.raises(longshore.errors.InvalidInput, match="customer"):
            subscription.start("ann", customer=7)
        ref = subscription.ref("ann")
        with pytest.raises(InvalidArguments, match=r"message 'upgrade'.*plan"):
            ref.send("upgrade", plan=7)
        with pytest.raises(AttributeError, match="nearest: 'upgrade'"):
            ref.upgrad.send()


def test_a_state_can_be_edited_and_an_actor_restarted() -> None:
    app, subscription = an_app()
    with run_inline(app) as kit:
        ref = subscription.start("ann", customer="ann")
        kit.drain()
        ref.edit(plan="gift")
        assert ref.state().plan == "gift"
        ref.restart(customer="eve")
        kit.drain()
        assert (ref.state().customer, ref.state().plan) == ("eve", "basic")
        assert [timer.name for timer in ref.actor().timers] == ["remind"]


def test_a_change_that_names_a_turn_counts_only_after_that_turn() -> None:
    app, subscription = an_app()
    with run_inline(app) as kit:
        ref = subscription.start("ann", customer="ann")
        kit.drain()
        seen = ref.actor().turn
        ref.edit(plan="gift", turn=seen)
        for change in (ref.edit, app.actor_ref("Subscription", "ann").edit):
            with pytest.raises(WrongState, match=f"is at turn {seen + 1}, not at turn {seen}"):
                change(plan="pro", turn=seen)
        with pytest.raises(WrongState, match="not at turn"):
            ref.restart(customer="eve", turn=seen + 2)
        assert (ref.state().plan, ref.state().customer) == ("gift", "ann")
        ref.restart(customer="eve", turn=seen + 1)
        kit.drain()
        assert (ref.state().plan, ref.state().customer) == ("basic", "eve")
        with pytest.raises(InvalidInput, match="turn is 'white'; give the number"):
            ref.edit(turn="white")


def test_a_delayed_message_comes_later() -> None:
    app, subscription = an_app()
    with run_inline(app) as kit:
        ref = subscription.start("ann", customer="ann")
        ref.delayed(60).send("note", "later")
        ref.note.send("now")
        kit.drain()
        assert ref.state().seen == ["now"]
        kit.advance(60)
        kit.drain()
        assert ref.state().seen == ["now", "later"]


def test_a_job_sends_to_an_actor_with_its_success() -> None:
    app, subscription = an_app()

    @app.job
    def work(ctx: longshore.Context, fails: bool) -> None:
        ctx.send(subscription.ref("ann"), "note", "from a job")
        if fails:
            raise longshore.Fail("no")

    with run_inline(app) as kit:
        ref = subscription.start("ann", customer="ann")
        work.submit(True)
        kit.drain()
        assert ref.state().seen == []
        work.submit(False)
        kit.drain()
        assert ref.state().seen == ["from a job"]


# several actors


def a_shop() -> tuple[App, Any, Any]:
    app = App("shop")

    class Stock:
        left: int = 1

        def take(self, ctx: ActorContext, item: str) -> int:
            if self.left == 0:
                ctx.refuse(f"no {item} is left")
                return 0
            self.left -= 1
            return self.left

    stocks = app.actor(Stock)  # mypy does not see what a decorator makes of a class

    @app.job
    def deliver(item: str) -> None:
        """Delivers."""

    @app.actor
    class Order:
        state: str = "open"
        log: list[str] = []  # noqa: RUF012

        @when("open")
        def buy(self, ctx: ActorContext, item: str) -> str:
            ctx.ask(stocks.ref("main"), "take", item=item, then="taken", about=item)
            ctx.become("waiting")
            return "asked"

        @when("waiting", handles="buy")
        def buy_again(self, ctx: ActorContext, item: str) -> str:
            return "wait"

        def taken(self, ctx: ActorContext, answer: Answer) -> None:
            self.log.append(answer.error or f"{answer.about}: {answer.value}")
            ctx.become("open")
            if not answer.error:
                ctx.submit(deliver.call(answer.about))

        def call(self, ctx: ActorContext, key: str) -> None:
            ctx.send(stocks.ref(key), "take", item="x")

        def undelivered(self, ctx: ActorContext, message: Undelivered) -> None:
            self.log.append(f"{message.type} {message.key} {message.name} {message.args}")

        def unhandled(self, ctx: ActorContext, name: str, args: dict[str, Any]) -> None:
            self.log.append(f"{name} {args}")

    return app, stocks, Order


def test_an_actor_asks_another_and_hears_of_it_as_a_message() -> None:
    app, stock, order = a_shop()
    with run_inline(app) as kit:
        stock.start("main")
        ref = order.start("1")
        assert ref.ask("buy", item="cup") == "asked"
        ref.buy.send(item="cup")
        kit.drain()
        assert ref.state().log == ["cup: 0", "no cup is left"]
        assert ref.state().state == "open"
        assert [job.arguments for job in kit.submitted()] == [{"item": "cup"}]


def test_a_named_state_chooses_the_handler() -> None:
    app, _stock, order = a_shop()
    with run_inline(app) as kit:
        ref = order.start("1")
        ref.pause()
        ref.buy.send(item="cup")
        ref.resume()
        assert ref.ask("buy", item="cup") == "wait"
        kit.drain()


def test_a_message_to_nobody_comes_back() -> None:
    app, _stock, order = a_shop()
    with run_inline(app) as kit:
        ref = order.start("1")
        ref.send("call", key="none")
        kit.drain()
        assert ref.state().log == ["Stock none take {'item': 'x'}"]


def test_unhandled_takes_what_nothing_else_does() -> None:
    app, _stock, order = a_shop()
    with run_inline(app) as kit:
        ref = order.start("1")
        app_elsewhere_ref = longshore.App("other").actor_ref("Order", "1")
        app_elsewhere_ref._access = ref._access
        app_elsewhere_ref.send("dance", steps=2)
        kit.drain()
        assert ref.state().log == ["dance {'steps': 2}"]


def a_poller() -> tuple[longshore.App, Any]:
    """An actor as the older system had them: it runs when it is touched, whatever touched it."""
    app = longshore.App("poll")

    class Poller:
        state: str = "busy"
        log: list[str] = []  # noqa: RUF012

        async def start(self, ctx: ActorContext) -> None:
            ctx.timer("again", after_s=60)
            ctx.timer("yearly", every_s=86_400 * 365)

        @longshore.when("busy")
        async def run(self, ctx: ActorContext) -> str:
            self.log.append("run")
            ctx.timer("again", after_s=60)
            return "ran"

        @longshore.when("idle", handles="run")
        async def run_idle(self, ctx: ActorContext) -> None:
            self.log.append("idle")

        async def rest(self, ctx: ActorContext) -> None:
            assert ctx.clear()
            assert not ctx.clear()
            ctx.become("idle")

    return app, app.actor(Poller)


def test_a_message_or_timer_without_a_handler_is_a_touch_run_now() -> None:
    app, poller = a_poller()
    with run_inline(app) as kit:
        ref = poller.start("1")
        ref.send("poke", why="no handler has this name")
        kit.drain()
        assert ref.state().log == ["run"]
        kit.advance(61)
        kit.drain()
        assert ref.state().log == ["run", "run"], "a timer without a handler of its own"
        ref.rest.send()
        ref.poke.send()
        kit.drain()
        assert ref.state().log == ["run", "run", "idle"], "by the named state"
        kit.advance(86_400 * 366)
        kit.drain()
        assert ref.state().log == ["run", "run", "idle"], "nothing but a message wakes it now"
        assert ref.status() is ActorStatus.SLEEPING


def test_an_ask_that_nothing_handles_is_no_touch() -> None:
    app, poller = a_poller()
    with run_inline(app):
        ref = poller.start("1")
        with pytest.raises(AskFailed, match="does not handle it"):
            ref.ask("poke")
        assert ref.ask("run") == "ran"
        assert ref.state().log == ["run"]


def test_a_run_that_needs_arguments_is_a_message_like_any_other() -> None:
    app = longshore.App("poll")

    class Runner:
        async def run(self, ctx: ActorContext, far: int) -> None:
            """Takes something."""

    runner = app.actor(Runner)
    with run_inline(app), pytest.raises(InvalidArguments, match="has no message 'poke'"):
        runner.start("1").send("poke")


def test_what_nothing_handles_fails_the_turn_but_answers_an_ask() -> None:
    app, stock, _order = a_shop()
    with run_inline(app) as kit:
        ref = stock.start("main")
        stranger = longshore.App("other").actor_ref("Stock", "main")
        stranger._access = ref._access
        with pytest.raises(AskFailed, match=r"does not handle it \(nearest: 'take'\)"):
            stranger.ask("tak")
        with pytest.raises(AskFailed, match="missing a required argument: 'item'"):
            stranger.ask("take", thing=1)
        stranger.send("tak")
        kit.drain()
        assert ref.status() is ActorStatus.FAILED
        error = ref.actor().error
        assert error is not None
        assert "longshore actor park Stock main" in error.message


def test_an_ask_without_a_reply_says_so() -> None:
    app, subscription = an_app()
    with run_inline(app):
        ref = subscription.start("ann", customer="ann")
        ref.pause()
        with pytest.raises(NotFinished, match="has not replied"):
            ref.ask("upgrade", plan="pro")


# its class


def test_an_older_state_is_brought_forward() -> None:
    old, new = App("old"), App("new")

    class OldCart:
        items: int = 3

    class Cart:
        things: list[str]

        @classmethod
        def migrate(cls, state: dict[str, Any], version: int) -> dict[str, Any]:
            return {"things": [f"from {version}"] * state["items"]}

        def add(self, ctx: ActorContext, thing: str) -> None:
            self.things.append(thing)

    old_type = old.actor(type="Cart")(OldCart)
    new_type = new.actor(type="Cart", version=2)(Cart)
    with run_inline(new) as kit:
        ref = new_type.start("a", things=[])
        kit.drain()
        kit.dispatcher.store._actors["Cart", "a"].last.version = 1
        kit.dispatcher.store._actors["Cart", "a"].last.state = old_type.actor_class.pack(old_type())
        assert ref.state().things == ["from 1"] * 3
        ref.add.send("x")
        kit.drain()
        assert ref.state().things == [*["from 1"] * 3, "x"]
        assert ref.actor().version == 2


def test_actors_share_nothing_that_lies_within_a_default() -> None:
    """A field that was added later is not in a stored state: each actor gets its default."""

    class Member:
        visits: dict[str, list[str]] = {"house": []}  # noqa: RUF012
        seats: tuple[list[int], list[int]] = ([], [])

    member = ActorClass("Member", Member)
    before = values.pack({}, "a state from before there were fields")
    ann = member.unpack(before, 1)
    ann.visits["house"].append("monday")
    ann.seats[0].append(7)
    bob = member.unpack(before, 1)
    assert (bob.visits, bob.seats) == ({"house": []}, ([], []))


def test_an_older_class_never_gets_a_newer_state() -> None:
    """Otherwise an edit by an older program would drop the fields that it does not know."""

    class Note:
        text: str = ""

    old = ActorClass("Note", Note)
    newer = values.pack({"text": "a", "colour": "red"}, "a state")
    with pytest.raises(WrongState, match="is of version 2, and the class here is of version 1"):
        old.unpack(newer, 2)
    with pytest.raises(WrongState):
        old.edited(newer, 2, {"text": "b"})


def test_a_state_that_does_not_fit_names_the_message_that_made_it() -> None:
    app = App("wrong")

    class Wrong:
        count: int = 0

        def add(self, ctx: ActorContext) -> None:
            self.count += 1

        def spoil(self, ctx: ActorContext) -> None:
            self.count = "many"  # type: ignore[assignment]

    wrongs = app.actor(Wrong)
    with run_inline(app) as kit:
        ref = wrongs.start("a")
        for name in ("add", "spoil", "add"):
            ref.send(name)
        for _ in range(5):
            kit.drain()
            kit.advance(600)
        assert ref.status() is ActorStatus.FAILED
        assert ref.state().count == 1
        assert "message 'spoil' (number 2): the state of actor 'Wrong' expected int" in ref.why()
        ref.drop(2)
        ref.resume()
        kit.drain()
        assert ref.state().count == 2


def test_a_message_is_no_method_and_says_what_to_do() -> None:
    _, subscription = an_app()
    with pytest.raises(TypeError, match=r"use \.upgrade\.send\(…\) to send it"):
        subscription.ref("ann").upgrade(plan="pro")


def test_a_sleeping_actor_says_until_when() -> None:
    app, subscription = an_app()
    with run_inline(app) as kit:
        ref = subscription.start("ann", customer="ann")
        kit.drain()
        assert ref.why().startswith("it sleeps until 20")
        ref.pause()
        assert ref.why() == (
            "it is paused, with 0 unread messages; `longshore actor resume Subscription ann` "
            "lets it go on"
        )


def test_a_type_tells_workers_its_fields_and_messages() -> None:
    class Lamp:
        state: str = "off"
        watts: int

        @when("off")
        def press(self, ctx: ActorContext, by: str) -> None: ...

        @when("on", handles="press")
        def press_again(self, ctx: ActorContext) -> None: ...

        def dim(self, ctx: ActorContext, to: int, slowly: bool = False) -> None: ...

    lamp = ActorClass("Lamp", Lamp)
    state, watts = lamp.parameters()
    assert (state.required, watts.required, watts.type) == (False, True, "int")
    assert watts.schema == '{"type":"integer"}'
    told = lamp.handlers.advertised()
    assert told is not None
    assert told["press"] is None, "it depends on the state"
    assert [(one.name, one.required) for one in told["dim"] or ()] == [
        ("to", True),
        ("slowly", False),
    ]


def test_a_class_that_cannot_be_an_actor_is_refused() -> None:
    app = App("odd")
    with pytest.raises(AppError, match="need the field that has the named state"):

        @app.actor
        class NoState:
            @when("open")
            def go(self, ctx: ActorContext) -> None: ...

    with pytest.raises(AppError, match="'b' and 'c' both handle 'a' when 'x'"):

        @app.actor
        class Twice:
            def a(self, ctx: ActorContext) -> None: ...

            @when("x", handles="a")
            def b(self, ctx: ActorContext) -> None: ...

            @when("x", handles="a")
            def c(self, ctx: ActorContext) -> None: ...

    with pytest.raises(AppError, match="version 2 needs a way from older states"):

        @app.actor(version=2)
        class NoMigrate:
            pass

    with pytest.raises(AppError, match="'delay_s' is an option of jobs"):
        app.actor(delay_s=3)  # type: ignore[call-overload]


@pytest.mark.parametrize("is_async", [False, True])
def test_the_pool_follows_from_the_handlers(is_async: bool) -> None:
    app = App("pools")
    if is_async:

        @app.actor(type="A")
        class Async:
            async def go(self, ctx: ActorContext) -> None: ...

            def other(self, ctx: ActorContext) -> None: ...
    else:

        @app.actor(type="A")
        class Plain:
            def go(self, ctx: ActorContext) -> None: ...

    info = app.handlers()["A@1"].info
    assert info.pool == ("coroutine" if is_async else "process")
