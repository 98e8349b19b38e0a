"""What actors hear of the jobs and groups that they submit, on a test kit."""

from __future__ import annotations

import pytest

from longshore import ActorContext, Answer, App, Outcome
from longshore.errors import InvalidInput, NotFinished, NotFound
from longshore.testing import run_inline

app = App("halves")


@app.job
async def halve(number: int) -> int:
    if number % 2:
        raise ValueError("it is odd")
    return number // 2


class Halver:
    heard: list[str] = []  # noqa: RUF012

    async def go(self, ctx: ActorContext, numbers: list[int]) -> None:
        for number in numbers:
            ctx.submit(halve.call(number), then="halved", about=number)

    async def halved(self, ctx: ActorContext, outcome: Outcome) -> None:
        value = outcome.value if outcome.succeeded else outcome.error
        self.heard.append(f"{outcome.about}: {outcome.state} {value} ({outcome.round})")

    async def together(self, ctx: ActorContext, numbers: list[int]) -> None:
        group = app.group("halves")
        for number in numbers:
            group.add(halve.call(number))
        ctx.submit_group(group, then="ended", about=numbers)

    async def ended(self, ctx: ActorContext, outcome: Outcome) -> None:
        self.heard.append(f"{outcome.about}: {outcome.state} {outcome.value}")

    async def wrongly(self, ctx: ActorContext) -> None:
        ctx.submit(halve.call(2), then="nothing")

    async def keyed(self, ctx: ActorContext) -> None:
        ctx.submit(halve.options(unique_key="k").call(2), then="halved")

    async def twice(self, ctx: ActorContext) -> None:
        group = app.group("halves")
        ctx.submit_group(group)
        ctx.submit_group(group)

    async def too_many(self, ctx: ActorContext) -> None:
        group = app.group("halves")
        for _ in range(1_001):
            group.add(halve.call(2))
        ctx.submit_group(group)


halvers = app.actor(Halver)


def test_an_actor_hears_how_its_jobs_ended() -> None:
    with run_inline(app) as kit:
        ref = halvers.start("a")
        ref.send("go", [4, 5])
        kit.drain()
        assert ref.state().heard == ["4: succeeded 2 (1)", "5: failed it is odd (1)"]
        [_, job] = kit.submitted(halve)
        app.handle(job.id).retry()
        kit.drain()
        assert ref.state().heard[2:] == ["5: failed it is odd (2)"]


def test_an_actor_submits_a_group_and_hears_of_its_end() -> None:
    with run_inline(app) as kit:
        ref = halvers.start("a")
        ref.send("together", [4, 6])
        ref.send("together", [4, 5])
        kit.drain()
        assert ref.state().heard == ["[4, 6]: succeeded None", "[4, 5]: failed None"]


@pytest.mark.parametrize(
    ("message", "says"),
    [
        ("wrongly", "no handler 'nothing' for then"),
        ("keyed", "unique key is submitted with then"),
        ("twice", "is submitted; nothing can be added"),
        ("too_many", "1,001 jobs, and a turn may submit one of 1,000"),
    ],
)
def test_what_a_turn_cannot_submit_is_said_at_once(message: str, says: str) -> None:
    with run_inline(app) as kit:
        ref = halvers.start("a")
        ref.send(message)
        kit.drain()
        error = ref.actor().error
        assert error is not None
        assert says in error.message


# callbacks


class Order:
    token: str = ""
    heard: list[str] = []  # noqa: RUF012

    async def begin(self, ctx: ActorContext, note: str) -> str:
        self.token = ctx.callback(then="paid", about=note)
        return self.token

    async def paid(self, ctx: ActorContext, answer: Answer) -> None:
        self.heard.append(f"{answer.about}: {answer.value}")


orders = app.actor(Order)


def test_a_callback_is_resolved_once() -> None:
    with run_inline(app) as kit:
        ref = orders.start("a")
        token = ref.ask("begin", "cash")
        assert token == ref.state().token
        assert app.resolve(token, {"sum": 3}) is True
        assert app.resolve(token, {"sum": 4}) is False
        kit.drain()
        assert ref.state().heard == ["cash: {'sum': 3}"]
        assert app.resolve(token, 5) is False
        other = ref.ask("begin", "card")
        assert other != token
        assert app.resolve(other) is True
        kit.drain()
        assert ref.state().heard == ["cash: {'sum': 3}", "card: None"]


def test_a_callback_that_cannot_be_resolved_says_why() -> None:
    with run_inline(app):
        ref = orders.start("a")
        token = ref.ask("begin", "cash")
        with pytest.raises(InvalidInput, match="is not a token of this fleet"):
            app.resolve(token[:-2] + "xx", 1)
        with pytest.raises(NotFinished):
            ref.ask("begin", "n" * 2_000)
        error = ref.actor().error
        assert error is not None
        assert "about takes 2,003 bytes, and a token has room for 1,024" in error.message
        ref.stop()
        with pytest.raises(NotFound, match="is gone"):
            app.resolve(token, 1)
