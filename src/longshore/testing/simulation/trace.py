"""Everything that happened, in order, and the story of one job among it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from typing import Any, Final, get_args
from uuid import UUID

import msgspec

from longshore.model.attempt import AttemptKey
from longshore.wire import messages as m

_TYPES: Final[dict[bytes, msgspec.msgpack.Decoder[Any]]] = {
    kind.__name__.upper().encode(): msgspec.msgpack.Decoder(kind)
    for union in (m.WorkerMessage, m.DispatcherMessage, m.Request, m.Answer)
    for kind in get_args(union)
}

JOB_BYTES: Final = 16
"""Jobs of plain workers are named by their ids in simulations."""


class Entry(msgspec.Struct, frozen=True):
    """Something that happened at a place, and which jobs it is about."""

    at: float
    who: str
    text: str
    jobs: tuple[UUID, ...] = ()


class Passage(msgspec.Struct, frozen=True):
    """A message that was sent, arrived or got lost. What it says is read only when asked for."""

    at: float
    who: str
    fate: str
    frames: Sequence[bytes]


class Trace:
    """What happened so far. `names` are how jobs and workers are called in it."""

    def __init__(self) -> None:
        self.names: dict[UUID, str] = {}
        self.owners: dict[UUID, UUID] = {}
        """Jobs that are turns, and their actors."""
        self.lost = 0
        """How many messages got lost."""
        self._entries: list[Entry | Passage] = []
        self._is_closed = False

    def close(self) -> None:
        """Whatever happens from now on is no part of it."""
        self._is_closed = True

    def note(self, at: float, who: str, text: str, *jobs: UUID) -> None:
        """Something happened."""
        if not self._is_closed:
            self._entries.append(Entry(at, who, text, jobs))

    def passage(self, at: float, who: str, fate: str, frames: Sequence[bytes]) -> None:
        """A message was sent, arrived or got lost."""
        if not self._is_closed:
            self.lost += fate == "lost"
            self._entries.append(Passage(at, who, fate, frames))

    def name(self, id: UUID | None) -> str:
        """How a job or a worker is called."""
        return self.names.get(id, str(id)) if id is not None else "nobody"

    def digest(self) -> str:
        """A number for all of it: two runs of a seed have the same."""
        hashed = blake2b(digest_size=8)
        for entry in self._entries:
            hashed.update(f"{entry.at!r} {entry.who} ".encode())
            if isinstance(entry, Passage):
                hashed.update(entry.fate.encode())
                for frame in entry.frames:
                    hashed.update(frame)
            else:
                hashed.update(entry.text.encode())
        return hashed.hexdigest()

    def lines(self) -> Iterator[str]:
        """All of it, as text."""
        return (self._line(entry) for entry in self._entries)

    def story(self, job: UUID) -> Iterator[str]:
        """What is about one job, or an actor and its turns; faults are about all of them.

        What is said every second is not.
        """
        told = {job, *(turn for turn, actor in self.owners.items() if actor == job)}
        for entry in self._entries:
            if isinstance(entry, Passage):
                if any(self._is_about(entry.frames, one) for one in told):
                    yield self._line(entry)
            elif not told.isdisjoint(entry.jobs) or not entry.jobs:
                yield self._line(entry)

    def _is_about(self, frames: Sequence[bytes], job: UUID) -> bool:
        if len(frames) == 2:
            return frames[1] == job.bytes or frames[1].startswith(str(job).encode())
        message = _read(frames)
        return not isinstance(message, m.Ping | m.Wait) and job in _jobs_of(message)

    def _line(self, entry: Entry | Passage) -> str:
        if isinstance(entry, Passage):
            text = f"{entry.fate} {self._words(_read(entry.frames), entry.frames)}"
        else:
            text = entry.text
        return f"{entry.at:12.6f}  {entry.who:<10}  {text}"

    def _words(self, message: msgspec.Struct | None, frames: Sequence[bytes]) -> str:
        if len(frames) == 2:
            return self._plain_words(frames[1])
        verb = frames[1].decode() if frames else "nothing"
        match message:
            case m.Jobs(_, seq, jobs):
                return f"{verb} {seq}: {self._attempts(job.key for job in jobs)}"
            case m.Done(_, reports):
                said = (
                    f"{self._attempt(one.key)} {type(one).__struct_config__.tag}" for one in reports
                )
                return f"{verb} {', '.join(said)}"
            case m.Abort(_, attempts, reason):
                return f"{verb} {self._attempts(attempts)}: {reason}"
            case m.Ack(_, attempts, stale):
                refused = f", stale {self._attempts(stale)}" if stale else ""
                return f"{verb} {self._attempts(attempts)}{refused}"
            case m.Ready() | m.Ping():
                return self._presence(verb, message)
            case m.Pong(_, no, _, lease_s):
                return f"{verb} {no}" + (f", lease {lease_s:g} s" if lease_s else ", no lease")
            case m.Welcome(_, session):
                return f"{verb} session {session}"
            case m.Gone(_, reason) | m.Exit(_, reason) | m.Bye(_, reason):
                return f"{verb}: {reason}"
            case m.Submit(rid) | m.Wait(rid) | m.Cancel(rid) | m.Retry(rid):
                return f"{verb} #{rid} {', '.join(map(self.name, _jobs_of(message)))}"
            case m.Ok(rid) | m.Err(rid):
                return f"{verb} #{rid}"
            case _:
                return verb

    def _plain_words(self, frame: bytes) -> str:
        if len(frame) == JOB_BYTES:
            return f"the job {self.name(UUID(bytes=frame))}"
        return frame.decode(errors="replace")

    def _presence(self, verb: str, said: m.Ready | m.Ping) -> str:
        first = f"as {self.name(said.worker)}" if isinstance(said, m.Ready) else f"{said.no}"
        seen = f", seen {said.seen}" if isinstance(said, m.Ping) else ""
        held = f", holds {self._attempts(said.held)}" if said.held else ""
        unheard = said.unacknowledged
        waiting = f", reported {self._attempts(unheard)}" if unheard else ""
        return f"{verb} {first}{seen}{held}{waiting}"

    def _attempt(self, attempt: AttemptKey) -> str:
        job, token = attempt
        return f"{self.name(job)}@{token}"

    def _attempts(self, attempts: Iterable[AttemptKey]) -> str:
        return ", ".join(map(self._attempt, attempts)) or "none"


def _read(frames: Sequence[bytes]) -> msgspec.Struct | None:
    decoder = _TYPES.get(frames[1]) if len(frames) == 3 else None
    read: msgspec.Struct | None = decoder.decode(frames[2]) if decoder else None
    return read


def _jobs_of(message: msgspec.Struct | None) -> list[UUID]:
    match message:
        case m.Jobs(_, _, jobs):
            return [job.job for job in jobs]
        case m.Done(_, reports):
            return [report.job for report in reports]
        case m.Abort(_, attempts):
            return [job for job, _ in attempts]
        case m.Ack(_, attempts, stale):
            return [job for job, _ in (*attempts, *stale)]
        case m.Ready() | m.Ping():
            return [job for job, _ in (*message.held, *message.unacknowledged)]
        case m.Submit(_, submissions):
            return [job.id for job in submissions]
        case m.Wait(_, waited):
            return list(waited)
        case m.Cancel(_, _, refs) | m.Retry(_, _, refs):
            return [ref for ref in refs if isinstance(ref, UUID)]
        case _:
            return []


def _how(report: m.Report) -> object:
    """How an attempt ended, in the word that goes over the wire."""
    return type(report).__struct_config__.tag
