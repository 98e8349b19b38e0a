"""A worker of the PING/PONG dialogue on bare pyzmq, written from its specification alone.

    python plain_worker.py tcp://127.0.0.1:7701 [--name NAME] [--period SECONDS]

What a job is made of is between the worker and whoever submits it. Here:

    say TEXT               the result is TEXT
    hold STARTED UNTIL     notes its process id in file STARTED, ends once file UNTIL is there
    anything else          the result is the same in capitals
"""

import argparse
import os
import select
import sys
import time
from pathlib import Path

import zmq

READY, PING, PONG = b"READY", b"PING", b"PONG"
N_TIMEOUTS = 3


def connect(context: "zmq.Context[zmq.Socket[bytes]]", address: str, name: str) -> zmq.SyncSocket:
    frontend = context.socket(zmq.DEALER)
    frontend.linger = 0
    if name:
        frontend.setsockopt(zmq.IDENTITY, name.encode())
    frontend.connect(address)
    frontend.send_multipart([b"", READY])
    return frontend


def work(job: bytes) -> bytes:
    word, _, rest = job.partition(b" ")
    if word == b"say":
        return rest
    if word == b"hold":
        started, until = rest.decode().split()
        with Path(started).open("a") as file:
            file.write(f"{os.getpid()}\n")
        while not Path(until).exists():
            select.select([], [], [], 0.01)
        return b"held"
    return job.upper()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("address")
    parser.add_argument("--name", default="")
    parser.add_argument("--period", type=float, default=1.0, help="of PING and of BROKER_TIMEOUT")
    given = parser.parse_args()
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    frontend = connect(context, given.address, given.name)
    silent, ping_at = 0, time.monotonic()
    while True:
        if time.monotonic() >= ping_at:
            frontend.send_multipart([b"", PING])
            ping_at = time.monotonic() + given.period
        if frontend.poll(int(given.period * 1000)):
            _, message = frontend.recv_multipart()
            if message != PONG:
                frontend.send_multipart([b"", work(message)])
            silent = 0
            continue
        silent += 1
        if silent == N_TIMEOUTS:
            print("reconnecting", file=sys.stderr, flush=True)
            frontend.close()
            frontend = connect(context, given.address, given.name)
            silent = 0


if __name__ == "__main__":
    main()
