"""Additions to groups from the SDK: what goes to the dispatcher, and what is refused before."""

from __future__ import annotations

import asyncio

import pytest
from tests.unit.client.fake import FakeDispatcher
from tests.unit.client.test_groups import Kinds, kinds  # noqa: F401

from longshore.client.app import App
from longshore.errors import InvalidInput, WrongState
from longshore.model.group import SCOPE, Condition
from longshore.model.ids import derive_id
from longshore.payload.references import references
from longshore.wire import messages


def test_a_job_is_added_by_a_handle(app: App, fake: FakeDispatcher, kinds: Kinds) -> None:  # noqa: F811
    with app.group("x") as group:
        first = group.add(kinds.fetch.call("u"))
    handle = group.handle.add(kinds.fetch.call("v"), after=[first, "other"], on="ended", key="late")
    [request] = fake.of(messages.AddToGroup)
    [node] = request.nodes
    assert (request.group, node.key, node.after) == (group.handle.id, "late", ("fetch", "other"))
    assert node.on is Condition.ENDED
    assert handle.id == derive_id(request.id, 0)


def test_several_jobs_are_added_at_once_in_an_order_that_can_run(
    app: App,
    fake: FakeDispatcher,
    kinds: Kinds,  # noqa: F811
) -> None:
    with app.group("x") as group:
        first = group.add(kinds.fetch.call("u"))
    with group.handle.adding() as more:
        packed = more.add(kinds.pack.call(first.result), after="part")
        inside = more.sub("part").add(kinds.fetch.call("v"))
        more.add(kinds.pack.call(more.existing("old").result), key="last", after=packed)
    [request] = fake.of(messages.AddToGroup)
    ending = f"@{request.id.hex[-8:]}"
    keys = [node.key for node in request.nodes]
    assert keys == [f"part/fetch{ending}", "part", f"text.pack{ending}", "last"]
    kinds_sent = [node.job.kind for node in request.nodes]
    assert kinds_sent == ["fetch", SCOPE, "text/pack", "text/pack"]
    assert set(request.nodes[2].after) == {"part", "fetch"}
    assert set(request.nodes[3].after) == {f"text.pack{ending}", "old"}
    assert [one.job for one in references(request.nodes[3].job.args)] == ["old"]
    assert inside.handle.id == derive_id(request.id, 0)
    with pytest.raises(WrongState, match="these jobs are added"):
        more.add(kinds.fetch.call("w"))


def test_an_addition_with_nothing_in_it_asks_nothing(
    app: App,
    fake: FakeDispatcher,
    kinds: Kinds,  # noqa: F811
) -> None:
    with app.group("x") as group:
        group.add(kinds.fetch.call("u"))
    with group.handle.adding():
        pass

    def give_up() -> None:
        with group.handle.adding() as more:
            more.add(kinds.fetch.call("v"))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        give_up()
    assert fake.of(messages.AddToGroup) == []


def test_what_is_wrong_with_an_addition_is_told_before_it_is_sent(
    app: App,
    fake: FakeDispatcher,
    kinds: Kinds,  # noqa: F811
) -> None:
    with app.group("x") as group, app.group("y") as other:
        group.add(kinds.fetch.call("u"))
        strange = other.add(kinds.fetch.call("u"))
    handle = group.handle
    with pytest.raises(InvalidInput, match="'fetch', which is of another group"):
        handle.add(kinds.fetch.call("v"), after=strange)

    def add_two(*pairs: tuple[str, str]) -> None:
        with handle.adding() as more:
            for key, after in pairs:
                more.add(kinds.fetch.call("v"), key=key, after=after)

    with pytest.raises(InvalidInput, match="wait for each other: 'a' after 'b' after 'a'"):
        add_two(("a", "b"), ("b", "a"))
    with pytest.raises(InvalidInput, match="2 jobs have the key 'a'"):
        add_two(("a", "c"), ("a", "c"))
    assert fake.of(messages.AddToGroup) == []


def test_coroutines_add_too(app: App, fake: FakeDispatcher, kinds: Kinds) -> None:  # noqa: F811
    async def story() -> None:
        async with app.group("x") as group:
            group.add(kinds.fetch.call("u"))
        await group.handle.add_async(kinds.fetch.call("v"), key="b")
        async with group.handle.adding() as more:
            more.add(kinds.fetch.call("w"), key="c", after="b")

    asyncio.run(story())
    assert [one.nodes[0].key for one in fake.of(messages.AddToGroup)] == ["b", "c"]
