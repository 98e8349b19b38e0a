"""Many idle full workers in one process, on bare sockets, as docs/protocol.md says.

    python -m bench.idle_workers ADDRESS N

Says how many have joined and how long that took, then keeps them alive until nobody asks.
"""

from __future__ import annotations

import heapq
import sys
import threading
import time
import uuid
from typing import Any

import msgspec
import zmq

from bench.helper import questions, reply

KIND = "gone_fishing"
JOIN_S = 120.0
AGAIN_S = 3.0
LOOK_S = 0.05

_pack = msgspec.msgpack.encode
_unpack = msgspec.msgpack.decode


class Worker:
    """One connection, looked after only when it is due: whatever came meanwhile waits in it."""

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], address: str) -> None:
        self.joined = False
        self.gone = False
        self._no = 0
        self._ping_s = 1.0
        self._session = 0
        self._socket = context.socket(zmq.DEALER)
        self._socket.linger = 0
        self._socket.connect(address)
        self._id = uuid.uuid4().bytes
        ready = {"v": 2, "worker": self._id, "name": "idle", "kinds": {KIND: {}}}
        self._ready = {**ready, "pools": {"coroutine": 10}}
        self._ask()

    def _ask(self) -> None:
        self._session += 1
        self._asked_at = time.monotonic()
        self._send(b"READY", {**self._ready, "session": self._session})

    def attend(self) -> float:
        """Hears what came, says that it lives, and answers in how many seconds to do so again."""
        self._hear()
        if not self.joined:
            if time.monotonic() - self._asked_at > AGAIN_S:
                self._ask()
            return LOOK_S
        self._no += 1
        self._send(b"PING", {"worker": self._id, "no": self._no})
        return self._ping_s

    def _send(self, verb: bytes, fields: dict[str, Any]) -> None:
        self._socket.send_multipart([b"", verb, _pack(fields)], zmq.DONTWAIT)

    def _hear(self) -> None:
        try:
            while True:
                _, verb, body = self._socket.recv_multipart(zmq.DONTWAIT)
                self._heard(verb, _unpack(body))
        except zmq.Again:
            return

    def _heard(self, verb: bytes, fields: dict[str, Any]) -> None:
        if verb == b"WELCOME":
            self.joined = True
        if verb in (b"WELCOME", b"PONG"):
            self._ping_s = fields.get("ping_s", self._ping_s)
        if verb in (b"GONE", b"EXIT"):
            self.gone = True


class Crowd:
    """All workers of this process, by when each is due."""

    def __init__(self, address: str, number: int) -> None:
        context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        context.set(zmq.MAX_SOCKETS, number + 10)
        self._due: list[tuple[float, int]] = []
        self.workers: list[Worker] = []
        for place in range(number):
            self.workers.append(Worker(context, address))
            heapq.heappush(self._due, (time.monotonic() + LOOK_S, place))
            self.turn()

    def turn(self) -> float:
        """Attends whoever is due; answers how long nobody is."""
        while (now := time.monotonic()) >= self._due[0][0]:
            _, place = self._due[0]
            again_s = self.workers[place].attend()
            heapq.heapreplace(self._due, (now + again_s, place))
        return self._due[0][0] - now

    @property
    def joined(self) -> int:
        """How many are attended."""
        return sum(worker.joined for worker in self.workers)

    @property
    def gone(self) -> int:
        """How many were told to leave."""
        return sum(worker.gone for worker in self.workers)


def main(address: str, number: int) -> None:
    """Joins them all, then keeps them."""
    ended = threading.Event()
    asked: list[object] = []

    def listen() -> None:
        asked.extend(questions())
        ended.set()

    began = time.monotonic()
    crowd = Crowd(address, number)
    while crowd.joined < number and time.monotonic() - began < JOIN_S:
        time.sleep(min(LOOK_S, crowd.turn()))
    reply({"joined": crowd.joined, "seconds": time.monotonic() - began})
    threading.Thread(target=listen, daemon=True).start()
    while not ended.is_set():
        time.sleep(min(LOOK_S, crowd.turn()))
        if asked:
            asked.clear()
            reply({"gone": crowd.gone})


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
