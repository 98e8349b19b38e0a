"""A client of the plain dialogue: a bare REQ socket, one job after the other.

    python plain_client.py tcp://127.0.0.1:7702 JOB...

Each answer is printed as a line of JSON: the frames, as text.
"""

import json
import sys

import zmq

PATIENCE_MS = 30_000


def main() -> None:
    address, *jobs = sys.argv[1:]
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    socket = context.socket(zmq.REQ)
    socket.linger = 0
    socket.rcvtimeo = PATIENCE_MS
    socket.connect(address)
    for job in jobs:
        socket.send(job.encode())
        print(json.dumps([frame.decode() for frame in socket.recv_multipart()]), flush=True)


if __name__ == "__main__":
    main()
