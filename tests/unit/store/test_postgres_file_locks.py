"""Locks of filesets on PostgreSQL: what one transaction is about to need, no other takes away.

Another program holds what the other transaction would, so that the two meet where they must.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.unit.store.outside import until_waiting
from tests.unit.store.test_postgres_group_locks import transactions as transactions

from longshore.model.fileset import Holder, PinVerdict
from longshore.ports import Batch
from longshore.store.postgres.connections import Connection
from longshore.store.postgres.store import PostgresStore
from longshore.testing.builders import Scene, new_id
from longshore.testing.file_builders import FILESET, FileScene, a_folder, held_by, publishing

HOLD_VERSION = "SELECT FROM longshore.fileset_version WHERE fileset = $1 FOR KEY SHARE"
FIX = "INSERT INTO longshore.job_input VALUES ($1, 1, $2, 0, 1)"
HOLD_MANIFEST = "SELECT FROM longshore.manifest WHERE sha256 = $1 FOR UPDATE"
PIN = "INSERT INTO longshore.manifest_pin (manifest, holder, token) VALUES ($1, $2, 0)"
HOLD_FILESET = "SELECT FROM longshore.fileset WHERE name = $1 FOR UPDATE"


@pytest.fixture
def scene(postgres_store: PostgresStore) -> Scene:
    return Scene(postgres_store)


@pytest.fixture
def files(postgres_store: PostgresStore) -> FileScene:
    return FileScene(postgres_store)


async def test_removal_that_waited_sees_the_input_that_was_fixed_meanwhile(
    scene: Scene, files: FileScene, outside: Connection
) -> None:
    await files.pushed(a_folder("one"))
    attempt = await scene.running()
    async with outside.transaction():
        await outside.execute(HOLD_VERSION, FILESET)
        await outside.execute(FIX, attempt.id, FILESET)
        removing = asyncio.create_task(scene.store.remove_versions(FILESET, [1]))
        await until_waiting(outside, 1)
    assert await removing == []
    assert await scene.store.input_version(held_by(attempt), FILESET, None) is not None


async def test_manifest_that_is_being_pinned_is_passed_over(
    scene: Scene, files: FileScene, outside: Connection
) -> None:
    folder, upload = a_folder("one", "two"), new_id()
    await files.pushed(folder)
    await files.collect()
    await scene.store.remove_versions(FILESET, [1])
    async with outside.transaction():
        await outside.execute(HOLD_MANIFEST, folder.manifest.sha256)
        await outside.execute(PIN, folder.manifest.sha256, upload)
        assert await scene.store.forget_manifests(0.0) == 0, "it waits for nobody"
    assert await files.seal(Holder(upload), folder) is PinVerdict.DONE
    assert await scene.store.publish(upload, folder.version(), "") is not None
    assert await files.collect() == set()
    assert await files.is_whole(folder)


async def test_ends_take_filesets_in_one_order(
    scene: Scene, files: FileScene, outside: Connection, transactions: list[object]
) -> None:
    one, two = await scene.running(), await scene.running()
    folder = a_folder("one")
    for name in ("a", "b"):
        await files.pushed(folder, name)
    for attempt in (one, two):
        await files.sealed(held_by(attempt), folder)
    a, b = folder.version("a"), folder.version("b")

    def pumped(*ends: Any) -> asyncio.Task[Any]:
        return asyncio.create_task(scene.store.pump(scene.dispatcher, Batch(ends)))

    transactions.clear()
    async with outside.transaction():
        await outside.execute(HOLD_FILESET, "b")
        first = pumped(publishing(one, b, a))
        await until_waiting(outside, 1)
        second = pumped(publishing(two, a, b))
        await until_waiting(outside, 2)
    await asyncio.gather(first, second)
    assert len(transactions) == 2, "none of them was repeated"
    assert await files.numbers("a") == await files.numbers("b") == [1, 2, 3]


async def test_end_waits_for_a_seal_that_is_under_way(
    scene: Scene, files: FileScene, outside: Connection
) -> None:
    """A seal holds the job, so no end of the attempt passes it."""
    attempt = await scene.running()
    holder, folder = held_by(attempt), a_folder("one")
    await files.upload(holder, folder, await files.pin(holder, folder))
    async with outside.transaction():
        await outside.execute(
            "SELECT FROM longshore.manifest_pin WHERE holder = $1 FOR UPDATE", attempt.id
        )
        sealing = asyncio.create_task(files.seal(holder, folder))
        await until_waiting(outside, 1)
        losing = asyncio.create_task(
            scene.store.harvest(attempt.worker, attempt.session, "gone", crash=True, crash_limit=3)
        )
        await until_waiting(outside, 2)
    assert await sealing is PinVerdict.DONE
    assert (await losing).requeued == 1
    assert await files.seal(holder, folder) is PinVerdict.STALE
