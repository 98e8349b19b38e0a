"""The plain dialogue: two frames, the first empty, for workers and clients without msgpack.

    worker                          dispatcher
    READY   I can take a job      →
    PING    I live                →
                                  ← PONG    always, at once
                                  ← a job   its bytes as submitted
    a result, any bytes           →

Theory. Nothing says which job a result is for, so a worker has one job at a time, and a result is
for the oldest job that was not answered. A frame has no type either: what it means depends on
whether the worker is busy. PING is always a PING. While the worker is busy anything else is its
result; READY too, if ZeroMQ named the socket, because then a restarted worker would have another
name. A worker that named its socket itself keeps the name, so its READY is a restart.

A job can be taken away from a plain worker (a timeout, a forced cancel), but the worker cannot be
told. It stays *owing*: it is given nothing until the result has come, which is then refused by its
token. A busy worker sends no PING, so a PING says that it will not answer any more. Workers that
PING while they work would have their late result taken for that of the next job: whoever was heard
to do so must answer, and so must one that its dispatcher could not listen to while it worked.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from enum import Enum, auto
from typing import Final
from uuid import UUID

from msgspec import json

from longshore.model.attempt import Attempt, AttemptKey
from longshore.model.job import Ended, JobError, JobState, Reason
from longshore.model.reports import SuccessReport
from longshore.model.worker import Attended, KindInfo, Pool, WorkerInfo
from longshore.wire.dispatcher_side import Session

READY: Final = b"READY"
PING: Final = b"PING"
PONG: Final = b"PONG"
ERROR: Final = b"ERROR"
KIND: Final = "raw"

MOST_NAME_BYTES: Final = 20
SHOWN_ID_BYTES: Final = 5
PINGS_IN_FLIGHT: Final = 2
"""So many PINGs may have been under way when a job was sent; more of them were sent at work."""


# what a frame from a worker means


class Meaning(Enum):
    """What a worker says with a frame."""

    ALIVE = auto()
    """It lives. The dispatcher answers with PONG."""
    IDLE = auto()
    """It can take a job."""
    RESTARTED = auto()
    """It began anew, and knows nothing of the job it had."""
    RESULT = auto()
    """The frame is the result of its job."""


def only(frames: Sequence[bytes]) -> bytes | None:
    """What two frames say; None if they are not of the plain dialogue."""
    return frames[1] if len(frames) == 2 and not frames[0] else None


def understand(frame: bytes, *, busy: bool, automatic: bool) -> Meaning | None:
    """What a worker's frame means; None if it means nothing and is dropped."""
    if frame == PING:
        return Meaning.ALIVE
    if frame == READY and not busy:
        return Meaning.IDLE
    if frame == READY and not automatic:
        return Meaning.RESTARTED
    return Meaning.RESULT if busy else None


def is_automatic(identity: bytes) -> bool:
    """Whether ZeroMQ made this identity: a worker's own may not begin with a zero byte."""
    return identity.startswith(b"\0")


# what a worker is told


def frames_of(content: bytes) -> list[bytes]:
    """The frames that carry a job, or PONG, to a worker."""
    return [b"", content]


def unfit(claimed: Attempt) -> JobError | None:
    """Why a job cannot be told to a plain worker, if it cannot."""
    if not claimed.options.raw:
        message = f"a job of kind '{KIND}' is bytes, not arguments: submit it as a raw job"
    elif not claimed.args:
        message = "a job of no bytes is none in the plain dialogue: submit at least one"
    elif claimed.args == PONG:
        message = "a job that reads PONG is taken for a PONG in the plain dialogue"
    else:
        return None
    return JobError(Reason.INVALID_ARGUMENTS, message)


# a worker's session


def describe(id: UUID, identity: bytes) -> WorkerInfo:
    """A plain worker as the store knows it: one slot, one kind.

    Its identity is shown only if it chose that itself: who knows an automatic one can take it over.
    """
    mark = id.bytes[-SHOWN_ID_BYTES:] if is_automatic(identity) else identity[:MOST_NAME_BYTES]
    return WorkerInfo(
        id=id,
        name=f"plain-{mark.hex()}",
        kinds={KIND: KindInfo(Pool.COROUTINE)},
        pools={Pool.COROUTINE: 1},
    )


class PlainSession(Session):
    """One session of a plain worker: it has no lease, and is told nothing but jobs."""

    def __init__(self, peer: bytes, info: WorkerInfo, attended: Attended, now: float) -> None:
        super().__init__(peer, info, attended, now, draining=False)
        self.probe_at = now
        self._sent_at = now
        self._owing: deque[AttemptKey] = deque()
        self._had: deque[AttemptKey] = deque(maxlen=16)
        self._pings_at_work = 0
        self._must_answer = False

    def follow(self, earlier: PlainSession) -> None:
        """The same worker, in a session after that one: it still owes what it owed there.

        Nobody listened for a while, so it is not known whether it PINGs at work: it must answer.
        """
        self._owing.extend(earlier._owing)
        self._must_answer = True

    @property
    def busy(self) -> bool:
        """Whether a job was sent that was not answered."""
        return bool(self._owing)

    @property
    def open_slots(self) -> dict[str, int]:
        """One, unless it owes an answer."""
        return {} if self.busy else super().open_slots

    def assign(self, claimed: Sequence[Attempt]) -> list[bytes]:
        """The jobs as their bytes. What was sent once is not sent again: it would be run again."""
        fresh = [one for one in claimed if (one.id, one.token) not in self._had]
        for one in fresh:
            self._place(one, 0)
            self._owing.append((one.id, one.token))
            self._had.append((one.id, one.token))
            self._pings_at_work, self._must_answer = 0, False
        self.given += len(fresh)
        return [one.args for one in fresh]

    def is_lost(self, now: float, lease_s: float) -> bool:
        """Never by a lease: it has none."""
        return False

    def is_overdue(self, claimed: Attempt, now: float, margin_s: float) -> bool:
        """As the store finds: it got its job when that was claimed."""
        return True

    def is_expired(self, now: float, expire_s: float) -> bool:
        """Whether an idle worker was silent for too long; a busy one may be."""
        return not self.busy and now - self.heard_at >= expire_s

    def probe_from(self, now: float, probe_s: float) -> None:
        """A job was sent: from now on it is looked whether the worker is still there."""
        self._sent_at = now
        self.probe_at = now + probe_s

    def probed(self, now: float, probe_s: float) -> None:
        """It is still there. A long job is probed less often, so that the PONGs do not pile up."""
        self.probe_at = now + max(probe_s, (now - self._sent_at) / 1000)

    def pinged(self) -> bool:
        """It lives; answers whether that means that it can take a job again."""
        if not self.busy:
            return False
        if any(token in self.placed for _, token in self._owing):
            self._pings_at_work += 1
            return False
        if self._must_answer or self._pings_at_work > PINGS_IN_FLIGHT:
            return False
        self._owing.clear()
        return True

    def answered(self, result: bytes) -> SuccessReport:
        """The report of its oldest job."""
        job, token = self._owing.popleft()
        return SuccessReport(job, token, result)


# clients


def outcome(ended: Ended) -> list[bytes]:
    """What a plain client is told of its job."""
    if ended.state is JobState.SUCCEEDED:
        return [b"", ended.result or b""]
    error = ended.error or JobError(Reason.CANCELLED, f"job {ended.id} was cancelled")
    return refusal(error.reason, error.message, error.type, error.traceback)


def refusal(reason: str, message: str, type: str = "", traceback: str = "") -> list[bytes]:
    """What a plain client is told if there is no result."""
    error = {"reason": reason, "type": type, "message": message, "traceback": traceback}
    return [b"", ERROR, json.encode(error)]
