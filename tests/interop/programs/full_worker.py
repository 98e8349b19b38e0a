"""A full worker on bare pyzmq and msgpack, written from docs/protocol.md alone.

    python full_worker.py [--period SECONDS] tcp://127.0.0.1:7701...

It serves a few kinds. Each job is a generator that is taken a step further in every turn of the
loop, so that one thread runs them all and the PINGs besides:

    double {n}                 the result is 2n
    hold {started, until}      notes its attempt in file `started`, ends once file `until` is there
    explode {}                 fails
    count {to}                 says how far it is
"""

import argparse
import os
import signal
import sys
import time
import traceback
import uuid
from collections.abc import Callable, Generator, Iterable
from pathlib import Path
from typing import Any

import msgpack  # type: ignore[import-untyped]
import zmq

N_TIMEOUTS = 3
SLOTS = 10
TEXT, STEP, PROGRESS = 0, 1, 2

AttemptKey = tuple[bytes, int]
Message = dict[str, Any]
Steps = Generator[tuple[int, bytes] | None, None, object]


# the jobs


def double(attempt: int, n: int) -> Steps:
    yield None
    return 2 * n


def hold(attempt: int, started: str, until: str) -> Steps:
    with Path(started).open("a") as file:
        file.write(f"{attempt}\n")
    while not Path(until).exists():
        yield None
    return "held"


def explode(attempt: int) -> Steps:
    yield None
    raise ValueError("it went off")


def count(attempt: int, to: int) -> Steps:
    for number in range(1, to + 1):
        yield STEP, f"counting {number}".encode()
        yield PROGRESS, msgpack.packb({"done": number, "total": to})
    return to


KINDS: dict[str, Callable[..., Steps]] = {
    "double": double,
    "hold": hold,
    "explode": explode,
    "count": count,
}
PARAMETERS = {"double": ["n"], "hold": ["started", "until"], "explode": [], "count": ["to"]}


class Running:
    """One attempt."""

    def __init__(self, job: Message) -> None:
        self.said = 0
        arguments = msgpack.unpackb(job["args"])
        self._steps = KINDS[job["kind"]](job.get("attempt", 1), **arguments)
        timeout_s = job.get("timeout_s")
        self._ends_at = None if timeout_s is None else now() + timeout_s

    def step(self) -> tuple[int, bytes] | Message | None:
        """Something it says, its report, or nothing."""
        try:
            if self._ends_at is not None and now() >= self._ends_at:
                return failure("timed_out", "took too long")
            said = next(self._steps)
        except StopIteration as ended:
            return {"kind": "succeeded", "result": msgpack.packb(ended.value)}
        except Exception as error:
            where = traceback.format_exc()
            return failure("raised", str(error), type(error).__name__, where)
        return said


def failure(reason: str, message: str, type: str = "", where: str = "") -> Message:
    error = {"reason": reason, "message": message, "type": type, "traceback": where}
    return {"kind": "failed", "error": error}


def now() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def note(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


# the dialogue


class Worker:
    def __init__(self, addresses: list[str], period_s: float) -> None:
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._addresses = addresses
        self._period_s = period_s
        self._id = uuid.uuid4()
        self._asked = 0
        self._running: dict[AttemptKey, Running] = {}
        self._had: set[AttemptKey] = set()
        self._reports: dict[AttemptKey, Message] = {}
        self._lease: tuple[float, float] | None = None
        self._ping_s = period_s
        self._ping_at = float("inf")
        self._unanswered_at = float("inf")
        self._leaving = False
        self._socket = self._context.socket(zmq.DEALER)
        self._connect()

    def leave(self) -> None:
        self._leaving = True
        self._ping_at = now()

    def run(self) -> None:
        while not (self._leaving and not self._running and not self._reports):
            self._look_at_the_clock()
            while self._socket.poll(10):
                _, verb, body = self._socket.recv_multipart()
                message = msgpack.unpackb(body)
                if message["worker"] == self._id.bytes:
                    self._unanswered_at = float("inf")
                    self._hear(verb, message)
            self._work()
        self._say("BYE", {"worker": self._id.bytes, "reason": "told to leave"})
        self._context.destroy(linger=500)

    # connecting

    def _connect(self) -> None:
        self._socket.close(linger=0)
        self._socket = self._context.socket(zmq.DEALER)
        self._socket.connect(self._addresses[0])
        self._attended = False
        self._asked += 1
        self._seen = self._ping_no = 0
        self._pings: dict[int, float] = {}
        self._ping_at = float("inf")
        self._ready_at = self._unanswered_at = now()
        self._say("READY", self._introduction())

    def _introduction(self) -> Message:
        kinds = {
            kind: {"parameters": [{"name": name} for name in names]}
            for kind, names in PARAMETERS.items()
        }
        return {
            "v": 2,
            "worker": self._id.bytes,
            "session": self._asked,
            "name": "by hand",
            "pid": os.getpid(),
            "kinds": kinds,
            "pools": {"coroutine": SLOTS},
            "draining": self._leaving,
            "held": list(self._running),
            "unacknowledged": list(self._reports),
        }

    def _move(self) -> None:
        note("moving")
        self._addresses.append(self._addresses.pop(0))
        self._connect()

    def _begin_anew(self) -> None:
        note("beginning anew")
        self._id = uuid.uuid4()
        self._running.clear()
        self._lease = None
        self._connect()

    def _say(self, verb: str, message: Message) -> None:
        self._socket.send_multipart([b"", verb.encode(), msgpack.packb(message)])

    # what the dispatcher says

    def _hear(self, verb: bytes, message: Message) -> None:
        match verb:
            case b"WELCOME" if message["session"] == self._asked:
                self._attended = True
                self._lease = self._ready_at, message["lease_s"]
                self._report(self._reports.values())
                self._ping(message["ping_s"])
            case b"PONG":
                self._ponged(message)
            case b"JOBS" if self._attended:
                self._given(message)
            case b"ABORT":
                self._stop(attempts(message["attempts"]), "cancelled")
            case b"ACK":
                for attempt in attempts(message["attempts"] + message.get("stale", [])):
                    self._reports.pop(attempt, None)
            case b"EXIT":
                self.leave()
            case b"GONE":
                self._begin_anew()

    def _ponged(self, pong: Message) -> None:
        sent_at = self._pings.pop(pong["no"], None)
        if sent_at is None or self._lease is None:
            return
        if pong.get("lease_s") is not None:
            self._lease = sent_at, pong["lease_s"]
        elif sum(self._lease) - now() < self._lease[1] / 2:
            self._move()

    def _given(self, message: Message) -> None:
        self._seen = max(self._seen, message["seq"])
        for job in message["jobs"]:
            attempt = job["job"], job["token"]
            if attempt not in self._had and now() < self._abort_at():
                self._had.add(attempt)
                self._running[attempt] = Running(job)

    # time

    def _look_at_the_clock(self) -> None:
        if self._running and now() >= self._abort_at():
            note("stopping everything")
            self._stop(list(self._running), "released")
        if now() - self._unanswered_at >= N_TIMEOUTS * self._period_s:
            self._move()
        if now() >= self._ping_at:
            self._ping()

    def _abort_at(self) -> float:
        # Every attempt here stops at once, so there is nothing left to kill later.
        return sum(self._lease) - min(5.0, self._lease[1] / 3) if self._lease else 0.0

    def _ping(self, every_s: float | None = None) -> None:
        self._ping_s = every_s or self._ping_s
        self._ping_no += 1
        self._pings[self._ping_no] = now()
        self._ping_at = now() + self._ping_s
        self._unanswered_at = min(self._unanswered_at, now())
        message = {
            "worker": self._id.bytes,
            "no": self._ping_no,
            "seen": self._seen,
            "held": list(self._running),
            "unacknowledged": list(self._reports),
            "draining": self._leaving,
        }
        self._say("PING", message)

    # the attempts

    def _work(self) -> None:
        for attempt, running in list(self._running.items()):
            said = running.step()
            if isinstance(said, tuple):
                self._log(attempt, running, *said)
            elif said is not None:
                self._end(attempt, said)

    def _log(self, attempt: AttemptKey, running: Running, kind: int, data: bytes) -> None:
        running.said += 1
        job, token = attempt
        entry = {"job": job, "token": token, "seq": running.said, "kind": kind, "data": data}
        if self._attended:
            self._say("LOGS", {"worker": self._id.bytes, "entries": [entry]})

    def _stop(self, wanted: Iterable[AttemptKey], how: str) -> None:
        for attempt in wanted:
            if attempt in self._running:
                self._end(attempt, {"kind": how})

    def _end(self, attempt: AttemptKey, report: Message) -> None:
        del self._running[attempt]
        job, token = attempt
        self._reports[attempt] = {"job": job, "token": token, **report}
        self._report([self._reports[attempt]])

    def _report(self, reports: Iterable[Message]) -> None:
        unsent = list(reports)
        if self._attended and unsent:
            self._say("DONE", {"worker": self._id.bytes, "reports": unsent})


def attempts(pairs: list[list[Any]]) -> list[AttemptKey]:
    return [(job, token) for job, token in pairs]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("addresses", nargs="+")
    parser.add_argument("--period", type=float, default=1.0, help="BROKER_TIMEOUT")
    given = parser.parse_args()
    worker = Worker(given.addresses, given.period)
    signal.signal(signal.SIGTERM, lambda *_: worker.leave())
    worker.run()


if __name__ == "__main__":
    main()
