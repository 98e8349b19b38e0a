"""What the agent and its hosts say to each other, over one socket pair for each host.

    agent                                host
    Load   import this app            →
                                       ← Loaded      these are its kinds
                                       ← LoadFailed  it cannot be imported, and why
    Run    begin these attempts       →
    Abort  stop these attempts        →
    NoMore begin what waits for more  →
    Close  end in good order          →
                                       ← Began       an attempt begins later than it was sent
                                       ← Ended       attempts that ended by themselves
                                       ← Stopped     attempts that ended by being aborted
                                       ← Said        what attempts say

A host that outlives its agent (`host.programs.container_host`) has more to say:

    LeaseUntil  stop when it is over  →
    Recorded    the store has these   →
                                       ← Held        to a new agent: what goes on

A frame is a length (4 bytes, big-endian) and a msgpack array that begins with the message's name.
A process that runs one attempt at a time gets most of them another way, see `attempt_queue`.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator, Sequence
from typing import Generic, TypeVar

import msgspec
from msgspec import Struct

from longshore.config import FileSettings
from longshore.errors import ProtocolError
from longshore.model.attempt import Assignment, AttemptKey, HeldAttempt
from longshore.model.job import LogEntry
from longshore.model.log import LogLimits
from longshore.model.reports import Report
from longshore.model.worker import KindInfo

MAX_FRAME_BYTES = 1024 * 1024 * 1024
ITEMS_PER_FRAME = 32
"""With a result of 1 MiB and a full outbox each, a frame is still within its bound."""

_LENGTH_BYTES = 4
_READ_BYTES = 256 * 1024
_encoder = msgspec.msgpack.Encoder(uuid_format="bytes")


class ProgramTerms(Struct, frozen=True, array_like=True):
    """How a worker runs commands and containers."""

    exec: bool = False
    """Whether it runs programs that submitters describe."""
    engine: str = ""
    """The address of the engine of containers."""
    secrets: str = ""
    """The folder whose files are secrets."""
    files: FileSettings = FileSettings()
    """From which gateways files come, and how."""
    grace_s: float = 5.0
    """How long a program that is told to end may take, before it is killed."""
    registries: str = ""
    """The file with credentials for registries of images."""
    sweep_s: float = 60.0
    """How often containers are looked for that a dead process left."""
    worker: str = ""
    fleet: str = ""
    """Whose containers they are, for people."""
    state: str = ""
    """The folder in which a new agent finds the host of containers; empty if it ends with its own.
    """
    gpus: bool = False
    """Whether the engine gives containers their GPUs."""


class Load(Struct, frozen=True, tag=True, array_like=True):
    """Import the apps, and say which kinds they have.

    Scratch folders go into `scratch`; `limits` says how much of what an attempt says is kept.
    The pool runs up to `slots` attempts at once. A process that runs one at a time takes no more
    after `max_jobs` of them, or when its memory is past `max_mb`; 0 is no limit. Only a worker that
    serves nothing but programs of submitters has no `app`.
    """

    app: str
    scratch: str = ""
    limits: LogLimits = LogLimits()
    slots: int = 1
    max_jobs: int = 0
    max_mb: int = 0
    programs: ProgramTerms = ProgramTerms()


class Run(Struct, frozen=True, tag=True, array_like=True):
    """Begin these attempts."""

    jobs: Sequence[Assignment]


class Abort(Struct, frozen=True, tag=True, array_like=True):
    """Stop these attempts; those that have ended already are ignored."""

    attempts: Sequence[AttemptKey]


class NoMore(Struct, frozen=True, tag=True, array_like=True):
    """No more attempts come for now: those that wait for others, to share a run, begin."""


class Close(Struct, frozen=True, tag=True, array_like=True):
    """Nothing more will come: run the apps' stop hooks, and end."""


class LeaseUntil(Struct, frozen=True, tag=True, array_like=True):
    """The worker's lease, by the clock that goes on while the machine sleeps.

    At `stop_at` attempts are asked to end, at `kill_at` the rest is killed.
    """

    stop_at: float
    kill_at: float


class Recorded(Struct, frozen=True, tag=True, array_like=True):
    """The store has the ends of these attempts: nobody will ask for them again."""

    tokens: Sequence[int]


class Loaded(Struct, frozen=True, tag=True, array_like=True):
    """The app is imported."""

    kinds: dict[str, KindInfo]


class LoadFailed(Struct, frozen=True, tag=True, array_like=True):
    """The app cannot be imported; the message is for the person who started the worker."""

    message: str


class Ended(Struct, frozen=True, tag=True, array_like=True):
    """Attempts that ended by themselves.

    A process that runs one attempt at a time says more of it: when it ended (on the monotonic
    clock, which all processes of a machine share), and how `worn` the process is. At 1 the process
    has used up its limits, and begins no more.
    """

    reports: Sequence[Report]
    ended_at: float = 0.0
    worn: float = 0.0


class Began(Struct, frozen=True, tag=True, array_like=True):
    """An attempt really begins only now.

    A program waited for its files or its image, an attempt of a batch for others.
    """

    token: int


class Stopped(Struct, frozen=True, tag=True, array_like=True):
    """Attempts that ended because they were aborted."""

    attempts: Sequence[AttemptKey]


class Said(Struct, frozen=True, tag=True, array_like=True):
    """What attempts say while they run."""

    entries: Sequence[LogEntry]


class Held(Struct, frozen=True, tag=True, array_like=True):
    """The attempts that run here, or whose ends may not be recorded: what they said follows."""

    attempts: Sequence[HeldAttempt]


ToHost = Load | Run | Abort | NoMore | Close | LeaseUntil | Recorded
FromHost = Loaded | LoadFailed | Began | Ended | Stopped | Said | Held

M = TypeVar("M")
T = TypeVar("T")


def pack(message: ToHost | FromHost) -> bytes:
    """The frame of a message."""
    body = _encoder.encode(message)
    if len(body) > MAX_FRAME_BYTES:
        raise ProtocolError(f"a {type(message).__name__} of {len(body):,} bytes is too large")
    return len(body).to_bytes(_LENGTH_BYTES, "big") + body


def portions(items: Sequence[T]) -> Iterator[Sequence[T]]:
    """The items in lists that are short enough for one frame each."""
    for first in range(0, len(items), ITEMS_PER_FRAME):
        yield items[first : first + ITEMS_PER_FRAME]


def said(entries: Sequence[LogEntry]) -> Iterator[Said]:
    """In portions: the agent passes on each before it reads the next, for it keeps only so many."""
    return map(Said, portions(entries))


class Unpacker(Generic[M]):
    """Turns the bytes of one direction into messages, however they are cut."""

    def __init__(self, decoder: msgspec.msgpack.Decoder[M]) -> None:
        self._decoder = decoder
        self._bytes = bytearray()
        self._buffer = bytearray()
        self.is_malformed = False
        """Whether nothing more can be read: what follows the last messages makes no sense."""

    def read(self, sock: socket.socket, flags: int = 0) -> tuple[int, list[M]]:
        """How many bytes came from a socket, and the messages that they complete.

        The buffer is kept. For a new one of its size the system maps memory at each read.
        """
        if not self._buffer:
            self._buffer = bytearray(_READ_BYTES)
        count = sock.recv_into(self._buffer, 0, flags)
        return count, self.feed(memoryview(self._buffer)[:count])

    def feed(self, data: bytes | memoryview) -> list[M]:
        """The messages that these bytes complete; raises `ProtocolError` if they are malformed.

        Messages before the first malformed one are answered all the same.
        """
        self._bytes += data
        messages: list[M] = []
        begin = 0
        try:
            while (body := self._body_at(begin)) is not None:
                messages.append(self._decode(body))
                begin += _LENGTH_BYTES + len(body)
        except ProtocolError:
            self.is_malformed = True
            if not messages:
                raise
        del self._bytes[:begin]
        return messages

    def _body_at(self, begin: int) -> bytes | None:
        body_at = begin + _LENGTH_BYTES
        if len(self._bytes) < body_at:
            return None
        length = int.from_bytes(self._bytes[begin:body_at], "big")
        if length > MAX_FRAME_BYTES:
            raise ProtocolError(f"a frame of {length:,} bytes is too large")
        end = body_at + length
        return bytes(self._bytes[body_at:end]) if len(self._bytes) >= end else None

    def _decode(self, body: bytes) -> M:
        try:
            return self._decoder.decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise ProtocolError(f"a frame is malformed: {error}") from None


def to_host() -> Unpacker[ToHost]:
    """Reads what an agent says."""
    return Unpacker(msgspec.msgpack.Decoder(ToHost))


def from_host() -> Unpacker[FromHost]:
    """Reads what a host says."""
    return Unpacker(msgspec.msgpack.Decoder(FromHost))
