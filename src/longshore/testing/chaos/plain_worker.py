"""A worker of the plain dialogue: `python -m longshore.testing.chaos.plain_worker ADDRESS`.

What it is sent is the id of its job; its result is a name for this run of the body.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import zmq

from longshore.testing.chaos.history import (
    BODIES_VARIABLE,
    WORKER_VARIABLE,
    Beat,
    Began,
    Over,
    Writer,
)

PING, PONG, READY = b"PING", b"PONG", b"READY"
PERIOD_S = 0.5
PERIODS = 3
RUNS_MS = 60


def main(address: str) -> None:
    """Works until it is ended."""
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    writer = Writer(Path(os.environ[BODIES_VARIABLE]))
    worker = os.environ[WORKER_VARIABLE]
    number = silent = 0
    socket = _connect(context, address)
    while True:
        if not socket.poll(int(PERIOD_S * 1000)):
            silent += 1
            if silent == PERIODS:
                socket.close()
                socket, silent = _connect(context, address), 0
            socket.send_multipart([b"", PING])
            continue
        silent = 0
        _, message = socket.recv_multipart()
        if message == PONG:
            continue
        number += 1
        attempt = f"{worker}/{number}"
        _run(writer, message.decode(), attempt, worker)
        socket.send_multipart([b"", attempt.encode()])


def _connect(context: zmq.Context[zmq.Socket[bytes]], address: str) -> zmq.Socket[bytes]:
    socket = context.socket(zmq.DEALER)
    socket.linger = 0
    socket.connect(address)
    socket.send_multipart([b"", READY])
    return socket


def _run(writer: Writer, job: str, attempt: str, worker: str) -> None:
    writer.add(Began(job=job, attempt=attempt, worker=worker, sort="raw"))
    time.sleep(RUNS_MS / 1000)
    writer.add(Beat(job=job, attempt=attempt))
    writer.add(Over(job=job, attempt=attempt))


if __name__ == "__main__":
    main(sys.argv[1])
