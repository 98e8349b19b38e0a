"""A listening socket of ZeroMQ that can be shut, while whoever came through it stays.

Theory. libzmq can stop listening only by closing every connection that it accepted there. Nor does
it stop by itself when a process has no descriptors left: the kernel tells it of the waiting
connection again and again, and its thread spins. But the socket is in this process. A packet filter
on it that lets nothing pass keeps new connections away, and a listening socket that is shut down
and listens again has forgotten those that wait. Taken off, the filter leaves everything as it was.
This is so on Linux; elsewhere a door stays open.
"""

from __future__ import annotations

import ctypes
import os
import socket
import struct
import sys
from contextlib import suppress
from typing import Final

import zmq
from zmq.utils.monitor import parse_monitor_message

BACKLOG: Final = 100
_ATTACH_FILTER: Final = 26
_DETACH_FILTER: Final = 27
_DROP_ALL: Final = struct.pack("HBBI", 0x06, 0, 0, 0)
"""The one instruction of the filter: return, with no bytes of the packet kept."""


class Door:
    """Where a bound socket accepts connections."""

    def __init__(self, listening: socket.socket) -> None:
        self._listening = listening
        self.is_open = True

    def shut(self) -> None:
        """No connection comes in from now on, and those that wait to are reset."""
        self.is_open = False
        if sys.platform == "linux":
            self._keep_out()
            self._turn_away()

    def _keep_out(self) -> None:
        program = ctypes.create_string_buffer(_DROP_ALL)
        filter = struct.pack("HL", 1, ctypes.addressof(program))
        with suppress(OSError):
            self._listening.setsockopt(socket.SOL_SOCKET, _ATTACH_FILTER, filter)

    def _turn_away(self) -> None:
        name = self._listening.getsockname()
        with suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        # A port that the kernel chose is lost by now. One that was asked for is not: this fails.
        with suppress(OSError):
            self._listening.bind(name)
        self._listening.listen(BACKLOG)

    def open(self) -> None:
        """Connections come in again."""
        self.is_open = True
        with suppress(OSError):
            self._listening.setsockopt(socket.SOL_SOCKET, _DETACH_FILTER, 0)

    def close(self) -> None:
        """Lets go of the socket, which libzmq closes by itself."""
        self._listening.close()


def bind(bound: zmq.Socket[bytes], address: str) -> Door:
    """Binds a socket of ZeroMQ; raises `ZMQError` if it cannot."""
    monitor = bound.get_monitor_socket(zmq.EVENT_LISTENING)
    try:
        bound.bind(address)
        descriptor = int(parse_monitor_message(monitor.recv_multipart())["value"])
    finally:
        bound.disable_monitor()
        monitor.close(linger=0)
    return Door(socket.socket(fileno=os.dup(descriptor)))
