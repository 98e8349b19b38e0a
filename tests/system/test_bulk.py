"""A bulk of the real command line goes on although its dispatcher is killed in the middle."""

from __future__ import annotations

import asyncio
import json
import subprocess

from longshore.model.bulk import BulkRun
from longshore.model.job import JobState
from longshore.run.compose import make_store
from longshore.testing.processes import command
from tests.system.apps import harbour
from tests.system.conftest import Fleet

JOBS = 200


async def _stored(url: str, *, least: int) -> BulkRun:
    """The bulk as the store has it, whoever lives, once it did so many jobs."""
    store = make_store(url)
    await store.open()
    try:
        while (found := await store.bulk(1)) is None or found.done < least:
            pass
        return found
    finally:
        await store.close()


def test_a_bulk_without_workers_goes_on_after_its_dispatcher_was_killed(fleet: Fleet) -> None:
    """Nothing is done twice: each job has one cancel in its history, and the counts are right."""
    first = fleet.dispatcher(bulk_page_jobs=1)
    addresses = [first.facts[name].removeprefix("tcp://") for name in ("backend", "frontend")]
    calls = [harbour.add.options(labels=["many"]).call(1, n) for n in range(JOBS)]
    handles = fleet.client(first).submit_many(calls)
    words = ("jobs", "label:many", "--all", "cancel", "--yes", "--wait", "--json")
    asks = command(*words, "--connect", first.facts["frontend"])
    with subprocess.Popen(asks, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as cli:
        asyncio.run(_stored(fleet.store, least=1))
        first.kill()
        half = asyncio.run(_stored(fleet.store, least=1))
        again = fleet.dispatcher(*addresses)
        said, noted = cli.communicate(timeout=60)
    assert cli.returncode == 0, noted
    assert f"{JOBS} jobs match: {JOBS} ready" in noted
    bulk = json.loads(said)
    assert 0 < half.done < JOBS
    assert (bulk["state"], bulk["matched"], bulk["done"]) == ("done", JOBS, JOBS)
    jobs = [fleet.client(again).handle(handle.id).job() for handle in handles]
    for job in jobs:
        assert [one.state for one in job.history] == [JobState.READY, JobState.CANCELLED]
        assert job.history[-1].by.endswith("bulk 1")
