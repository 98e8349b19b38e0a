"""The attempts that wait for one process, in a socket pair that its agent can read too.

Each attempt is one packet, and a packet has one reader: who reads an attempt owns it. The process
that reads it begins it. The agent that reads it has taken it back, and it never began. The kernel
decides between the two, so no message is needed to find out what has begun; and what a process that
died had not read is still there.

The reading end must stay in blocking mode: agent and process share that flag.
"""

from __future__ import annotations

import socket
import sys

import msgspec

from longshore.model.attempt import Assignment

PACKET_BYTES = 64 * 1024
"""A larger attempt goes by the stream, to a process that is idle."""

# Elsewhere the kernel has no packets in order for local sockets; its datagrams are in order too.
_KIND = socket.SOCK_SEQPACKET if sys.platform == "linux" else socket.SOCK_DGRAM

_encoder = msgspec.msgpack.Encoder(uuid_format="bytes")
_decoder = msgspec.msgpack.Decoder(Assignment)


class AttemptReader:
    """The end that is read, by agent and process alike."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self._buffer = memoryview(bytearray(PACKET_BYTES))

    def take(self) -> Assignment | None:
        """The next attempt, which the caller owns from now on; None if there is none."""
        try:
            size = self.sock.recv_into(self._buffer, 0, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return None
        return _decoder.decode(self._buffer[:size])


class AttemptQueue:
    """Both ends, as the agent has them."""

    def __init__(self) -> None:
        self._writing, reading = socket.socketpair(socket.AF_UNIX, _KIND)
        self._writing.setblocking(False)
        self._reader = AttemptReader(reading)

    @property
    def fd(self) -> int:
        """The descriptor that the process inherits, to read from."""
        return self._reader.sock.fileno()

    def put(self, assignment: Assignment) -> bool:
        """Puts an attempt behind the others; False if it is too large, or the queue is full."""
        packet = _encoder.encode(assignment)
        if len(packet) > PACKET_BYTES:
            return False
        try:
            self._writing.send(packet)
        except OSError:
            return False
        return True

    def take_back(self) -> list[Assignment]:
        """Everything that the process has not read; it never began."""
        taken = []
        while (assignment := self._reader.take()) is not None:
            taken.append(assignment)
        return taken

    def close(self) -> None:
        """Closes both ends."""
        self._writing.close()
        self._reader.sock.close()
