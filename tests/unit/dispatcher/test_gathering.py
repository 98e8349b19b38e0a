"""The commit loop while jobs of groups start in layers: which ends wait for which."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from longshore.core import gathering
from longshore.core.scheduler import Plan
from longshore.dispatcher.commits import Commits
from longshore.model.attempt import Attempt
from longshore.model.ends import Succeeded
from longshore.model.job import Options
from longshore.ports import Batch, BatchResult
from longshore.testing.builders import a_job, new_id

from .test_commits import HeldStore, pumping, settle

NOTHING = Plan([], ())
WORKERS = (new_id(), new_id())


class LayeredStore(HeldStore):
    """Starts a layer of two jobs once both of the layer before have ended; 0 is the first job."""

    def __init__(self) -> None:
        super().__init__(is_serial=True)
        self._ended: set[int] = set()

    async def pump(self, dispatcher: object, batch: Batch) -> BatchResult:
        result = await super().pump(dispatcher, batch)
        before = len(self._ended)
        self._ended.update(one.token for one in batch.finishes)
        if len(self._ended) % 2 == 0 or len(self._ended) == before:
            return result
        layer = (len(self._ended), len(self._ended) + 1)
        return BatchResult(
            result.finished,
            result.submitted,
            dependents=[
                Attempt(new_id(), 1, token, "work", b"", Options(), worker, 1, 1, 0, 0)
                for token, worker in zip(layer, WORKERS, strict=True)
            ],
        )


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ends wait for each other as long as it takes."""
    monkeypatch.setattr(gathering, "MOST_S", 3600.0)
    monkeypatch.setattr(gathering, "_SHARE", 1e12)


def end(commits: Commits, token: int) -> None:
    commits.finish([Succeeded(new_id(), token)], lambda _ends, _finished: None)


@asynccontextmanager
async def third_layer() -> AsyncIterator[tuple[LayeredStore, Commits]]:
    """The jobs 3 and 4 run. The ends of 1 and 2 came in two transactions."""
    store = LayeredStore()
    async with pumping(store, plan=lambda _submits: NOTHING) as commits:
        end(commits, 0)
        await store.until(1)
        store.commit(0)
        await settle()
        end(commits, 1)
        await store.until(2)
        store.commit(1)
        await settle()
        end(commits, 2)
        await store.until(3)
        store.commit(2)
        await settle()
        yield store, commits


@pytest.mark.usefixtures("patient")
async def test_ends_that_start_nothing_alone_wait_for_each_other() -> None:
    async with third_layer() as (store, commits):
        end(commits, 3)
        await settle()
        assert len(store.begun) == 3
        end(commits, 4)
        assert len((await store.until(4)).finishes) == 2


@pytest.mark.usefixtures("patient")
async def test_nothing_else_waits_with_them() -> None:
    async with third_layer() as (store, commits):
        end(commits, 3)
        await settle()
        commits.submit([a_job()])
        batch = await store.until(4)
        assert (len(batch.finishes), len(batch.submits)) == (1, 1)


async def test_an_end_goes_alone_if_the_others_do_not_come_soon() -> None:
    async with third_layer() as (store, commits):
        end(commits, 3)
        assert len((await store.until(4)).finishes) == 1
