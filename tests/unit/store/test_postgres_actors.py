"""Actors on PostgreSQL: what they lock, in which order, what they read, and in how many steps."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator

import pytest
from msgspec import structs
from tests.unit.store.outside import until_waiting
from tests.unit.store.test_postgres_claim import assert_every_scan_has_a_condition, counted

from longshore.core.turns import turn_kind
from longshore.model.actor import Message, Reply, ReplyTo, Sent
from longshore.model.ends import Succeeded
from longshore.model.job import LogEntry, LogKind
from longshore.model.reports import OutboxMessage
from longshore.ports import Batch
from longshore.store.postgres import actors_sql, single_turns
from longshore.store.postgres.connections import Connection, Transaction
from longshore.store.postgres.mailboxes import Mailboxes
from longshore.store.postgres.planning import STEADY
from longshore.store.postgres.store import PostgresStore
from longshore.testing.actor_builders import (
    TYPE,
    ActorScene,
    a_message,
    an_actor,
    an_ask,
    taken,
)
from longshore.testing.builders import Scene, a_claim, done, lane, new_id, some_jobs

HOLD_ACTOR = "SELECT FROM longshore.actor WHERE id = $1 FOR UPDATE"
MANY = 1000

STATEMENTS = {
    name: text
    for name, text in {**vars(actors_sql), **vars(single_turns)}.items()
    if name.isupper()
    and not name.startswith("_")
    and isinstance(text, str)
    and re.match(r"\s*(SELECT|INSERT|UPDATE|DELETE|WITH)\b", text)
    and "{" not in text
}
# These take the first entries of an index, whichever they are.
FIRST_ENTRIES = {"STOPPED"}


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


# plans


@pytest.mark.parametrize("rows", [None, 0, 1, 30])
async def test_every_plan_is_by_index_whatever_the_statistics_say(
    actors: ActorScene, outside: Connection, rows: int | None
) -> None:
    """Without statistics, and with those of an empty or tiny table, which it later outgrows."""
    if rows is not None:
        await actors.start(*(an_actor(str(key)) for key in range(rows)))
        await actors.send(*(a_message(key=str(key)) for key in range(rows)))
        await outside.execute("VACUUM ANALYZE")
    for name, value in STEADY.items():
        await outside.execute(f"SET {name} = {value}")
    for name, sql in STATEMENTS.items():
        await outside.execute(f"PREPARE p AS {sql}")
        parameters = {*re.findall(r"\$\d+", sql)}
        nulls = f"({', '.join(['NULL'] * len(parameters))})" if parameters else ""
        plan = [row[0] for row in await outside.fetch(f"EXPLAIN EXECUTE p{nulls}")]
        await outside.execute("DEALLOCATE p")
        if name not in FIRST_ENTRIES:
            assert_every_scan_has_a_condition(name, plan)
    assert len(STATEMENTS) > 20


# what is read


async def turn_after_turn(actors: ActorScene, rounds: int) -> list[tuple[int, int]]:
    """An actor gets a message and takes a turn, again and again; what both read each time."""
    read = []
    claims = [a_claim([actors.slot], lane(kind=turn_kind(TYPE, 1)))]
    for _ in range(rounds):
        _, sending = await counted(actors.scene, Batch(sends=[a_message()]))
        drawn, _ = await counted(actors.scene, Batch(claims=claims))
        [attempt] = await actors.store._filled(drawn.pumped.claimed)  # type: ignore[attr-defined]
        _, taking = await counted(actors.scene, Batch([taken(attempt)]))
        read.append((entries(sending), entries(taking)))
    return read


def entries(reads: dict[str, tuple[int, int]]) -> int:
    """How many entries of the indexes of mailboxes and turns were read."""
    return sum(n for name, (n, _) in reads.items() if name.startswith(("message_", "turn_")))


async def test_sends_and_turns_do_not_walk_over_what_an_old_snapshot_keeps(
    actors: ActorScene, outside: Connection
) -> None:
    """An idle transaction keeps the entries of read messages and old turns in the indexes."""
    await actors.sleeping()
    async with outside.transaction(isolation="repeatable_read"):
        await outside.execute("SELECT")
        read = await turn_after_turn(actors, 40)
        kept = await outside.fetchval("SELECT pg_relation_size('longshore.message_pkey')")
    assert kept > 0
    assert all(sending <= 2 and taking <= 6 for sending, taking in read), read


@pytest.mark.parametrize("receivers", [1, MANY])
async def test_thousand_messages_take_few_statements(
    actors: ActorScene, postgres_store: PostgresStore, receivers: int
) -> None:
    """To one actor or to a thousand, whose next turns are made at once."""
    await actors.start(*(an_actor(str(key)) for key in range(receivers)))
    messages = [a_message(key=str(at % receivers)) for at in range(MANY)]
    statements = 0

    async def work(tx: Transaction) -> None:
        nonlocal statements
        fetch = tx.fetch

        async def counting(sql: str, *values: object) -> object:
            nonlocal statements
            statements += 1
            return await fetch(sql, *values)

        tx.fetch = counting  # type: ignore[assignment]
        drawn = await postgres_store._pump.run(tx, new_id(), Batch(sends=messages))
        assert drawn.pumped.sent == [Sent(message.id) for message in messages]

    await postgres_store._pumping.run(work)
    assert statements == 4
    assert (await actors.actor("0")).unread == MANY // receivers


async def test_jobs_without_actors_take_no_statement_more(
    actors: ActorScene, postgres_store: PostgresStore
) -> None:
    jobs = some_jobs(3)
    await actors.scene.accepted(*jobs)
    attempts = await actors.scene.claim(actors.slot, lane(), most=3)
    _, reads = await counted(actors.scene, Batch([done(one) for one in attempts]))
    assert set(reads) == {"job_id"}


# locks


async def test_actors_are_locked_in_the_order_of_their_ids(
    actors: ActorScene, postgres_store: PostgresStore, outside: Connection, postgres_url: str
) -> None:
    """Whatever order they are named in: who waits for the first holds none of the others."""
    first, second = sorted(an_actor(key).id for key in "ba")
    await actors.start(an_actor("z", id=first), an_actor("y", id=second))

    async def hold(tx: Transaction) -> None:
        await Mailboxes(tx).hold([(TYPE, "y"), (TYPE, "z")], [second])

    async with outside.transaction():
        await outside.fetch(HOLD_ACTOR, first)
        call = asyncio.ensure_future(postgres_store._pumping.run(hold))
        await until_waiting(outside, 1)
        await outside.fetch(f"{HOLD_ACTOR} NOWAIT", second)
    await call


async def test_message_that_waits_for_a_turn_is_numbered_after_its_commit(
    actors: ActorScene, rival: ActorScene, outside: Connection
) -> None:
    """The send began before the turn's commit, and saw nothing of it: it reads after the lock."""
    new = an_actor()
    await actors.sleeping(new)
    await actors.send(a_message("one"), a_message("two"))
    attempt = await actors.turn()
    async with outside.transaction():
        await outside.fetch(HOLD_ACTOR, new.id)
        take = asyncio.ensure_future(actors.take(attempt))
        await until_waiting(outside, 1)
        send = asyncio.ensure_future(rival.send(a_message("three")))
        await until_waiting(outside, 2)
    await asyncio.gather(take, send)
    [mail] = await actors.mail()
    assert (mail.number, mail.name) == (3, "three")
    assert await actors.status() == "ready"


async def test_ends_of_a_turn_and_of_a_job_do_not_hold_each_other_up(
    actors: ActorScene, rival: ActorScene, outside: Connection
) -> None:
    """One batch ends a turn and a job; a loss of their worker waits for the first of the two."""
    await actors.sleeping()
    await actors.send(a_message())
    turn = await actors.turn()
    await actors.scene.accepted(*some_jobs(1))
    [attempt] = await actors.scene.claim(actors.slot, lane())
    first, second = sorted([turn.id, attempt.id])
    async with outside.transaction():
        await outside.fetch("SELECT FROM longshore.job WHERE id = $1 FOR UPDATE", first)
        call = asyncio.ensure_future(actors.pump(taken(turn), done(attempt)))
        await until_waiting(outside, 1)
        await outside.fetch("SELECT FROM longshore.job WHERE id = $1 FOR UPDATE NOWAIT", second)
    assert [one.verdict for one in (await call).finished] == ["recorded", "recorded"]


async def test_stop_that_finds_a_new_asker_begins_anew(
    actors: ActorScene, rival: ActorScene, outside: Connection
) -> None:
    """An actor asks one that is being stopped, while the stop waits: it gets its answer."""
    asked = an_actor("asked")
    await actors.sleeping(asked, an_actor("asker"))
    await actors.send(a_message(key="asker"))
    turn = await actors.turn()
    ask = a_message("what", "asked", reply_to=ReplyTo(TYPE, "asker", "told"))
    async with outside.transaction():
        await outside.fetch(HOLD_ACTOR, asked.id)
        take = asyncio.ensure_future(actors.take(turn, outbox=[ask]))
        await until_waiting(outside, 1)
        stop = asyncio.ensure_future(rival.store.stop_actor(TYPE, "asked"))
        await until_waiting(outside, 2)
    await take
    assert await stop == "done"
    assert await actors.mail_names("asker") == ["told"]


async def test_log_of_a_turn_goes_with_its_job(actors: ActorScene, outside: Connection) -> None:
    await actors.start(an_actor())
    attempt = await actors.turn()
    await actors.store.log([LogEntry(attempt.id, attempt.token, 1, LogKind.TEXT, b"said")])
    await actors.take(attempt)
    for table in ("log", "job", "job_number"):
        assert await outside.fetchval(f"SELECT count(*) FROM longshore.{table}") == 0


async def test_message_of_a_job_to_a_name_that_no_database_takes_is_noted(
    actors: ActorScene,
) -> None:
    await actors.scene.accepted(*some_jobs(1))
    [attempt] = await actors.scene.claim(actors.slot, lane())
    lost = OutboxMessage(Message(new_id(), TYPE, "a\0b", "add"))
    await actors.pump(Succeeded(attempt.id, attempt.token, outbox=(lost,)))
    history = (await actors.scene.job(attempt.id)).history
    assert "outbox item 0 refused" in history[-1].info


async def test_ask_is_answered_once(actors: ActorScene) -> None:
    """The first reply counts, also if a stop comes at the same time as a turn's reply."""
    ask = an_ask()
    await actors.sleeping()
    await actors.send(ask)
    await actors.store.stop_actor(TYPE, "a")
    [reply] = await actors.store.replies([ask.id])
    assert isinstance(reply, Reply)
    assert reply.error is not None


async def test_turn_with_numbers_past_every_column_holds_nobody_up(actors: ActorScene) -> None:
    """No worker can make a batch fail, whatever it says it has read."""
    await actors.sleeping(an_actor("a"), an_actor("b"))
    await actors.send(a_message(key="a"), a_message(key="b"))
    odd, sound = await actors.claim()
    await actors.send(a_message("later", key="a"))
    end = taken(odd)
    wrong = structs.replace(end.turn, version=2**64 - 1, read=2**64 - 1, read_delayed=(2**63,))
    beyond = structs.replace(end, number=2**64)
    pumped = await actors.pump(beyond, structs.replace(end, turn=wrong), taken(sound))
    assert [one.verdict for one in pumped.finished] == ["stale", "recorded", "recorded"]
    assert (await actors.actor("a")).turn == (await actors.actor("b")).turn == 2


async def test_a_listed_value_is_written_only_when_it_changed(
    actors: ActorScene, outside: Connection
) -> None:
    await actors.sleeping(an_actor(listed={"plan": "1", "seats": "2"}))
    version = (
        "SELECT array_agg(ctid::text || xmax::text ORDER BY field) FROM longshore.listed_field"
    )
    before = await outside.fetchval(version)
    for seats in ("2", "3"):
        await actors.send(a_message())
        listed = {"plan": "1", "seats": seats}
        await actors.pump(taken(await actors.turn(), listed=listed))
        after = await outside.fetchval(version)
        assert after[0] == before[0]
        assert (after[1] == before[1]) is (seats == "2")
