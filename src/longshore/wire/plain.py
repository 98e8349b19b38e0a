"""The plain dialogue: two frames, the first empty, for workers and clients without msgpack.

    worker                          dispatcher
    READY   I can take a job      →
    PING    I live                →
                                  ← PONG    always, at once
                                  ← a job   its bytes as submitted
    a result, any bytes           →

Theory. A result does not say which job it is for. So a worker has one job at a time, and a result
is for the oldest job that it has not answered. A frame has no type either. What it means depends on
whether the worker is busy:

- PING is always a PING.
- READY of an idle worker says that it can take a job. READY of a busy worker is a restart, if the
  worker named its socket itself: then it comes back by the same name. If ZeroMQ made the name, a
  restarted worker would come by another one, so READY is the result.
- Anything else that a busy worker sends is its result. An idle worker has nothing else to say.

The dispatcher can take a job away from a plain worker (a timeout, a forced cancel), but cannot tell
it so. The worker still *owes* an answer: it gets no job until the answer comes, and the store then
refuses that by its token. A worker that works sends no PING, so a PING of an owing worker says that
no answer will come, and it owes nothing more. But some workers do PING while they work. If such a
worker got a job after its PING, its late answer would be taken for the result of that job. So a
worker that was heard to do this must answer, and so must one that its dispatcher could not hear.
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
"""How many PINGs may be under way when a job is sent. A worker that sends more PINGs at work."""


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
    """The content of a plain message; None if these frames are no plain message."""
    return frames[1] if len(frames) == 2 and not frames[0] else None


def understand(frame: bytes, *, busy: bool, automatic: bool) -> Meaning | None:
    """What a worker's frame means; None if it means nothing."""
    if frame == PING:
        return Meaning.ALIVE
    if frame == READY and not busy:
        return Meaning.IDLE
    if frame == READY and not automatic:
        return Meaning.RESTARTED
    return Meaning.RESULT if busy else None


def is_automatic(identity: bytes) -> bool:
    """Whether ZeroMQ made this identity. One that a worker chose cannot begin with a zero byte."""
    return identity.startswith(b"\0")


# what a worker is told


def frames_of(content: bytes) -> list[bytes]:
    """The frames that carry a job, or PONG, to a worker."""
    return [b"", content]


def unfit(claimed: Attempt) -> JobError | None:
    """Why a plain worker cannot get this job; None if it can."""
    if not claimed.options.raw:
        message = f"a job of kind '{KIND}' is bytes, not arguments: submit it as a raw job"
    elif not claimed.args:
        message = "a job of no bytes means nothing to a plain worker: submit at least one byte"
    elif claimed.args == PONG:
        message = "a plain worker would take a job that reads PONG for a PONG: submit other bytes"
    else:
        return None
    return JobError(Reason.INVALID_ARGUMENTS, message)


# a worker's session


def describe(id: UUID, identity: bytes) -> WorkerInfo:
    """A plain worker as the store knows it: one slot, one kind.

    Its name shows its identity only if it chose that itself. With an automatic identity, another
    process could take its place.
    """
    mark = id.bytes[-SHOWN_ID_BYTES:] if is_automatic(identity) else identity[:MOST_NAME_BYTES]
    return WorkerInfo(
        id=id,
        name=f"plain-{mark.hex()}",
        kinds={KIND: KindInfo(Pool.COROUTINE)},
        pools={Pool.COROUTINE: 1},
    )


class PlainSession(Session):
    """One session of a plain worker: it has no lease, and gets nothing but jobs and PONG."""

    def __init__(self, peer: bytes, info: WorkerInfo, attended: Attended, now: float) -> None:
        super().__init__(peer, info, attended, now, draining=False)
        self.probe_at = now
        self._sent_at = now
        self._owing: deque[AttemptKey] = deque()
        self._had: deque[AttemptKey] = deque(maxlen=16)
        self._pings_at_work = 0
        self._must_answer = False

    def follow(self, earlier: PlainSession) -> None:
        """This session follows an earlier one of the worker: it still owes what it owed there.

        The dispatcher did not listen for a while. The worker may have sent PING at work, so it must
        answer.
        """
        self._owing.extend(earlier._owing)
        self._must_answer = True

    @property
    def busy(self) -> bool:
        """Whether it owes an answer to a job."""
        return bool(self._owing)

    @property
    def open_slots(self) -> dict[str, int]:
        """One, unless it owes an answer."""
        return {} if self.busy else super().open_slots

    def assign(self, claimed: Sequence[Attempt]) -> list[bytes]:
        """The jobs to send, as bytes. A job is never sent twice: the worker would run it twice."""
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
        """Always, if the store finds it so: the worker got the job when it was claimed."""
        return True

    def is_expired(self, now: float, expire_s: float) -> bool:
        """Whether an idle worker was silent for too long. A busy one may be silent."""
        return not self.busy and now - self.heard_at >= expire_s

    def probe_from(self, now: float, probe_s: float) -> None:
        """A job was sent: from now on the dispatcher checks that the worker is connected."""
        self._sent_at = now
        self.probe_at = now + probe_s

    def probed(self, now: float, probe_s: float) -> None:
        """The worker is connected. The longer its job, the rarer the checks: each sends a PONG."""
        self.probe_at = now + max(probe_s, (now - self._sent_at) / 1000)

    def pinged(self) -> bool:
        """A PING came; answers whether it frees the worker from an answer that it owes."""
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
        """The report of the oldest job that it owes an answer to."""
        job, token = self._owing.popleft()
        return SuccessReport(job, token, result)


# clients


def outcome(ended: Ended) -> list[bytes]:
    """The frames that tell a plain client the outcome of its job."""
    if ended.state is JobState.SUCCEEDED:
        return [b"", ended.result or b""]
    error = ended.error or JobError(Reason.CANCELLED, f"job {ended.id} was cancelled")
    return refusal(error.reason, error.message, error.type, error.traceback)


def refusal(reason: str, message: str, type: str = "", traceback: str = "") -> list[bytes]:
    """The frames that tell a plain client why there is no result."""
    error = {"reason": reason, "type": type, "message": message, "traceback": traceback}
    return [b"", ERROR, json.encode(error)]
