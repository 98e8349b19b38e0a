"""Two workers through one DEALER socket, by bare pyzmq and msgpack, against a real dispatcher."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import msgpack  # type: ignore[import-untyped]
import pytest
import zmq

from longshore.testing.processes import Process

from .conftest import END_S, Harbour

Message = dict[str, Any]


class Connection:
    """One socket, and what was said to each worker that attends through it."""

    def __init__(self, dispatcher: Process) -> None:
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._socket = self._context.socket(zmq.DEALER)
        self._socket.connect(dispatcher.facts["backend"])
        self.heard: list[tuple[bytes, Message]] = []

    def say(self, verb: str, worker: uuid.UUID, **more: object) -> None:
        message = {"worker": worker.bytes, **more}
        self._socket.send_multipart([b"", verb.encode(), msgpack.packb(message)])

    def attend(self) -> uuid.UUID:
        """One more worker, with one slot."""
        worker = uuid.uuid4()
        self.say("READY", worker, v=2, name="shared", kinds={"double": {}}, pools={"coroutine": 1})
        self.until(lambda: bool(self.told(worker, b"WELCOME")))
        return worker

    def until(self, happened: Callable[[], bool]) -> None:
        """Listens until something is so."""
        end = time.monotonic() + END_S
        while not happened():
            assert time.monotonic() < end, f"it never happened: {self.heard}"
            if self._socket.poll(100):
                _, verb, body = self._socket.recv_multipart()
                self.heard.append((verb, msgpack.unpackb(body)))

    def told(self, worker: uuid.UUID, verb: bytes) -> list[Message]:
        """What one of the workers was told by this verb."""
        return [said for one, said in self.heard if one == verb and said["worker"] == worker.bytes]

    def given(self, worker: uuid.UUID) -> list[Message]:
        """The attempts that one of the workers was told to start."""
        return [job for said in self.told(worker, b"JOBS") for job in said["jobs"]]

    def finish(self, worker: uuid.UUID, job: Message) -> None:
        """Reports twice the argument."""
        result = msgpack.packb(2 * msgpack.unpackb(job["args"])["n"])
        report = {"job": job["job"], "token": job["token"], "kind": "succeeded", "result": result}
        self.say("DONE", worker, reports=[report])

    def close(self) -> None:
        self._context.destroy(linger=0)


@pytest.fixture
def dispatcher(harbour: Harbour) -> Process:
    return harbour.dispatcher(lease_s=30)


@pytest.fixture
def connection(dispatcher: Process) -> Iterator[Connection]:
    connection = Connection(dispatcher)
    yield connection
    connection.close()


def test_two_workers_of_one_socket_finish_their_jobs_and_one_leaves_without_the_other(
    harbour: Harbour, dispatcher: Process, connection: Connection
) -> None:
    client, numbers = harbour.at(dispatcher), (1, 2)
    workers = [connection.attend() for _ in numbers]
    jobs = [client.submit("double", msgpack.packb({"n": n})) for n in numbers]
    connection.until(lambda: all(connection.given(one) for one in workers))
    for worker in workers:
        connection.finish(worker, connection.given(worker)[0])
    results = [msgpack.unpackb(client.ended(job)["result"]) for job in jobs]
    assert results == [2, 4]
    leaving, staying = workers
    connection.say("BYE", leaving)
    harbour.await_workers(dispatcher, 1)
    last = client.submit("double", msgpack.packb({"n": 21}))
    connection.until(lambda: len(connection.given(staying)) == 2)
    connection.finish(staying, connection.given(staying)[1])
    assert msgpack.unpackb(client.ended(last)["result"]) == 42
    assert len(connection.given(leaving)) == 1


def test_another_socket_that_names_the_worker_is_not_heard(
    harbour: Harbour, dispatcher: Process, connection: Connection
) -> None:
    worker, client, stranger = connection.attend(), harbour.at(dispatcher), Connection(dispatcher)
    job = client.submit("double", msgpack.packb({"n": 21}))
    connection.until(lambda: bool(connection.given(worker)))
    [mine] = connection.given(worker)
    stranger.finish(worker, {**mine, "args": msgpack.packb({"n": 0})})
    stranger.say("BYE", worker)
    # Its own READY is answered after all that it said before.
    stranger.attend()
    connection.finish(worker, mine)
    assert msgpack.unpackb(client.ended(job)["result"]) == 42
    assert not stranger.told(worker, b"ACK")
    stranger.close()
