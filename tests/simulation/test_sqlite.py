"""The checks of a simulation look into the SQLite file itself."""

from __future__ import annotations

from uuid import UUID

import pytest

from longshore.ports import Batch, BatchResult
from longshore.store.sqlite.store import SqliteStore
from longshore.testing.simulation.promises import Promise
from longshore.testing.simulation.run import simulate_on_sqlite
from longshore.testing.simulation.scenario import make_scenario

SEED = 2


def broken_by(monkeypatch: pytest.MonkeyPatch, statement: str) -> Promise | None:
    """What is broken if this statement follows every batch that finishes something."""
    pump = SqliteStore.pump

    async def pump_and_spoil(self: SqliteStore, dispatcher: UUID, batch: Batch) -> BatchResult:
        pumped = await pump(self, dispatcher, batch)
        if batch.finishes and self._writer is not None:
            self._writer.execute(statement)
        return pumped

    monkeypatch.setattr(SqliteStore, "pump", pump_and_spoil)
    broken = simulate_on_sqlite(make_scenario(SEED)).broken
    return broken.promise if broken is not None else None


def test_a_job_that_vanishes_from_the_file_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """G1."""
    spoil = "DELETE FROM job WHERE number = 1"
    assert broken_by(monkeypatch, spoil) is Promise.DURABLE


def test_a_token_that_goes_back_in_the_file_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """G2."""
    spoil = "UPDATE job SET token = token - 1 WHERE state = 'running'"
    assert broken_by(monkeypatch, spoil) is Promise.ONE_OWNER


def test_nothing_is_noticed_of_a_file_that_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    assert broken_by(monkeypatch, "SELECT 1") is None
