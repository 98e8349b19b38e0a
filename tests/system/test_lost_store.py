"""A dispatcher whose SQLite file is taken away: it says so and ends, and accepts nothing more."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from longshore.errors import StoreLost
from longshore.testing.processes import run
from tests.system.conftest import Fleet


@pytest.fixture
def file(migrated_sqlite_url: str) -> Path:
    return Path(migrated_sqlite_url.removeprefix("sqlite:///"))


@pytest.fixture
def fleet(migrated_sqlite_url: str, tmp_path: Path) -> Iterator[Fleet]:
    """A fleet on that file."""
    fleet = Fleet(migrated_sqlite_url, tmp_path)
    yield fleet
    fleet.close()


def test_dispatcher_ends_when_its_file_was_deleted(fleet: Fleet, file: Path) -> None:
    dispatcher = fleet.dispatcher()
    file.unlink()
    assert dispatcher.wait() == StoreLost.exit_code
    said = dispatcher.said()
    assert f"the dispatcher ends: the SQLite file {file} was deleted, moved or replaced" in said
    assert "Traceback" not in said


def test_submit_to_a_deleted_file_is_told_so(fleet: Fleet, file: Path) -> None:
    """G1: with a renewal and all looks far away, it is the submit itself that finds out."""
    dispatcher = fleet.dispatcher(
        renew_s=3600,
        dispatcher_lease_s=7200,
        takeover_margin_s=7200,
        lease_s=3600,
        poll_s=3600,
        promote_s=3600,
        sweep_s=3600,
    )
    frontend = dispatcher.facts["frontend"]
    assert run("submit", "work", "--connect", frontend).returncode == 0
    file.unlink()
    refused = run("submit", "work", "--connect", frontend, "--set", "request_timeout_s=2")
    assert refused.returncode == StoreLost.exit_code
    assert "was deleted, moved or replaced" in refused.stderr
    assert dispatcher.wait() == StoreLost.exit_code
