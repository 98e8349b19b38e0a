"""Jobs with fair keys of an application's own transaction get their turn after its commit."""

from __future__ import annotations

import asyncpg

from longshore.store.postgres.enqueue import enqueue
from longshore.testing.backends import PostgresBackend
from longshore.testing.builders import Scene, a_job


async def test_an_enqueued_job_gets_its_turn_when_it_is_there(
    postgres_backend: PostgresBackend,
) -> None:
    await postgres_backend.clear()
    job = a_job(fair="tenant=late")
    connection = await asyncpg.connect(postgres_backend.url)
    try:
        asking = enqueue([job])
        ask = next(asking)
        rows = await connection.fetch(ask.sql, *ask.values)
    finally:
        await connection.close()
    assert [row["id"] for row in rows] == [job.id]
    async with postgres_backend.opened() as store:
        scene = Scene(store)
        slot = await scene.attend()
        assert sum((await store.open_limits()).ready.values()) == 1
        await scene.accepted(*(a_job(fair="tenant=a") for _ in range(5)))
        assert job.id in [one.id for one in await scene.claim(slot, most=2)]
