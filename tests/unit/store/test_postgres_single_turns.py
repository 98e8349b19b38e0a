"""A single message, and a single turn, on PostgreSQL: few ways to the server, and nothing lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from tests.unit.store.outside import until_waiting

from longshore.core.turns import turn_kind
from longshore.model.actor import Reply, Sent, Timer
from longshore.model.attempt import Attempt
from longshore.model.ids import derive_id
from longshore.model.worker import FreeWorker, OpenSlots
from longshore.ports import Batch, BatchResult
from longshore.store.postgres import single_turns
from longshore.store.postgres.columns import SoundItems, columns
from longshore.store.postgres.connections import Connection, _Line
from longshore.store.postgres.sql import ENQUEUE
from longshore.store.postgres.states import PAUSED
from longshore.store.postgres.store import PostgresStore
from longshore.testing.actor_builders import (
    TYPE,
    ActorScene,
    a_message,
    an_actor,
    an_ask,
    answered,
    given,
    names,
    taken,
)
from longshore.testing.builders import Scene, a_job, lane

HOLD_ACTOR = "SELECT FROM longshore.actor WHERE id = $1 FOR UPDATE"
MINUTE_S = 60_000_000


@pytest.fixture
async def actors(postgres_store: PostgresStore) -> ActorScene:
    return await ActorScene.begin(Scene(postgres_store))


@pytest.fixture
async def rival(postgres_url: str, actors: ActorScene) -> AsyncIterator[ActorScene]:
    """Another dispatcher, with its own connections to the same database."""
    store = PostgresStore(postgres_url)
    await store.open()
    yield await ActorScene.begin(Scene(store))
    await store.close()


@contextmanager
def ways(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The messages that go to the server meanwhile, but for the hints, which nobody waits for."""
    sent: list[str] = []
    fetch, fetchmany, execute = _Line.fetch, _Line.fetchmany, _Line.execute

    async def counted_fetch(self: _Line, query: str, *args: object) -> object:
        sent.append(query)
        return await fetch(self, query, *args)

    async def counted_fetchmany(self: _Line, query: str, args: list[list[object]]) -> object:
        sent.append(query)
        return await fetchmany(self, query, args)

    async def counted_execute(self: _Line, query: str, *args: object) -> object:
        if "pg_notify" not in query:
            sent.append(query)
        return await execute(self, query, *args)

    with monkeypatch.context() as patch:
        patch.setattr(_Line, "fetch", counted_fetch)
        patch.setattr(_Line, "fetchmany", counted_fetchmany)
        patch.setattr(_Line, "execute", counted_execute)
        yield sent


async def pump(actors: ActorScene, batch: Batch) -> BatchResult:
    return await actors.store.pump(actors.scene.dispatcher, batch)


def a_slot(actors: ActorScene) -> list[OpenSlots]:
    return [OpenSlots({lane(kind=turn_kind(TYPE, 1))}, [FreeWorker(actors.slot, 5, 0)])]


async def send(actors: ActorScene, *names: str) -> BatchResult:
    """Asks for a turn each, which starts if it can."""
    return await pump(
        actors, Batch(sends=[an_ask(one) for one in names], for_dependents=a_slot(actors))
    )


async def take(actors: ActorScene, turn: Attempt) -> BatchResult:
    end = taken(turn, outbox=answered(turn))
    return await pump(actors, Batch([end], for_dependents=a_slot(actors)))


async def known(actors: ActorScene) -> None:
    """A sleeping actor that has taken two turns: the dispatcher knows it."""
    await actors.sleeping()
    [turn] = (await send(actors, "first")).turns
    await take(actors, turn)


async def until_it_waits(outside: Connection, call: asyncio.Future[Any], number: int) -> None:
    """Returns once so many transactions wait for a lock, that of the call too."""
    waiting = asyncio.ensure_future(until_waiting(outside, number))
    await asyncio.wait({call, waiting}, return_when=asyncio.FIRST_COMPLETED)
    if call.done():
        waiting.cancel()
        raise AssertionError(f"it did not wait for the lock: {call}")


async def test_an_ask_takes_one_way_to_the_server_and_its_reply_another(
    actors: ActorScene, monkeypatch: pytest.MonkeyPatch
) -> None:
    await known(actors)
    with ways(monkeypatch) as sent:
        [turn] = (await send(actors, "second")).turns
    assert len(sent) == 1
    assert (names(turn), given(turn).turn, given(turn).state) == (["second"], 3, b"\x01")
    with ways(monkeypatch) as sent:
        result = await take(actors, turn)
    assert len(sent) == 1
    [ask] = given(turn).events
    assert ask.id is not None
    assert result.replies == [Reply(ask.id, b"\x2a")]
    assert await actors.store.replies([ask.id]) == [Reply(ask.id, b"\x2a")]
    assert await actors.mail() == []


async def test_an_actor_that_has_more_to_do_is_not_tried_on_one_way_for_a_while(
    actors: ActorScene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(single_turns, "BUSY_BATCHES", 2)
    await known(actors)
    [turn] = (await send(actors, "one")).turns
    with ways(monkeypatch) as sent:
        await send(actors, "two")
    assert sent[0] == single_turns.SEND_ONE
    with ways(monkeypatch) as sent:
        [after] = (await take(actors, turn)).turns
    assert names(after) == ["two"]
    assert sent[0].startswith("BEGIN")
    await take(actors, after)
    with ways(monkeypatch) as sent:
        [last] = (await send(actors, "three")).turns
    assert (len(sent), names(last)) == (1, ["three"])


async def test_the_end_of_a_turn_leaves_a_message_that_is_delayed_its_time(
    actors: ActorScene, outside: Connection
) -> None:
    await known(actors)
    [turn] = (await send(actors, "one")).turns
    await actors.send(a_message("later", delay_s=60.0))
    actors.store._pump._actors._busy.clear()  # type: ignore[attr-defined]
    assert (await take(actors, turn)).turns == []
    [row] = await outside.fetch("SELECT run_at > now() AS waits FROM longshore.job")
    assert row["waits"]
    assert await actors.mail_names() == ["later"]


async def test_a_message_whose_turn_cannot_be_stored_is_taken_back_and_looked_at_again(
    actors: ActorScene, outside: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An application stores a job with the id of the turn just then."""
    await known(actors)
    next_turn = derive_id((await actors.actor()).id, 3)
    [(job, body)] = SoundItems([a_job(id=next_turn)]).items
    await outside.execute("BEGIN")
    await outside.fetch(ENQUEUE, *columns([(job, body)]))
    with ways(monkeypatch) as sent:
        sending = asyncio.ensure_future(send(actors, "add"))
        await until_waiting(outside, 1)
        sent.clear()
        await outside.execute("COMMIT")
        assert (await sending).turns == []
    assert any(one.startswith("BEGIN") for one in sent)
    assert await actors.mail_names() == ["add"]
    assert await outside.fetchval("SELECT count(*) FROM longshore.receipt WHERE is_ask") == 2


async def test_what_a_turn_gets_is_what_the_store_reads_back(actors: ActorScene) -> None:
    await known(actors)
    [turn] = (await send(actors, "second")).turns
    [read] = await actors.store.placed([actors.slot])
    one, other = given(turn), given(read)
    assert (one.actor, one.turn, one.state, one.events) == (
        other.actor,
        other.turn,
        other.state,
        other.events,
    )
    assert (one.callback_key, one.last_worker) == (other.callback_key, other.last_worker)
    assert (turn.token, turn.attempt, turn.options) == (read.token, read.attempt, read.options)


async def test_what_the_dispatcher_knows_may_be_old(actors: ActorScene, rival: ActorScene) -> None:
    """Another one has sent a message and taken a turn meanwhile, or has a turn under way."""
    await known(actors)
    [turn] = (await send(rival, "by another")).turns
    assert (await send(actors, "during a turn")).turns == []
    [after] = (await take(rival, turn)).turns
    assert names(after) == ["during a turn"]
    await take(rival, after)
    [last] = (await send(actors, "last")).turns
    assert (names(last), given(last).turn) == (["last"], 5)


async def test_an_actor_that_was_started_anew_under_its_key_gets_the_message(
    actors: ActorScene, rival: ActorScene
) -> None:
    await known(actors)
    await rival.store.stop_actor(TYPE, "a")
    new = an_actor()
    await rival.sleeping(new)
    [turn] = (await send(actors, "to the new one")).turns
    assert (given(turn).actor, given(turn).turn) == (new.id, 2)


async def test_a_message_that_waited_for_a_turn_is_numbered_after_its_commit(
    actors: ActorScene, rival: ActorScene, outside: Connection
) -> None:
    """The send began before that turn's commit. Had it looked then, its number would be read."""
    await known(actors)
    [turn] = (await send(rival, "one", "two")).turns
    actor = given(turn).actor
    async with outside.transaction():
        await outside.fetch(HOLD_ACTOR, actor)
        taking = asyncio.ensure_future(take(rival, turn))
        await until_waiting(outside, 1)
        sending = asyncio.ensure_future(send(actors, "three"))
        await until_it_waits(outside, sending, 2)
    await taking
    [after] = (await sending).turns
    assert [(one.number, one.name) for one in given(after).events] == [(4, "three")]


async def test_a_message_that_comes_with_the_end_of_a_turn_wakes_the_next(
    actors: ActorScene, rival: ActorScene, outside: Connection
) -> None:
    """The end began before the send's commit. Had it looked then, nobody would read the mail."""
    await known(actors)
    [turn] = (await send(actors, "one")).turns
    async with outside.transaction():
        await outside.fetch(HOLD_ACTOR, given(turn).actor)
        sending = asyncio.ensure_future(rival.send(a_message("two")))
        await until_waiting(outside, 1)
        taking = asyncio.ensure_future(take(actors, turn))
        await until_it_waits(outside, taking, 2)
    await sending
    [after] = (await taking).turns
    assert names(after) == ["two"]


async def test_a_repeated_message_is_in_once_and_a_repeated_end_is_stale(
    actors: ActorScene,
) -> None:
    await known(actors)
    batch = Batch(sends=[an_ask("add")], for_dependents=a_slot(actors))
    [turn] = (await pump(actors, batch)).turns
    again = await pump(actors, batch)
    assert (again.sent, again.turns) == ([Sent(batch.sends[0].id)], [])
    await take(actors, turn)
    [late] = (await take(actors, turn)).finished
    assert late.verdict == "stale"
    again = await pump(actors, batch)
    assert (again.sent, again.turns, await actors.mail()) == ([Sent(batch.sends[0].id)], [], [])


async def test_timers_that_a_turn_leaves_wake_the_next(actors: ActorScene) -> None:
    await known(actors)
    [turn] = (await send(actors, "add")).turns
    later = Timer("later", given(turn).now + MINUTE_S)
    await pump(actors, Batch([taken(turn, timers=[later])], for_dependents=a_slot(actors)))
    assert await actors.status() == "sleeping"
    [after] = (await send(actors, "sooner")).turns or await actors.claim()
    assert (names(after), given(after).timers) == (["sooner"], (later,))


async def test_a_paused_actor_takes_no_turn_though_it_is_known(
    actors: ActorScene, rival: ActorScene
) -> None:
    await known(actors)
    await rival.store.pause_actor(TYPE, "a", True)
    result = await send(actors, "add")
    assert (result.turns, len(result.sent), len(await actors.mail())) == ([], 1, 1)


async def test_a_pause_that_is_being_committed_is_waited_for(
    actors: ActorScene, outside: Connection
) -> None:
    await known(actors)
    async with outside.transaction():
        await outside.execute(f"UPDATE longshore.actor SET status = {PAUSED}")
        sending = asyncio.ensure_future(send(actors, "add"))
        await until_it_waits(outside, sending, 1)
    assert ((await sending).turns, await actors.status()) == ([], "paused")


async def test_only_so_many_actors_are_known(
    actors: ActorScene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(single_turns, "MOST_KNOWN", 2)
    await actors.sleeping(*(an_actor(key) for key in "abc"))
    for key in "abc":
        await actors.send(a_message(key=key))
    pump = actors.store._pump  # type: ignore[attr-defined]
    assert len(pump._actors._by_name) == len(pump._actors._names) == 2
