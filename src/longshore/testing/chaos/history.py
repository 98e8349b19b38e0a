"""What happened in a run: each fault, each call of a client, each body, as lines of JSON.

Times are seconds of the machine's monotonic clock, which all processes of a run share. A history is
only added to, by many threads and processes: a line is one write with O_APPEND.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

BODIES_VARIABLE = "CHAOS_BODIES"
"""Names the file to which bodies add their lines."""
PAUSED = "paused"
"""What becomes of a nominal time that was not decided when its schedule was paused."""
WORKER_VARIABLE = "CHAOS_WORKER"
"""Names the worker process in whose environment a body runs."""


class Event(Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="what", tag=str.lower):
    """Something that happened."""

    at: float = 0.0


class Called(Event, frozen=True, kw_only=True, omit_defaults=True):
    """A client begins to submit a job. `ends` are the states in which it may end."""

    job: str
    sort: str
    client: str = ""
    ends: tuple[str, ...] = ("succeeded",)
    after: tuple[str, ...] = ()
    """Jobs of its group that must have ended before it begins."""
    callback: bool = False
    children: int = 0
    """How many jobs it submits or adds with its success."""
    files: bool = False
    """Whether it publishes a version with its success."""
    sends_to: str = ""
    """The actor to which it sends one message with its success."""


class Accepted(Event, frozen=True, kw_only=True, omit_defaults=True):
    """A client heard that a job is accepted."""

    job: str


class Refused(Event, frozen=True, kw_only=True, omit_defaults=True):
    """A client heard that something is refused for good, which nothing here should be."""

    subject: str
    why: str


class Seen(Event, frozen=True, kw_only=True, omit_defaults=True):
    """A client was told the outcome of a job."""

    job: str
    state: str
    attempt: str = ""
    """Which attempt's result it is, if it succeeded and its result says so."""


class Began(Event, frozen=True, kw_only=True, omit_defaults=True):
    """A body begins. `keys` are those of its limits."""

    job: str
    attempt: str
    worker: str
    sort: str
    keys: tuple[str, ...] = ()
    parent: str = ""


class Beat(Event, frozen=True, kw_only=True, omit_defaults=True):
    """A body runs."""

    job: str
    attempt: str


class Over(Event, frozen=True, kw_only=True, omit_defaults=True):
    """A body has ended, by itself."""

    job: str
    attempt: str


class Found(Event, frozen=True, kw_only=True, omit_defaults=True):
    """What the store says of a job when all is over. `ends` are the ends of its history."""

    job: str
    kind: str
    state: str
    attempt: str = ""
    ends: tuple[str, ...] = ()
    attempts: int = 0
    crashes: int = 0
    why: str = ""


class Missing(Event, frozen=True, kw_only=True, omit_defaults=True):
    """The store says that there is no such job."""

    job: str


class Told(Event, frozen=True, kw_only=True, omit_defaults=True):
    """A callback arrived: the job has ended so."""

    job: str
    state: str


class Sent(Event, frozen=True, kw_only=True, omit_defaults=True):
    """A message was accepted for an actor: the `n`-th of its sender."""

    actor: str
    sender: str
    n: int


class Applied(Event, frozen=True, kw_only=True, omit_defaults=True):
    """The messages that an actor applied, in their order: (sender, n, forwarded to)."""

    actor: str
    entries: tuple[tuple[str, int, str], ...]


class Fires(Event, frozen=True, kw_only=True, omit_defaults=True):
    """The fires of a schedule: (nominal time, fate, how many, subject, outcome)."""

    schedule: str
    every_s: float
    fires: tuple[tuple[float, str, int, str, str], ...]
    paused_at: float = 0.0
    """By the store's clock: times not decided by then have no run. 0: it is not paused."""


class Versions(Event, frozen=True, kw_only=True, omit_defaults=True):
    """The jobs that published the versions of a fileset."""

    jobs: tuple[str, ...]


class Struck(Event, frozen=True, kw_only=True, omit_defaults=True):
    """A fault begins. `whom` is the process, `worker` the name by which its bodies know it."""

    fault: int
    deed: str
    whom: str
    worker: str = ""
    words: str = ""


class Healed(Event, frozen=True, kw_only=True, omit_defaults=True):
    """A fault is over: what was cut is joined, what was killed is started again."""

    fault: int


class Ended(Event, frozen=True, kw_only=True, omit_defaults=True):
    """A process ended although nobody ended it; it was started again."""

    whom: str
    code: int


class Hiccup(Event, frozen=True, kw_only=True, omit_defaults=True):
    """The machine let this process wait for so long, up to now."""

    seconds: float


class StoreAway(Event, frozen=True, kw_only=True, omit_defaults=True):
    """For so long, up to now, no PostgreSQL of the cluster accepted a commit."""

    seconds: float


class Lease(Event, frozen=True, kw_only=True, omit_defaults=True):
    """For how long a worker may go on without hearing of its dispatcher."""

    seconds: float


class Phase(Event, frozen=True, kw_only=True, omit_defaults=True):
    """A part of the run begins: warm, storm, calm, read."""

    name: str


class Left(Event, frozen=True, kw_only=True, omit_defaults=True):
    """When the run gave up to wait, so many jobs had not ended."""

    jobs: int
    examples: tuple[str, ...] = ()


AnyEvent = (
    Called
    | Accepted
    | Refused
    | Seen
    | Began
    | Beat
    | Over
    | Found
    | Missing
    | Told
    | Sent
    | Applied
    | Fires
    | Versions
    | Struck
    | Healed
    | Ended
    | Hiccup
    | StoreAway
    | Lease
    | Phase
    | Left
)

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(AnyEvent).decode


class Writer:
    """Adds events to a file, from any thread or process."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def add(self, event: AnyEvent) -> None:
        """The event is in the file, with the time of now unless it has one."""
        if not event.at:
            event = msgspec.structs.replace(event, at=time.monotonic())
        os.write(self._file, _encode(event) + b"\n")

    def close(self) -> None:
        """Adds no more."""
        os.close(self._file)


def read(*paths: Path) -> list[AnyEvent]:
    """All events of some files, by their times; a last line that was cut off is left out."""
    events = [event for path in paths if path.exists() for event in _lines(path)]
    return sorted(events, key=lambda event: event.at)


def _lines(path: Path) -> Iterator[Any]:
    with path.open("rb") as lines:
        for line in lines:
            if line.endswith(b"\n"):
                yield _decode(line)
