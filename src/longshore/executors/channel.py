"""Frames over a non-blocking socket, on an event loop.

It reads by hand, not through a transport: so the agent can read everything that a dead host has
said before it acts on the death.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Generic, TypeVar

from longshore.errors import ProtocolError
from longshore.executors.frames import FromHost, ToHost, Unpacker, pack

M = TypeVar("M")


class Channel(Generic[M]):
    """One end of a socket pair. Calls `on_lost` once, if the other end goes or sends nonsense."""

    def __init__(
        self,
        sock: socket.socket,
        unpacker: Unpacker[M],
        on_messages: Callable[[list[M]], None],
        on_lost: Callable[[], None],
    ) -> None:
        sock.setblocking(False)
        self._sock = sock
        self._unpacker = unpacker
        self._on_messages = on_messages
        self._on_lost = on_lost
        self._unsent = bytearray()
        self._writing = False
        self._open = True
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(sock.fileno(), self._read)

    def send(self, *messages: ToHost | FromHost) -> bool:
        """Sends without waiting; what the socket does not take yet is kept and sent later.

        Answers False if the other end is known to be gone: then nothing has arrived.
        """
        if not self._open:
            return False
        is_first = not self._unsent
        self._unsent += b"".join(map(pack, messages))
        return self._write() if is_first else True

    def read_rest(self) -> None:
        """Handles everything that has arrived."""
        while self._open and self._read():
            pass

    def close(self) -> None:
        """Closes the socket at once."""
        if not self._open:
            return
        self._open = False
        self._loop.remove_reader(self._sock.fileno())
        self._watch_writable(False)
        self._sock.close()

    def _read(self) -> bool:
        try:
            count, messages = self._unpacker.read(self._sock)
        except (BlockingIOError, InterruptedError):
            return False
        except (OSError, ProtocolError):
            self._lose()
            return False
        if not count:
            self._lose()
        if messages:
            self._on_messages(messages)
        if self._unpacker.is_malformed:
            self._lose()
        return count > 0

    def _write(self) -> bool:
        is_there = True
        try:
            sent = self._sock.send(self._unsent)
        except (BlockingIOError, InterruptedError):
            sent = 0
        except OSError:
            # The reader finds out too, once it has read everything that has arrived.
            sent = len(self._unsent)
            is_there = False
        del self._unsent[:sent]
        self._watch_writable(bool(self._unsent))
        return is_there

    def _watch_writable(self, wanted: bool) -> None:
        if wanted == self._writing:
            return
        self._writing = wanted
        if wanted:
            self._loop.add_writer(self._sock.fileno(), self._write)
        else:
            self._loop.remove_writer(self._sock.fileno())

    def _lose(self) -> None:
        if self._open:
            self.close()
            self._on_lost()
