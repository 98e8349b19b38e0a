"""The states that statements list: the schema's indexes go by the same lists."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from longshore.store.sqlite.runner import InlineRunner
from longshore.store.sqlite.states import LIVE_LIST, OWNED_LIST
from longshore.store.sqlite.store import SqliteStore


@pytest.mark.parametrize(
    ("index", "states"), [("job_owned", OWNED_LIST), ("job_unique", LIVE_LIST)]
)
async def test_the_indexes_hold_the_states_that_statements_look_for(
    tmp_path: Path, index: str, states: str
) -> None:
    store = SqliteStore(tmp_path / "store.db", runner=InlineRunner())
    await store.migrate()
    await store.close()
    with sqlite3.connect(tmp_path / "store.db") as connection:
        query = "SELECT sql FROM sqlite_schema WHERE name = ?"
        [statement] = connection.execute(query, [index]).fetchone()
    connection.close()
    assert statement.endswith(f"state IN {states}")
