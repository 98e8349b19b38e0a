"""The states that statements list: the schema's indexes go by the same lists."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from longshore.model.job import JobState
from longshore.store.sqlite.runner import InlineRunner
from longshore.store.sqlite.states import INDEXES, LIVE_LIST, OWNED_LIST
from longshore.store.sqlite.store import SqliteStore


async def migrated(path: Path) -> sqlite3.Connection:
    store = SqliteStore(path, runner=InlineRunner())
    await store.migrate()
    await store.close()
    return sqlite3.connect(path)


@pytest.mark.parametrize(
    ("index", "states"), [("job_owned", OWNED_LIST), ("job_unique", LIVE_LIST)]
)
async def test_the_indexes_hold_the_states_that_statements_look_for(
    tmp_path: Path, index: str, states: str
) -> None:
    connection = await migrated(tmp_path / "store.db")
    query = "SELECT sql FROM sqlite_schema WHERE name = ?"
    [statement] = connection.execute(query, [index]).fetchone()
    connection.close()
    assert statement.endswith(f"state IN {states}")


async def test_the_index_of_a_state_lists_its_jobs(tmp_path: Path) -> None:
    assert INDEXES.keys() == set(JobState) - {JobState.SUCCEEDED}
    connection = await migrated(tmp_path / "store.db")
    for source in INDEXES.values():
        # SQLite refuses the statement if the index that it names has not all these jobs.
        connection.execute(f"SELECT number FROM job {source}")
    connection.close()
