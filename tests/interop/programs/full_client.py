"""A full client on bare pyzmq and msgpack, written from docs/protocol.md alone.

    python full_client.py tcp://127.0.0.1:7702 KIND [NAME=NUMBER...]

submits a job and prints its result.
"""

import sys
import uuid
from typing import Any

import msgpack  # type: ignore[import-untyped]
import zmq

PATIENCE_MS = 30_000


class Refused(Exception):
    """The dispatcher answered with ERR; its code comes first."""


class Client:
    """One request at a time; the answers are as msgpack gives them."""

    def __init__(self, address: str) -> None:
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._socket = self._context.socket(zmq.DEALER)
        self._socket.rcvtimeo = PATIENCE_MS
        self._socket.connect(address)
        self._rid = 0

    def ask(self, verb: str, **fields: object) -> Any:
        """What OK carries in answer to a request; raises `Refused` for ERR."""
        self._rid += 1
        request = msgpack.packb({"rid": self._rid, **fields})
        self._socket.send_multipart([b"", verb.encode(), request])
        while True:
            _, kind, body = self._socket.recv_multipart()
            message = msgpack.unpackb(body, timestamp=3)
            if message["rid"] == self._rid:
                break
        if kind == b"ERR":
            raise Refused(message["code"], message["message"])
        return message.get("answer")

    def submit(self, kind: str, args: bytes, **options: object) -> uuid.UUID:
        """Submits one job; it is durable when this returns."""
        id = uuid.uuid4()
        job = {"id": id.bytes, "kind": kind, "args": args, "options": options}
        (answer,) = self.ask("SUBMIT", jobs=[job])
        if answer["code"]:
            raise Refused(answer["code"], answer["message"])
        return id

    def ended(self, job: uuid.UUID) -> dict[str, Any]:
        """The outcome of a job, once it has one."""
        while True:
            for ended in self.ask("WAIT", jobs=[job.bytes], wait_s=10):
                found: dict[str, Any] = ended
                return found

    def show(self, job: uuid.UUID) -> dict[str, Any]:
        """All that is known of a job."""
        shown: dict[str, Any] = self.ask("SHOW", job=job.bytes)
        return shown

    def close(self) -> None:
        """Lets go of the socket."""
        self._context.destroy(linger=0)


def main() -> None:
    address, kind, *pairs = sys.argv[1:]
    arguments = {name: int(number) for name, _, number in (pair.partition("=") for pair in pairs)}
    client = Client(address)
    ended = client.ended(client.submit(kind, msgpack.packb(arguments)))
    client.close()
    if ended["state"] != "succeeded":
        sys.exit(f"{ended['state']}: {ended['error']}")
    print(msgpack.unpackb(ended["result"]))


if __name__ == "__main__":
    main()
