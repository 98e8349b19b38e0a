"""Actors with a handler for what has failed for good, on a test kit."""

from __future__ import annotations

import pytest

from longshore import ActorContext, ActorStatus, App, Fail, Failure
from longshore.errors import AskFailed
from longshore.testing import run_inline

app = App("recovery")
tries: list[str] = []


class Till:
    seen: list[str] = []  # noqa: RUF012
    gives_up: bool = False

    async def add(self, ctx: ActorContext, n: int) -> None:
        tries.append(f"add {n}")
        self.seen.append(f"add {n}")
        if n < 0:
            raise ValueError("it is negative")
        if n > 100:
            raise Fail("it is too much")

    async def on_timer_close(self, ctx: ActorContext) -> None:
        raise Fail("it is stuck")

    async def close(self, ctx: ActorContext) -> None:
        ctx.timer("close", after_s=1)

    async def count(self, ctx: ActorContext) -> int:
        raise Fail("nobody knows")

    async def failed(self, ctx: ActorContext, failure: Failure) -> str:
        if self.gives_up:
            raise RuntimeError("no way out")
        if failure.name == "count":
            ctx.refuse(f"sorry: {failure.error}")
        if failure.args.get("n", 0) > 100:
            failure.drop()
        self.seen.append(f"{failure.kind} {failure.name} {failure.args}: {failure.error}")
        return "no reply"


tills = app.actor(retries=2)(Till)
patient = app.actor(type="Once", retries=0)(Till)


@pytest.fixture(autouse=True)
def _no_tries() -> None:
    tries.clear()


def test_a_message_that_fails_for_good_is_parked_and_the_actor_goes_on() -> None:
    with run_inline(app) as kit:
        ref = tills.start("a")
        ref.send("add", 1)
        ref.send("add", -1)
        ref.send("add", 2)
        kit.drain()
        error = "message 'add' (number 2): it is negative"
        assert ref.state().seen == ["add 1", f"message add {{'n': -1}}: {error}", "add 2"]
        assert ref.status() is ActorStatus.SLEEPING
        assert [(mail.number, mail.parked) for mail in ref.mail()] == [(2, True)]
        tries.clear()
        ref.put_back(2)
        kit.drain()
        assert [(mail.number, mail.parked) for mail in ref.mail()] == [(2, True)]
        assert tries == ["add -1"] * 3


@pytest.mark.parametrize("name", ["Till", "Once"])
def test_of_several_events_the_one_that_fails_is_found(name: str) -> None:
    """Though its error forbids a retry, or there is none: nothing else is put aside."""
    with run_inline(app) as kit:
        ref = (tills if name == "Till" else patient).start("a")
        for n in (1, 2, 500, 3):
            ref.send("add", n)
        kit.drain()
        seen = ref.state().seen
        assert [one for one in seen if one.startswith("add")] == ["add 1", "add 2", "add 3"]
        assert seen[2].startswith("message add {'n': 500}: ")
        assert len(ref.mail()) == 0
        assert ref.status() is ActorStatus.SLEEPING


def test_a_timer_that_fails_for_good_is_over() -> None:
    with run_inline(app) as kit:
        ref = tills.start("a")
        ref.send("close")
        kit.drain()
        kit.advance(1)
        kit.drain()
        assert ref.state().seen == ["timer close {}: timer 'close': it is stuck"]
        assert ref.status() is ActorStatus.SLEEPING
        assert ref.actor().timers == ()


def test_who_asked_may_get_an_answer() -> None:
    with run_inline(app):
        ref = tills.start("a")
        with pytest.raises(AskFailed, match=r"sorry: .*nobody knows"):
            ref.ask("count")


def test_an_actor_whose_recovery_fails_is_failed_and_resume_tries_the_event_again() -> None:
    with run_inline(app) as kit:
        ref = tills.start("a", gives_up=True)
        ref.send("add", -1)
        kit.drain()
        assert ref.status() is ActorStatus.FAILED
        error = ref.actor().error
        assert error is not None
        assert error.message == "'failed' for message 'add' (number 1): no way out"
        assert [mail.parked for mail in ref.mail()] == [False]
        assert ref.state().seen == []
        before = tries.count("add -1")
        ref.edit(gives_up=False)
        kit.drain()
        assert tries.count("add -1") == before + 3
        assert ref.status() is ActorStatus.SLEEPING
        assert [mail.parked for mail in ref.mail()] == [True]
