"""The database file: how to open it, what its errors mean, how its schema goes forward."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Final

from longshore.errors import (
    ConfigError,
    InvalidInput,
    LongshoreError,
    SchemaMismatch,
    StoreLost,
    StoreUnavailable,
)
from longshore.store import migrations

DIALECT: Final = "sqlite"
_WAL_BYTES: Final = 64 * 1024 * 1024
_CACHE_KIB: Final = 64 * 1024

_VERSION: Final = "SELECT max(version) FROM longshore_schema"
_HAS_VERSION: Final = "SELECT 1 FROM sqlite_master WHERE name = 'longshore_schema'"


class DatabaseFile:
    """One SQLite file. It waits `busy_s` seconds for a lock that another process holds."""

    def __init__(self, path: Path, busy_s: float) -> None:
        self.path = path
        self._busy_s = busy_s
        self._wal = Path(f"{path}-wal")
        self._opened: _Identity | None = None
        self._errors = _Translated(self._explained)
        self._used = _Translated(self._explained_in_use)

    def __str__(self) -> str:
        return f"the SQLite file {self.path}"

    def open(self) -> sqlite3.Connection:
        """A connection to a file of this version's schema; raises `SchemaMismatch` otherwise."""
        if not self._exists():
            migrations.check(None, DIALECT, str(self))
        self._refuse_unwritable()
        with self.errors():
            before = _identity(self.path)
            connection = self._connect("rw")
            try:
                migrations.check(self._version(connection), DIALECT, str(self))
                self._remember(before)
            except BaseException:
                connection.close()
                raise
            return connection

    def migrate(self) -> tuple[int, int]:
        """Makes the file if need be and brings its schema forward; the version before and after."""
        self._make_folder()
        self._make_private()
        with self.errors():
            connection = self._connect("rwc")
            try:
                self._use_wal(connection)
                before = after = self._step(connection)
                while after < migrations.latest(DIALECT):
                    after = self._step(connection)
            finally:
                connection.close()
        return before, after

    def check_in_place(self) -> None:
        """Raises `StoreLost` if another file, or none, is where the opened one was.

        A write to a deleted file is gone with the last process that has the file open.
        """
        if (_identity(self.path), _identity(self._wal)) != self._opened:
            raise StoreLost(
                f"{self} was deleted, moved or replaced, or its WAL was, while this process had it "
                "open; nothing was accepted since. Put it back, or restore it from a backup, then "
                "start the dispatcher again"
            )

    def used(self) -> AbstractContextManager[None]:
        """Translates as `errors` does, for a file that was sound when it was opened."""
        return self._used

    def errors(self) -> AbstractContextManager[None]:
        """Turns SQLite's errors into ones that name the file and say what to do."""
        return self._errors

    def _remember(self, before: _Inode | None) -> None:
        """Notes which files were opened. A WAL is there since the first read."""
        self._wal = Path(f"{self.path.resolve()}-wal")
        if self._opened is None:
            self._opened = (before, _identity(self._wal))
        self.check_in_place()

    def _connect(self, mode: str) -> sqlite3.Connection:
        # Each connection belongs to one thread; only closing may happen on another.
        connection = sqlite3.connect(
            f"{self.path.absolute().as_uri()}?mode={mode}",
            uri=True,
            timeout=self._busy_s,
            isolation_level=None,
            check_same_thread=False,
            cached_statements=256,
        )
        try:
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute("PRAGMA temp_store = MEMORY")
            connection.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
            connection.execute(f"PRAGMA journal_size_limit = {_WAL_BYTES}")
        except sqlite3.Error:
            connection.close()
            raise
        return connection

    def _use_wal(self, connection: sqlite3.Connection) -> None:
        """Switches to a WAL: readers and writers never wait for each other. The file stays so."""
        deadline = time.monotonic() + self._busy_s
        while (mode := _try_wal(connection, time.monotonic() > deadline)) is None:
            time.sleep(0.01)
        if mode != "wal":
            raise ConfigError(
                f"{self} cannot be shared safely on its file system (no WAL); keep it on a local "
                "disk"
            )

    def _step(self, connection: sqlite3.Connection) -> int:
        """Does the next step, if there is one, in one transaction; answers the version before.

        Another process may have taken the step meanwhile: the version is read under the lock.
        """
        connection.execute("BEGIN IMMEDIATE")
        try:
            found = self._version(connection) or 0
            migrations.refuse_newer(found, DIALECT, str(self))
            step = next((step for step in migrations.steps(DIALECT) if step[0] > found), None)
            if step is not None:
                self._apply(connection, *step)
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
        return found

    def _apply(self, connection: sqlite3.Connection, version: int, script: str) -> None:
        try:
            for statement in _statements(script):
                connection.execute(statement)
        except sqlite3.OperationalError as error:
            if _code(error) != sqlite3.SQLITE_ERROR:
                raise
            raise SchemaMismatch(
                f"{self} cannot take schema version {version}: {error}; it may be another "
                "program's file: give another path, or remove what is in the way"
            ) from error
        connection.execute("DELETE FROM longshore_schema")
        connection.execute("INSERT INTO longshore_schema (version) VALUES (?)", (version,))

    @staticmethod
    def _version(connection: sqlite3.Connection) -> int | None:
        if connection.execute(_HAS_VERSION).fetchone() is None:
            return None
        version: int | None = connection.execute(_VERSION).fetchone()[0]
        return version

    def _make_folder(self) -> None:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(
                f"cannot make the folder {self.path.parent} for the store: {error.strerror}; "
                "give another path or make it yourself"
            ) from error

    def _make_private(self) -> None:
        """Makes a file that its user alone can read; its WAL gets the same rights from SQLite.

        Whatever keeps it from being made, SQLite finds and says as well.
        """
        with suppress(OSError):
            os.close(os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))

    def _exists(self) -> bool:
        try:
            return self.path.exists()
        except PermissionError:
            raise ConfigError(self._not_writable()) from None

    def _refuse_unwritable(self) -> None:
        for path in (self.path, self.path.parent):
            if not os.access(path, os.W_OK, effective_ids=True):
                raise ConfigError(self._not_writable())

    def _not_writable(self) -> str:
        return (
            f"{self} cannot be written by this user; give the user write access to it and to its "
            "folder"
        )

    def _explained_in_use(self, error: BaseException) -> LongshoreError | None:
        explained = error if isinstance(error, ConfigError) else self._explained(error)
        if isinstance(explained, ConfigError):
            return StoreLost(f"{explained}; then start the dispatcher again")
        return explained

    def _explained(self, error: BaseException) -> LongshoreError | None:
        """The error in our words; None if neither the file nor the user caused it."""
        if isinstance(error, OverflowError):
            return InvalidInput(f"{self} holds no number past 64 bits; give a smaller one")
        if not isinstance(error, sqlite3.Error):
            return None
        match _code(error):
            case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
                return StoreUnavailable(
                    f"another process has held {self} for more than {self._busy_s:g} s; "
                    "try again, or find who keeps a transaction open on it"
                )
            case sqlite3.SQLITE_FULL:
                return StoreUnavailable(
                    f"no room left on the disk for {self}; free some, then retry"
                )
            case sqlite3.SQLITE_NOTADB:
                return ConfigError(f"{self.path} is not a SQLite database; give another path")
            case sqlite3.SQLITE_CORRUPT:
                return ConfigError(f"{self} is damaged ({error}); restore it from a backup")
            case sqlite3.SQLITE_READONLY | sqlite3.SQLITE_PERM | sqlite3.SQLITE_AUTH:
                return ConfigError(self._not_writable())
            case sqlite3.SQLITE_CANTOPEN:
                return ConfigError(
                    f"cannot open {self} ({error}); check that its folder is there and that this "
                    "user may write to it"
                )
            case sqlite3.SQLITE_IOERR | sqlite3.SQLITE_NOMEM | sqlite3.SQLITE_PROTOCOL:
                return StoreUnavailable(
                    f"{self} cannot be used now: {error}; see to its disk, then retry"
                )
            case _:
                return None


class _Translated:
    """Raises errors as what explains them. Made once: a generator would be made at each use."""

    def __init__(self, explained: Callable[[BaseException], LongshoreError | None]) -> None:
        self._explained = explained

    def __enter__(self) -> None:
        pass

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        explained = None if error is None else self._explained(error)
        if explained is not None:
            raise explained from error


_Inode = tuple[int, int]
_Identity = tuple[_Inode | None, _Inode | None]
"""By device and inode: the file, and its WAL."""


def _identity(path: Path) -> _Inode | None:
    """Which file is there; None if there is none, or none that can be seen."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _code(error: sqlite3.Error) -> int:
    """The primary result code, whatever its extension says."""
    code: int = getattr(error, "sqlite_errorcode", 0) & 0xFF
    return code


def _try_wal(connection: sqlite3.Connection, last_time: bool) -> str | None:
    """The journal mode afterwards; None if another process is switching it right now.

    SQLite does not wait by itself here.
    """
    try:
        mode: str = connection.execute("PRAGMA journal_mode = WAL").fetchone()[0]
    except sqlite3.OperationalError as error:
        if _code(error) != sqlite3.SQLITE_BUSY or last_time:
            raise
        return None
    return mode


def _statements(script: str) -> Iterator[str]:
    """The statements of a script one by one: running it whole would end the transaction."""
    pending = ""
    for line in script.splitlines(keepends=True):
        pending += line
        if sqlite3.complete_statement(pending):
            yield pending
            pending = ""
