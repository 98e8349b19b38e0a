"""The state folder of a worker: what its next agent needs if this one is killed.

    STATE/
        lock        the agent holds it: one folder, one agent
        worker      the worker's id, the last session that it asked for, and where that was
        begun       a journal: which attempts began, ended and were recorded
        hosts/      how to reach the processes that outlive the agent (`executors.successors`)

It is believed only where it was written: on the same machine since the same boot, in the same
namespace of process numbers. So nothing is synced to a disk: what a process has written outlives
it, and after a power cut it is another boot.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final
from uuid import UUID

import msgspec
from msgspec import Struct

from longshore.core.takeback import BegunAttempt
from longshore.errors import ConfigError
from longshore.executors.process_marks import place
from longshore.executors.successors import forget_hosts
from longshore.model.attempt import Assignment

log = logging.getLogger("longshore.worker")

JOURNAL_BYTES: Final = 1024 * 1024
"""A longer journal is written anew, without what is recorded."""


class _Kept(Struct, frozen=True):
    place: str
    worker: UUID
    session: int


class _Ended(Struct, frozen=True, tag="ended", array_like=True):
    token: int


class _Recorded(Struct, frozen=True, tag="recorded", array_like=True):
    tokens: tuple[int, ...]


class _Began(Struct, frozen=True, tag="began", array_like=True):
    token: int
    job: UUID
    kind: str


_Line = _Began | _Ended | _Recorded
_lines: Final = msgspec.json.Decoder(_Line)


@contextlib.contextmanager
def worker_state(folder: str) -> Iterator[StateFolder | None]:
    """The state of a worker; none if no folder is given. A worker that left in order leaves none.

    Raises `ConfigError` if another worker has the folder.
    """
    if not folder:
        yield None
        return
    lock = _locked(Path(folder).absolute())
    try:
        state = StateFolder(Path(folder).absolute(), place())
        yield state
        state.forget()
    finally:
        os.close(lock)


def _locked(folder: Path) -> int:
    if sys.platform != "linux":
        raise ConfigError("state_folder: only Linux has what it needs; leave it empty")
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise ConfigError(
            f"state_folder: {folder} cannot be used: {error.strerror}; set it to a folder that "
            "this user may write to"
        ) from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        owner = os.pread(lock, 32, 0).decode("ascii", "replace").strip() or "unknown"
        os.close(lock)
        raise ConfigError(
            f"state_folder: another worker (process {owner}) uses {folder}; give each worker a "
            "folder of its own"
        ) from None
    os.ftruncate(lock, 0)
    os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)
    return lock


class StateFolder:
    """A `WorkerState` in a folder. `here` is the place in which it must have been written."""

    def __init__(self, folder: Path, here: str) -> None:
        self.folder = folder
        self._here = here
        self._begun: dict[int, BegunAttempt] = {}
        self._bytes = 0
        self._is_broken = False
        self._kept = self._believed()
        self._journal = -1
        if self._kept is not None:
            self._begun = _read(folder / "begun")
        else:
            self._remove("worker", "begun")
            forget_hosts(str(folder))
        self._rewrite()

    @property
    def worker(self) -> UUID | None:
        """The id of the worker that an earlier agent was."""
        return None if self._kept is None else self._kept.worker

    @property
    def session(self) -> int:
        """The last session that it asked for."""
        return 0 if self._kept is None else self._kept.session

    @property
    def begun(self) -> Sequence[BegunAttempt]:
        """What it had begun, and may not have seen recorded."""
        return list(self._begun.values())

    def joining(self, worker: UUID, session: int) -> None:
        """The agent asks for a session."""
        self._kept = _Kept(self._here, worker, session)
        if self._is_broken:
            return
        with self._writing():
            _replace(self.folder / "worker", msgspec.json.encode(self._kept))

    def began(self, assignment: Assignment) -> None:
        """An attempt begins."""
        job, token, kind = assignment.job, assignment.token, assignment.kind
        self._begun[token] = BegunAttempt(job, token, kind)
        self._note(_Began(token, job, kind))

    def ended(self, token: int) -> None:
        """An attempt has ended."""
        if (one := self._begun.get(token)) is not None:
            self._begun[token] = msgspec.structs.replace(one, ended=True)
            self._note(_Ended(token))

    def recorded(self, tokens: Iterable[int]) -> None:
        """The store has the ends of these."""
        known = tuple(token for token in tokens if self._begun.pop(token, None) is not None)
        if known:
            self._note(_Recorded(known))

    def forget(self) -> None:
        """The worker has lost its id, or left: the next agent is another worker."""
        self._kept = None
        self._begun.clear()
        self._remove("worker")
        self._rewrite()

    def _believed(self) -> _Kept | None:
        try:
            kept = msgspec.json.decode((self.folder / "worker").read_bytes(), type=_Kept)
        except (OSError, msgspec.MsgspecError):
            return None
        if kept.place == self._here:
            return kept
        log.warning("%s is of another machine or boot: it is not believed", self.folder)
        return None

    def _note(self, line: _Line) -> None:
        data = msgspec.json.encode(line) + b"\n"
        with self._writing():
            os.write(self._journal, data)
        self._bytes += len(data)
        if self._bytes > JOURNAL_BYTES:
            self._rewrite()

    def _rewrite(self) -> None:
        """Begins the journal anew, with what is not recorded."""
        lines: list[_Line] = []
        for one in self._begun.values():
            lines.append(_Began(one.token, one.job, one.kind))
            if one.ended:
                lines.append(_Ended(one.token))
        data = b"".join(msgspec.json.encode(line) + b"\n" for line in lines)
        with self._writing():
            _replace(self.folder / "begun", data)
            if self._journal >= 0:
                os.close(self._journal)
            flags = os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC
            self._journal = os.open(self.folder / "begun", flags)
        self._bytes = 0

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        """If the folder cannot be written, the next agent must not believe it."""
        try:
            yield
        except OSError as error:
            if self._is_broken:
                return
            self._is_broken = True
            self._remove("worker")
            log.error(
                "%s cannot be written (%s): if this worker is killed, its containers are not "
                "taken back",
                self.folder,
                error.strerror,
            )

    def _remove(self, *names: str) -> None:
        for name in names:
            with contextlib.suppress(OSError):
                (self.folder / name).unlink(missing_ok=True)


def _read(journal: Path) -> dict[int, BegunAttempt]:
    """The attempts in a journal. Its last line may be cut off."""
    begun: dict[int, BegunAttempt] = {}
    for line in _complete_lines(journal):
        match line:
            case _Began(token=token, job=job, kind=kind):
                begun[token] = BegunAttempt(job, token, kind)
            case _Ended(token=token) if token in begun:
                begun[token] = msgspec.structs.replace(begun[token], ended=True)
            case _Recorded(tokens=tokens):
                for token in tokens:
                    begun.pop(token, None)
    return begun


def _complete_lines(journal: Path) -> Iterator[_Line]:
    try:
        lines = journal.read_bytes().splitlines()
    except OSError:
        return
    for line in lines:
        with contextlib.suppress(msgspec.MsgspecError):
            yield _lines.decode(line)


def _replace(path: Path, data: bytes) -> None:
    new = path.with_suffix(".new")
    new.write_bytes(data)
    new.replace(path)
