"""Where a run takes place: its servers, its databases, its sizes."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.sizes import Sizes
from longshore.testing.processes import run
from longshore.testing.servers import PostgresServer

STORES = ("postgres", "sqlite")


class Stage:
    """One PostgreSQL with fsync on, a folder for SQLite files and logs, and how much to measure."""

    def __init__(self, server: PostgresServer, folder: Path, sizes: Sizes) -> None:
        self.server = server
        self.folder = folder
        self.sizes = sizes
        self._serial = itertools.count(1)

    def say(self, text: str) -> None:
        """Tells whoever watches how far it is."""
        print(f"  {text}", flush=True)

    def database(self, store: str = "postgres") -> str:
        """The URL of a new store, migrated and empty."""
        name = f"bench{next(self._serial)}"
        if store == "sqlite":
            url = f"sqlite:///{self.folder / name}.db"
        else:
            url = self.server.create_database(name)
        migrate(url)
        return url

    def drop(self, url: str) -> None:
        """A store is gone; nobody needs it any more."""
        if url.startswith("sqlite:///"):
            for path in self.folder.glob(f"{Path(url).name}*"):
                path.unlink()
        else:
            self.server.drop_database(url.rpartition("/")[2])

    @contextmanager
    def empty(self) -> Iterator[str]:
        """A new database of PostgreSQL with nothing in it, for as long as it is used."""
        url = self.server.create_database(f"bench{next(self._serial)}")
        try:
            yield url
        finally:
            self.drop(url)

    @contextmanager
    def fresh(self, store: str = "postgres") -> Iterator[str]:
        """A new store for as long as it is used."""
        url = self.database(store)
        try:
            yield url
        finally:
            self.drop(url)


def migrate(url: str) -> None:
    """The store has this version's schema."""
    migrated = run("migrate", "--store", url)
    if migrated.returncode:
        raise RuntimeError(f"longshore migrate: {migrated.stderr.strip()}")


@contextmanager
def staged(sizes: Sizes) -> Iterator[Stage]:
    """A stage, taken down afterwards."""
    with TemporaryDirectory(prefix="longshore-bench-") as folder, PostgresServer() as server:
        yield Stage(server, Path(folder), sizes)
