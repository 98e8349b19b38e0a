"""The database file: each thing that can be wrong with it has an error that says what to do."""

from __future__ import annotations

import os
import pwd
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from longshore.errors import ConfigError, InvalidInput, SchemaMismatch, StoreUnavailable
from longshore.store import migrations
from longshore.store.sqlite.file import DatabaseFile


@pytest.fixture
def file(tmp_path: Path) -> DatabaseFile:
    """A migrated file that nobody has open."""
    file = DatabaseFile(tmp_path / "store.db", busy_s=0.05)
    file.migrate()
    return file


def test_migrate_makes_the_folders_and_the_file(tmp_path: Path) -> None:
    file = DatabaseFile(tmp_path / "some" / "folder" / "store.db", busy_s=1)
    assert file.migrate() == (0, migrations.latest("sqlite"))
    file.open().close()


def test_its_user_alone_can_read_it(tmp_path: Path) -> None:
    """Arguments, results and the secret of callbacks are in it."""
    before = os.umask(0o022)
    try:
        file = DatabaseFile(tmp_path / "store.db", busy_s=1)
        file.migrate()
        with closing(file.open()):
            modes = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir()}
    finally:
        os.umask(before)
    assert set(modes) == {"store.db", "store.db-wal", "store.db-shm"}
    assert set(modes.values()) == {0o600}


def test_name_with_characters_that_urls_use(tmp_path: Path) -> None:
    file = DatabaseFile(tmp_path / "100% über?mode=ro#1.db", busy_s=1)
    file.migrate()
    file.open().close()
    assert file.path.exists()


def test_file_is_durable_and_lets_readers_read(file: DatabaseFile) -> None:
    with closing(file.open()) as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        full = 2
        assert connection.execute("PRAGMA synchronous").fetchone() == (full,)


def test_missing_file_is_not_made_by_opening_it(tmp_path: Path) -> None:
    file = DatabaseFile(tmp_path / "store.db", busy_s=1)
    with pytest.raises(SchemaMismatch, match=r"store\.db .*run `longshore migrate`"):
        file.open()
    assert not file.path.exists()


def test_file_of_a_newer_version(file: DatabaseFile) -> None:
    with closing(sqlite3.connect(file.path)) as connection, connection:
        connection.execute("UPDATE longshore_schema SET version = 999")
    with pytest.raises(SchemaMismatch, match="version 999, made by a newer Longshore"):
        file.open()
    with pytest.raises(SchemaMismatch, match="version 999, made by a newer Longshore"):
        file.migrate()


def test_file_that_is_not_a_database(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("milk, eggs, flour, and whatever else there was to buy" * 100)
    file = DatabaseFile(path, busy_s=1)
    with pytest.raises(ConfigError, match=r"notes\.txt is not a SQLite database"):
        file.open()
    with pytest.raises(ConfigError, match=r"notes\.txt is not a SQLite database"):
        file.migrate()


def test_folder_in_place_of_the_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot open"):
        DatabaseFile(tmp_path, busy_s=1).migrate()


def test_file_in_place_of_the_folder(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("")
    file = DatabaseFile(tmp_path / "taken" / "store.db", busy_s=1)
    with pytest.raises(ConfigError, match="cannot make the folder"):
        file.migrate()


@contextmanager
def unprivileged() -> Iterator[Path]:
    """A folder of a user who, unlike root, is kept out by the rights of files."""
    with tempfile.TemporaryDirectory() as folder:
        user = os.geteuid() or pwd.getpwnam("nobody").pw_uid
        os.chown(folder, user, -1)
        before = os.geteuid()
        os.seteuid(user)
        try:
            yield Path(folder)
        finally:
            os.seteuid(before)
            os.chmod(folder, 0o700)


@pytest.mark.parametrize("name", ["store.db", "."])
@pytest.mark.parametrize("rights", [0o000, 0o444, 0o555])
def test_file_or_folder_that_may_not_be_written(name: str, rights: int) -> None:
    with unprivileged() as folder:
        file = DatabaseFile(folder / "store.db", busy_s=1)
        file.migrate()
        os.chmod(folder / name, rights)
        with pytest.raises(ConfigError, match=r"store\.db cannot be written by this user"):
            file.open()


def test_folder_in_which_no_file_can_be_made() -> None:
    with unprivileged() as folder:
        os.chmod(folder, 0o555)
        with pytest.raises(ConfigError, match=r"cannot open .*store\.db .*may write to it"):
            DatabaseFile(folder / "store.db", busy_s=1).migrate()
        with pytest.raises(ConfigError, match="cannot make the folder"):
            DatabaseFile(folder / "more" / "store.db", busy_s=1).migrate()


def test_write_to_what_is_read_only(file: DatabaseFile) -> None:
    with closing(file.open()) as connection:
        connection.execute("PRAGMA query_only = 1")
        with pytest.raises(ConfigError, match="cannot be written by this user"), file.errors():
            connection.execute("UPDATE sequence SET number = 1")


def test_lock_of_another_process_that_lasts(file: DatabaseFile) -> None:
    with closing(sqlite3.connect(file.path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with closing(file.open()) as connection:
            with (
                pytest.raises(StoreUnavailable, match=r"another process has held .*store\.db"),
                file.errors(),
            ):
                connection.execute("BEGIN IMMEDIATE")
            other.execute("ROLLBACK")
            connection.execute("BEGIN IMMEDIATE")


def test_disk_without_room(file: DatabaseFile) -> None:
    with closing(file.open()) as connection:
        [pages] = connection.execute("PRAGMA page_count").fetchone()
        connection.execute(f"PRAGMA max_page_count = {pages}")
        with pytest.raises(StoreUnavailable, match=r"no room left .*store\.db"), file.errors():
            connection.execute("INSERT INTO queue VALUES (hex(zeroblob(1000000)), 0)")


def check(file: DatabaseFile, connection: sqlite3.Connection) -> None:
    with file.errors():
        connection.execute("SELECT count(*) FROM job").fetchone()


def test_damaged_file(file: DatabaseFile) -> None:
    with file.path.open("r+b") as raw:
        raw.seek(4096)
        raw.write(b"\xff" * 4096 * 10)
    with pytest.raises(ConfigError, match="damaged"), closing(file.open()) as connection:
        check(file, connection)


def test_number_past_what_it_holds(file: DatabaseFile) -> None:
    with (
        closing(file.open()) as connection,
        pytest.raises(InvalidInput, match=r"store\.db holds no number past 64 bits"),
        file.errors(),
    ):
        connection.execute("SELECT ?", (2**63,))


def test_mistake_of_our_own_is_not_blamed_on_the_file(file: DatabaseFile) -> None:
    with (
        closing(file.open()) as connection,
        pytest.raises(sqlite3.OperationalError, match="no such table"),
        file.errors(),
    ):
        connection.execute("SELECT * FROM no_table")


def test_steps_are_numbered_from_one_without_gaps() -> None:
    numbers = [number for number, _ in migrations.steps("sqlite")]
    assert numbers == list(range(1, len(numbers) + 1))


@pytest.mark.parametrize(
    ("found", "advice"),
    [(None, "longshore migrate"), (0, "longshore migrate"), (999, "newer Longshore")],
)
def test_schema_of_another_version_is_refused_with_advice(found: int | None, advice: str) -> None:
    with pytest.raises(SchemaMismatch, match=advice):
        migrations.check(found, "sqlite", "the file x")


def test_schema_of_this_version_is_accepted() -> None:
    migrations.check(migrations.latest("sqlite"), "sqlite", "the file x")
