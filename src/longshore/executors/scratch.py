"""Folders that attempts may fill. Each is removed when its attempt ends.

    SCRATCH/longshore-scratch-x1y2/  one for each worker; its agent holds the lock
        lock
        JOB-TOKEN/                   one for each attempt that asked for it
        spare-HOST-NUMBER/           one for a command after another

The host removes a folder when its attempt ends. If the host dies, its agent does. If the agent dies
too, the next worker that starts there does: it finds a lock that no process holds.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple
from uuid import UUID

from longshore.errors import ConfigError
from longshore.model.attempt import AttemptKey

PREFIX = "longshore-scratch-"
_LOCK = "lock"

_room: Path | None = None


class Room(NamedTuple):
    """A worker's own folder. It stays for as long as a process has the descriptor of its lock."""

    path: str
    lock: int


@contextlib.contextmanager
def room(folder: str) -> Iterator[Room]:
    """A worker's own folder in `folder`, or in the system's temporary one, for as long as it runs.

    Removes what dead workers left there.
    """
    parent = Path(folder or tempfile.gettempdir()).absolute()
    try:
        parent.mkdir(parents=True, exist_ok=True)
        sweep(parent)
        path, lock = _locked(parent)
    except OSError as error:
        raise ConfigError(
            f"no scratch folders can be made in {parent}: {error.strerror}; set scratch to a "
            "folder that this user may write to"
        ) from None
    try:
        yield Room(str(path), lock)
    finally:
        remove(path)
        os.close(lock)


def sweep(parent: Path) -> None:
    """Removes the folders of workers that are gone."""
    for path in parent.glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):
            lock = os.open(path / _LOCK, os.O_RDWR)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                remove(path)
            finally:
                os.close(lock)


def _locked(parent: Path) -> tuple[Path, int]:
    # Others look for the final name: the folder gets it once it is locked, not before.
    made = Path(tempfile.mkdtemp(prefix=f".{PREFIX}", dir=parent))
    lock = os.open(made / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    path = made.with_name(made.name.removeprefix("."))
    made.rename(path)
    return path, lock


def discard(room: str, attempts: Iterable[AttemptKey]) -> None:
    """Removes the folders of attempts whose host died; returns at once."""
    paths = [_path(Path(room), *attempt) for attempt in attempts] if room else []
    left = [path for path in paths if path.exists()]
    if left:
        threading.Thread(target=lambda: list(map(remove, left)), daemon=True).start()


def discard_spare(room: str, host: int) -> None:
    """Removes the folders that a dead host gave to one attempt after another."""
    for path in Path(room).glob(f"spare-{host}-*") if room else ():
        remove(path)


# in a host


def settle(room: str) -> None:
    """Puts the folders of this process's attempts into the worker's own folder."""
    global _room
    _room = Path(room) if room else None


def make(job: UUID, token: int) -> Path:
    """Makes an attempt's folder; without a worker, in the system's temporary folder."""
    if _room is None:
        # Not under the name of a room: one that holds a file "lock" would be taken for left behind.
        return Path(tempfile.mkdtemp(prefix=f"longshore-job-{job}-{token}-"))
    path = _path(_room, job, token)
    # The room itself may be gone: some systems tidy up their temporary folders.
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    return path


def make_spare(host: int, number: int) -> Path:
    """Makes a folder for one attempt after another; without a worker, a temporary one."""
    if _room is None:
        return Path(tempfile.mkdtemp(prefix="longshore-spare-"))
    path = _room / f"spare-{host}-{number}"
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    return path


def remove(path: Path) -> None:
    """Removes a folder with everything in it, as far as that is possible."""
    with contextlib.suppress(RecursionError):
        shutil.rmtree(path, ignore_errors=True)
    if os.path.lexists(path):
        with contextlib.suppress(OSError):
            _insist(path)


def _insist(path: Path) -> None:
    """Removes folders that may not be written to, and those that are nested too deep for Python."""
    if path.is_symlink():
        path.unlink()
        return
    found, folders = [str(path)], list[str]()
    while found:
        here = found.pop()
        folders.append(here)
        os.chmod(here, 0o700)
        with os.scandir(here) as inside:
            for one in inside:
                if one.is_dir(follow_symlinks=False):
                    found.append(one.path)
                else:
                    os.unlink(one.path)
    for folder in reversed(folders):
        os.rmdir(folder)


def _path(room: Path, job: UUID, token: int) -> Path:
    return room / f"{job}-{token}"
