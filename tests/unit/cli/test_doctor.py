"""`longshore doctor`: what it says of a store, and its exit codes."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from longshore.cli.main import execute
from longshore.store.sqlite.store import SqliteStore
from longshore.testing.backends import SqliteBackend
from longshore.testing.builders import GroupScene, Scene, a_group

Captured = pytest.CaptureFixture[str]


async def a_store(path: Path, unmet: int | None) -> GroupScene:
    """A store with a group, of which a job counts wrongly that it waits for so many."""
    store = SqliteStore(path)
    await store.migrate()
    await store.open()
    group = await Scene(store).submit_group(a_group({"a": "", "b": "a"}))
    if unmet is not None:
        await SqliteBackend(path, path).force_unmet(group.jobs["b"], unmet)
    await store.close()
    return group


def test_a_store_that_is_well_is_said_to_be(tmp_path: Path, capsys: Captured) -> None:
    asyncio.run(a_store(tmp_path / "jobs.db", None))
    url = f"sqlite:///{tmp_path}/jobs.db"
    assert execute(["doctor", "--store", url]) == 0
    assert capsys.readouterr().out == "all is well\n"
    assert execute(["doctor", "--store", url, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == []


def test_what_is_wrong_is_said_and_repaired(tmp_path: Path, capsys: Captured) -> None:
    group = asyncio.run(a_store(tmp_path / "jobs.db", 7))
    url = f"sqlite:///{tmp_path}/jobs.db"
    words = "job 'b' waits for 7 jobs, but 1 of the 1 it depends on have not ended"
    assert execute(["doctor", "--store", url]) == 1
    assert capsys.readouterr().out == f"group {group.id}: {words}\n"
    assert execute(["doctor", "--store", url, "--repair"]) == 1
    assert capsys.readouterr().out == f"group {group.id}: {words} (repaired)\n"
    assert execute(["doctor", "--store", url]) == 0


def test_findings_in_json_name_the_job(tmp_path: Path, capsys: Captured) -> None:
    group = asyncio.run(a_store(tmp_path / "jobs.db", 7))
    assert execute(["doctor", "--store", f"sqlite:///{tmp_path}/jobs.db", "--json"]) == 1
    [found] = json.loads(capsys.readouterr().out)
    assert (found["trouble"], found["job"]) == ("count", str(group.jobs["b"]))
