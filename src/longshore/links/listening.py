"""A listening socket of ZeroMQ that can be shut, while the connections that it accepted stay.

Theory. libzmq can stop listening only by closing every connection that it accepted there. Nor does
it stop by itself when a process has no descriptors left: the kernel tells it of the waiting
connection again and again, and its thread spins. But the socket is in this process. A packet filter
on it that lets nothing pass keeps new connections away; without the filter all is as before. Few
connections wait already, by the backlog, and libzmq accepts them as descriptors come free.
(To shut the socket down would turn them away, but then accept fails in a way for which libzmq
aborts the process.) This is so on Linux; elsewhere a door stays open.
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

_ATTACH_FILTER: Final = 26
_DETACH_FILTER: Final = 27
_DROP_ALL: Final = struct.pack("HBBI", 0x06, 0, 0, 0)
"""The one instruction of the filter: return, with no bytes of the packet kept."""


class Listening:
    """Where a bound socket accepts connections."""

    def __init__(self, listening: socket.socket) -> None:
        self._listening = listening
        self.is_open = True

    def shut(self) -> None:
        """Lets no connection in from now on, apart from those that wait already."""
        self.is_open = False
        if sys.platform == "linux":
            program = ctypes.create_string_buffer(_DROP_ALL)
            filter = struct.pack("HL", 1, ctypes.addressof(program))
            with suppress(OSError):
                self._listening.setsockopt(socket.SOL_SOCKET, _ATTACH_FILTER, filter)

    def open(self) -> None:
        """Lets connections in again."""
        self.is_open = True
        with suppress(OSError):
            self._listening.setsockopt(socket.SOL_SOCKET, _DETACH_FILTER, 0)

    def close(self) -> None:
        """Lets go of the socket, which libzmq closes by itself."""
        self._listening.close()


def bind(bound: zmq.Socket[bytes], address: str) -> Listening:
    """Binds a socket of ZeroMQ; raises `ZMQError` if it cannot."""
    monitor = bound.get_monitor_socket(zmq.EVENT_LISTENING)
    try:
        bound.bind(address)
        descriptor = int(parse_monitor_message(monitor.recv_multipart())["value"])
    finally:
        bound.disable_monitor()
        monitor.close(linger=0)
    return Listening(socket.socket(fileno=os.dup(descriptor)))
