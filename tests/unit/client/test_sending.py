"""Many messages to actors: in order, pulled as fast as they are accepted, refused one by one."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from longshore import ActorContext, App
from longshore.client.sending import MessageCall
from longshore.errors import InvalidInput, NotFound, WouldBlock, WrongState
from longshore.testing import run_inline
from longshore.wire import actor_messages as m

from .fake import FakeDispatcher

CHUNK = 500


def calls(app: App, keys: int, count: int) -> Iterator[MessageCall]:
    """Messages to so many actors in turn, numbered."""
    refs = [app.actor_ref("Account", f"a{key}") for key in range(keys)]
    for number in range(count):
        yield refs[number % keys].add.call(number=number)


def arrived(fake: FakeDispatcher) -> dict[str, list[bytes]]:
    """The arguments that each actor was sent, in the order of the requests."""
    found: dict[str, list[bytes]] = {}
    for request in fake.of(m.Send):
        for message in request.messages:
            found.setdefault(message.key, []).append(message.args)
    return found


def wanted(app: App, keys: int, count: int) -> dict[str, list[bytes]]:
    found: dict[str, list[bytes]] = {}
    for call in calls(app, keys, count):
        found.setdefault(call.message.key, []).append(call.message.args)
    return found


def test_each_actor_gets_its_messages_in_order_whoever_is_answered_first(
    app: App, fake: FakeDispatcher
) -> None:
    app.send_many(calls(app, 40, 5_000))
    assert arrived(fake) == wanted(app, 40, 5_000)
    assert max(len(request.messages) for request in fake.of(m.Send)) == CHUNK


async def test_a_coroutine_sends_what_an_asynchronous_generator_yields(
    app: App, fake: FakeDispatcher
) -> None:
    async def described() -> AsyncIterator[MessageCall]:
        for call in calls(app, 3, 1_200):
            yield call

    await app.send_many_async(described())
    assert arrived(fake) == wanted(app, 3, 1_200)
    await app.close_async()


def test_messages_are_sent_before_the_last_one_is_described(app: App, fake: FakeDispatcher) -> None:
    def described() -> Iterator[MessageCall]:
        for number, call in enumerate(calls(app, 1, 1_100)):
            if number == CHUNK + 1:
                fake.heard(m.Send, 1)
            yield call

    app.send_many(described())
    assert [len(request.messages) for request in fake.of(m.Send)] == [500, 500, 100]


def full_after(room: int) -> Any:
    """Answers as a dispatcher does whose mailboxes have room for so many messages at a time."""
    taken = Counter[str]()

    def answer(request: m.Send) -> list[m.SendAnswer]:
        before = Counter(taken)
        answers = []
        for message in request.messages:
            if taken[message.key] - before[message.key] < room:
                taken[message.key] += 1
                answers.append(m.SendAnswer(message.id))
            else:
                answers.append(m.SendAnswer(message.id, WrongState.code, "the mailbox is full"))
        return answers

    return answer


def test_what_a_full_mailbox_refuses_is_sent_again_in_order(app: App, fake: FakeDispatcher) -> None:
    fake.replies[m.Send] = full_after(100)
    app.send_many(calls(app, 1, 350))
    sizes = [len(request.messages) for request in fake.of(m.Send)]
    assert sizes == [350, 250, 150, 50]
    assert arrived(fake)["a0"][350:600] == wanted(app, 1, 350)["a0"][100:]


def test_a_mailbox_that_stays_full_is_an_error_that_counts(app: App, fake: FakeDispatcher) -> None:
    fake.replies[m.Send] = full_after(0)
    with pytest.raises(WrongState, match=r"full \(30 of 30 messages were refused"):
        app.send_many(calls(app, 3, 30), room_s=0)


def test_what_the_generator_raises_says_how_much_was_sent(app: App, fake: FakeDispatcher) -> None:
    def broken() -> Iterator[MessageCall]:
        yield from calls(app, 1, CHUNK)
        fake.heard(m.Send, 1)
        raise ValueError("no more")

    with pytest.raises(ValueError, match="no more") as raised:
        app.send_many(broken())
    assert raised.value.__notes__[0].startswith("Of 500 messages sent before this,")


@pytest.mark.parametrize("odd", [3, [3], ["add"]])
def test_anything_but_described_messages_is_refused(app: App, odd: Any) -> None:
    with pytest.raises(InvalidInput, match=r"ref\.upgrade\.call"):
        app.send_many(odd)


async def test_the_blocking_form_does_not_block_an_event_loop(app: App) -> None:
    with pytest.raises(WouldBlock, match="send_many_async"):
        app.send_many([])
    await app.close_async()


def test_on_the_test_kit_messages_arrive_and_those_to_nobody_are_named() -> None:
    app = App("ledger")

    @app.actor
    class Account:
        seen: list[int] = []  # noqa: RUF012

        def add(self, ctx: ActorContext, number: int) -> None:
            self.seen.append(number)

    with run_inline(app) as kit:
        accounts: Any = Account
        ref = accounts.start("ann")
        described = [ref.add.call(number=number) for number in range(5)]
        app.send_many(described)
        app.send_many(described)  # the same messages: they arrive once
        kit.drain()
        assert ref.state().seen == [0, 1, 2, 3, 4]
        with pytest.raises(NotFound, match=r"1 of 2 messages were refused"):
            app.send_many([ref.add.call(5), accounts.ref("nobody").add.call(6)])
        kit.drain()
        assert ref.state().seen[-1] == 5
