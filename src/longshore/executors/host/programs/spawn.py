"""Starts a command, as the leader of a session of its own.

`os.posix_spawn` is the fastest way that Python has, and cannot change the folder: a host goes there
itself for a moment. No other code of a host needs a current folder. In a process that is not
Longshore's own, `subprocess` does it.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from functools import cache
from typing import Final, NamedTuple

_PYTHON_IGNORES: Final = (signal.SIGPIPE, signal.SIGXFSZ)
Environ = Mapping[bytes, bytes]
_Actions = list[tuple[int, int, int]]


class Started(NamedTuple):
    """A process that was started, and the descriptors from which its output is read."""

    pid: int
    stdout: int
    stderr: int


def start_in_folder(argv: list[str], environ: Environ, folder: str, stdin: str) -> Started:
    """Starts a command, for a process without another use for its current folder."""
    out, err = os.pipe2(os.O_CLOEXEC), os.pipe2(os.O_CLOEXEC)
    try:
        with _input(stdin) as read_from:
            actions = [
                (os.POSIX_SPAWN_DUP2, read_from, 0),
                (os.POSIX_SPAWN_DUP2, out[1], 1),
                (os.POSIX_SPAWN_DUP2, err[1], 2),
            ]
            pid = _spawned(argv, environ, folder, actions)
    except BaseException:
        os.close(out[0])
        os.close(err[0])
        raise
    finally:
        os.close(out[1])
        os.close(err[1])
    return Started(pid, out[0], err[0])


def _spawned(argv: list[str], environ: Environ, folder: str, actions: _Actions) -> int:
    home = _home()
    try:
        os.chdir(folder)
    except OSError as error:
        raise OSError(error.errno, f"its folder: {os.strerror(error.errno or errno.EIO)}") from None
    try:
        return os.posix_spawn(
            argv[0],
            argv,
            environ,
            file_actions=actions,
            setsid=True,
            setsigdef=_PYTHON_IGNORES,
        )
    finally:
        os.fchdir(home)


def start_beside_others(argv: list[str], environ: Environ, folder: str, stdin: str) -> Started:
    """Starts a command, for a process whose threads may be anywhere."""
    with _input(stdin) as read_from:
        process = subprocess.Popen(
            argv,
            stdin=read_from,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=folder,
            env=environ,
            start_new_session=True,
        )
    assert process.stdout is not None
    assert process.stderr is not None
    descriptors = [os.dup(stream.fileno()) for stream in (process.stdout, process.stderr)]
    process.stdout.close()
    process.stderr.close()
    # Whoever started it waits for it by its number: `subprocess` need not.
    process.returncode = 0
    return Started(process.pid, *descriptors)


@cache
def _home() -> int:
    """A descriptor of the folder in which this process was before its first command."""
    return os.open(".", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)


@cache
def _nothing() -> int:
    """A descriptor from which nothing is read, for all commands without input."""
    return os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)


def _input(text: str) -> AbstractContextManager[int]:
    """A descriptor from which a text is read."""
    return _memory(text) if text else contextlib.nullcontext(_nothing())


@contextlib.contextmanager
def _memory(text: str) -> Iterator[int]:
    descriptor = os.memfd_create("stdin")
    try:
        with os.fdopen(os.dup(descriptor), "wb") as file:
            file.write(text.encode("utf-8", "surrogateescape"))
        os.lseek(descriptor, 0, os.SEEK_SET)
        yield descriptor
    finally:
        os.close(descriptor)
