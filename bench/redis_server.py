"""A Redis for the peers that need one: on a free loopback port, gone without a trace.

Its durability is Redis's own default: snapshots from time to time, no append-only file. What was
acknowledged since the last snapshot is lost when it is killed.
"""

from __future__ import annotations

import shutil
import socket
import tempfile
from pathlib import Path
from typing import Self

from bench.children import Child, await_true
from longshore.testing.servers import HOST, free_port

START_S = 20.0


class RedisServer:
    """A Redis of its own, empty at first; good for one `with` block.

    Start it from a thread that outlives it, the main thread for instance.
    """

    def __init__(self) -> None:
        self.port = free_port()
        self._folder: Path | None = None
        self._child: Child | None = None

    @property
    def url(self) -> str:
        """Where clients find its first database; peers keep results in the second one, `/1`."""
        return f"redis://{HOST}:{self.port}/0"

    def clear(self) -> str:
        """All its databases are empty; answers its url."""
        if self._ask(b"FLUSHALL") != b"+OK":
            raise RuntimeError(f"Redis on port {self.port} refused FLUSHALL")
        return self.url

    def start(self) -> None:
        """The server accepts connections."""
        program = shutil.which("redis-server")
        if program is None:
            raise RuntimeError("redis-server is not installed: run `scripts/setup redis`")
        self._folder = Path(tempfile.mkdtemp(prefix="longshore-redis-"))
        where = ["--bind", HOST, "--port", str(self.port), "--dir", str(self._folder)]
        self._child = Child([program, *where, "--logfile", str(self._folder / "redis.log")])
        await_true(self._accepts_connections, self._child, START_S)

    def close(self) -> None:
        """The server is down and its folder is gone."""
        if self._child is not None:
            self._child.close()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _accepts_connections(self) -> bool:
        try:
            return self._ask(b"PING") == b"+PONG"
        except OSError:
            return False

    def _ask(self, word: bytes) -> bytes:
        with socket.create_connection((HOST, self.port), timeout=5) as connection:
            connection.sendall(word + b"\r\n")
            return connection.recv(100).strip()
