"""Messages to actors in an application's own transaction, by every driver it may use."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing

import asyncpg
import psycopg
import pytest
import sqlalchemy
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.pool import NullPool
from tests.unit.store.lent import sqlalchemy_url
from tests.unit.store.outside import until_waiting

from longshore import App, MessageCall
from longshore.errors import InvalidArguments, InvalidInput, StoreUnavailable
from longshore.model.actor import ActorStatus, Delivered
from longshore.ports import Hint
from longshore.store.actor_rows import UNDELIVERED_S
from longshore.store.postgres.connections import Connection
from longshore.store.postgres.store import PostgresStore
from longshore.testing.actor_builders import TYPE, ActorScene, a_message, an_actor, names
from longshore.testing.builders import Scene
from longshore.testing.faults import Fault, FaultyStore, scripted

app = App("shop", "tcp://127.0.0.1:1")
HOLD_ACTOR = "SELECT FROM longshore.actor FOR UPDATE"
LEFT = "SELECT count(*) FROM longshore.enqueued_send"


def a_call(name: str = "add", key: str = "a", **args: object) -> MessageCall:
    return app.actor_ref(TYPE, key).call(name, **args)


@pytest.fixture
async def actors(postgres_store: PostgresStore) -> ActorScene:
    return await ActorScene.begin(Scene(postgres_store))


@pytest.fixture
async def rival(postgres_url: str, actors: ActorScene) -> AsyncIterator[PostgresStore]:
    """The store of another dispatcher."""
    store = PostgresStore(postgres_url)
    await store.open()
    yield store
    await store.close()


@pytest.fixture
async def own(postgres_url: str, actors: ActorScene) -> AsyncIterator[Connection]:
    """A connection of the application's."""
    connection: Connection = await asyncpg.connect(postgres_url)
    yield connection
    await connection.close()


# with each driver

Way = Callable[[str, list[MessageCall]], Awaitable[None]]


async def by_asyncpg(url: str, calls: list[MessageCall]) -> None:
    connection = await asyncpg.connect(url)
    async with connection.transaction():
        await app.enqueue_sends_async(connection, calls)
    await connection.close()


async def by_psycopg(url: str, calls: list[MessageCall]) -> None:
    with psycopg.connect(url) as connection:
        app.enqueue_sends(connection, calls)


async def by_psycopg2(url: str, calls: list[MessageCall]) -> None:
    engine = sqlalchemy.create_engine(sqlalchemy_url(url, "psycopg2"), poolclass=NullPool)
    with engine.begin() as connection:
        app.enqueue_sends(connection, calls)


async def by_session(url: str, calls: list[MessageCall]) -> None:
    engine = create_async_engine(sqlalchemy_url(url, "asyncpg"), poolclass=NullPool)
    async with AsyncSession(engine) as session:
        await app.enqueue_sends_async(session, calls)
        await session.commit()


@pytest.mark.parametrize("way", [by_asyncpg, by_psycopg, by_psycopg2, by_session])
async def test_committed_messages_arrive_in_their_order(
    way: Way, postgres_url: str, actors: ActorScene
) -> None:
    await actors.sleeping()
    later = app.actor_ref(TYPE, "a").delayed(3600).call("later")
    await way(postgres_url, [a_call("one", n=1), a_call("two"), later, a_call("three")])
    assert await actors.mail_names() == []
    assert await actors.store.deliver_sends() == Delivered(4, (), more=True)
    assert await actors.store.deliver_sends() == Delivered()
    mail = await actors.mail()
    assert [one.name for one in mail] == ["one", "two", "later", "three"]
    assert mail[0].args == a_call("one", n=1).message.args
    assert mail[2].due_at is not None
    assert 3500 < (mail[2].due_at - mail[2].at).total_seconds() <= 3600
    assert names(await actors.turn()) == ["one", "two", "three"]


async def test_a_message_that_was_rolled_back_never_was(
    actors: ActorScene, own: Connection
) -> None:
    await actors.sleeping()
    transaction = own.transaction()
    await transaction.start()
    await app.enqueue_send_async(own, a_call())
    await transaction.rollback()
    assert await actors.store.deliver_sends() == Delivered()


async def test_an_open_transaction_holds_up_no_actor(actors: ActorScene, own: Connection) -> None:
    await actors.sleeping()
    async with own.transaction():
        await app.enqueue_send_async(own, a_call("enqueued"))
        await actors.send(a_message("sent"))
        turn = await actors.turn()
        assert names(turn) == ["sent"]
        await actors.take(turn)
        assert await actors.store.deliver_sends() == Delivered()
    assert (await actors.store.deliver_sends()).count == 1
    assert names(await actors.turn()) == ["enqueued"]


async def test_a_sleeping_actor_is_woken_and_a_paused_one_is_not(
    actors: ActorScene, own: Connection
) -> None:
    await actors.sleeping(an_actor("a"), an_actor("b"))
    await actors.store.pause_actor(TYPE, "b", True)
    await app.enqueue_sends_async(own, [a_call(key="a"), a_call(key="b")])
    await actors.store.deliver_sends()
    assert await actors.status("a") is ActorStatus.READY
    assert await actors.status("b") is ActorStatus.PAUSED


async def test_a_full_mailbox_takes_what_is_committed(actors: ActorScene, own: Connection) -> None:
    await actors.sleeping()
    await actors.send(a_message(), max_mailbox=1)
    await app.enqueue_send_async(own, a_call())
    assert (await actors.store.deliver_sends()).count == 1


# once, and in order


async def test_the_same_call_in_a_repeated_transaction_is_one_message(
    actors: ActorScene, own: Connection
) -> None:
    await actors.sleeping()
    call = a_call()
    await app.enqueue_sends_async(own, [call, call])
    await app.enqueue_send_async(own, call)
    await actors.store.deliver_sends()
    await app.enqueue_send_async(own, call)
    await actors.store.deliver_sends()
    assert await actors.mail_names() == ["add"]
    assert await own.fetchval(LEFT) == 0


async def test_a_delivery_whose_answer_got_lost_delivers_nothing_twice(
    actors: ActorScene, own: Connection
) -> None:
    await actors.sleeping()
    await app.enqueue_sends_async(own, [a_call("one"), a_call("two")])
    faulty = FaultyStore(actors.store, scripted(("deliver_sends", Fault.AFTER)))
    with pytest.raises(StoreUnavailable):
        await faulty.deliver_sends()
    await faulty.deliver_sends()
    assert await actors.mail_names() == ["one", "two"]


async def test_two_dispatchers_at_once_keep_the_order_of_each_sender(
    actors: ActorScene, rival: PostgresStore, own: Connection
) -> None:
    await actors.sleeping()
    sent = 120

    async def send() -> None:
        for n in range(sent):
            await app.enqueue_send_async(own, a_call(f"m{n}"))

    sending = asyncio.create_task(send())
    while not sending.done() or await own.fetchval(LEFT):
        await asyncio.gather(*(one.deliver_sends(7) for one in (actors.store, rival)))
    mail = [one.name for one in await actors.store.mail(TYPE, "a", 1000)]
    assert mail == [f"m{n}" for n in range(sent)]


async def test_who_cannot_deliver_alone_leaves_it_to_the_other(
    actors: ActorScene, rival: PostgresStore, own: Connection, outside: Connection
) -> None:
    """The other would else deliver what comes later, before what the first has taken."""
    await actors.sleeping()
    await app.enqueue_send_async(own, a_call("first"))
    async with outside.transaction():
        await outside.execute(HOLD_ACTOR)
        slow = asyncio.create_task(actors.store.deliver_sends())
        await until_waiting(own, 1)
        await app.enqueue_send_async(own, a_call("second"))
        assert await rival.deliver_sends() == Delivered()
    await slow
    await rival.deliver_sends()
    assert await actors.mail_names() == ["first", "second"]


# nobody there


async def test_a_message_to_nobody_is_kept_and_can_be_delivered_later(
    actors: ActorScene, own: Connection
) -> None:
    await actors.sleeping()
    call = a_call(key="nobody", n=1)
    await app.enqueue_sends_async(own, [call, a_call()])
    delivered = await actors.store.deliver_sends()
    assert delivered.count == 1
    [lost] = await actors.store.undelivered_sends()
    assert [one.id for one in delivered.refused] == [lost.id] == [call.id]
    assert lost.why == f"there is no actor {TYPE} 'nobody'; start it before you send to it"
    assert await actors.store.deliver_sends() == Delivered()
    await actors.start(an_actor("nobody"))
    assert await actors.store.sort_undelivered(call.id, again=True)
    assert not await actors.store.sort_undelivered(call.id, again=True)
    assert (await actors.store.deliver_sends()).count == 1
    assert await actors.mail_names("nobody") == ["add"]
    assert await actors.store.undelivered_sends() == []


async def test_an_undelivered_message_can_be_dropped_and_is_forgotten_in_the_end(
    actors: ActorScene, own: Connection
) -> None:
    calls = [a_call(key=key) for key in "abc"]
    await app.enqueue_sends_async(own, calls)
    await actors.store.deliver_sends()
    assert await actors.store.sort_undelivered(calls[0].id, again=False)
    age = f"refused_at - make_interval(secs => {UNDELIVERED_S})"
    aged = f"UPDATE longshore.enqueued_send SET refused_at = {age} WHERE id = $1"
    await own.execute(aged, calls[1].id)
    await actors.store.tend_actors()
    assert [one.id for one in await actors.store.undelivered_sends()] == [calls[2].id]


# hints, rights, errors


async def test_with_notify_others_hear_at_the_commit(actors: ActorScene, own: Connection) -> None:
    async with aclosing(actors.store.watch()) as hints:  # type: ignore[type-var]
        for _ in Hint:
            await anext(hints)
        async with own.transaction():
            await app.enqueue_send_async(own, a_call(), notify=True)
        async with asyncio.timeout(10):
            assert await anext(hints) is Hint.SENDS


def test_what_cannot_be_sent_is_refused_before_the_database_is_asked() -> None:
    with pytest.raises(InvalidInput, match="give it the name of a handler"):
        a_call("no name")
    with pytest.raises(InvalidInput, match="more than max_value_bytes"):
        a_call(text="x" * 2_000_000)
    with pytest.raises(InvalidArguments, match="by name"):
        app.actor_ref(TYPE, "a").call("add", 1)
    with pytest.raises(InvalidInput, match="is no message to an actor"):
        app.enqueue_send(None, "add")  # type: ignore[arg-type]
