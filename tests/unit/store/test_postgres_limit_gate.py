"""The gate of rules for kinds and queues: what starts at the same moment, and what it costs."""

from __future__ import annotations

import asyncio

import pytest
from tests.unit.store.outside import until_waiting

from longshore.model.limits import LimitRule
from longshore.store.postgres.connections import Connection, Transaction
from longshore.store.postgres.limits_sql import LOCK_GATE
from longshore.store.postgres.start_rules import HAS_RULES
from longshore.store.postgres.store import PostgresStore
from longshore.testing.builders import Scene, a_claim, a_job, done

RULE = "INSERT INTO longshore.limit_rule (pattern, concurrency) VALUES ('kind=work', 1)"


@pytest.fixture
def scene(postgres_store: PostgresStore) -> Scene:
    return Scene(postgres_store)


async def test_a_rule_waits_for_what_is_starting_jobs(scene: Scene, outside: Connection) -> None:
    async with outside.transaction():
        await outside.fetch(f"SELECT {HAS_RULES}")
        setting = asyncio.ensure_future(scene.store.set_limit(LimitRule("kind=work", 1)))
        await until_waiting(outside, 1)
        assert not setting.done()
    await setting


@pytest.mark.parametrize("how", ["submit", "claim"])
async def test_a_statement_that_began_before_the_rule_was_committed_keeps_to_it(
    scene: Scene, outside: Connection, how: str
) -> None:
    """It waits for the gate, and takes its snapshot after."""
    slot = await scene.attend()
    # Its lane and its statements are known from now on: the next ones are single statements.
    await scene.pump(submits=[a_job(), a_job()], slots=[slot, slot])
    await scene.accepted(a_job(), a_job())
    async with outside.transaction():
        await outside.execute(LOCK_GATE)
        await outside.execute(RULE)
        if how == "submit":
            call = scene.pump(submits=[a_job()], slots=[slot])
        else:
            call = scene.pump(claims=[a_claim([slot] * 2)])
        starting = asyncio.ensure_future(call)
        await until_waiting(outside, 1)
    pumped = await starting
    assert (pumped.started, pumped.claimed) == ([], []), "two run, and the rule lets one"


async def test_rules_for_other_keys_do_not_wait(scene: Scene, outside: Connection) -> None:
    async with outside.transaction():
        await outside.fetch(f"SELECT {HAS_RULES}")
        await scene.store.set_limit(LimitRule("tenant=*", 1))


async def test_without_such_rules_nothing_takes_a_statement_more(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    slot = await scene.attend()
    await scene.store.set_limit(LimitRule("tenant=*", 1))
    texts: list[str] = []
    fetch = Transaction.fetch

    async def noted(tx: Transaction, sql: str, *values: object) -> object:
        texts.append(sql)
        return await fetch(tx, sql, *values)

    await scene.accepted(*(a_job() for _ in range(4)))
    monkeypatch.setattr(Transaction, "fetch", noted)
    first = await scene.pump(claims=[a_claim([slot] * 2)])
    assert len(texts) == 1, "a claim is one statement"
    texts.clear()
    await scene.pump([done(one) for one in first.claimed], claims=[a_claim([slot] * 2)])
    assert len(texts) == 2


async def test_a_lane_that_was_forgotten_keeps_to_its_rule(
    scene: Scene, outside: Connection
) -> None:
    """It may be, at the moment when its job comes. Then its jobs name it."""
    slot = await scene.attend()
    await scene.store.set_limit(LimitRule("kind=work", 1))
    await scene.accepted(a_job(), a_job())
    [one] = await scene.claim(slot, most=2)
    await outside.execute("DELETE FROM longshore.lane")
    assert await scene.claim(slot, most=2) == []
    await scene.finish(done(one))
    assert len(await scene.claim(slot, most=2)) == 1
