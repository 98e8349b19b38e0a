"""The processes of one command: found, asked to end, killed until none is left.

The host is a *child subreaper*: whatever a command starts and abandons becomes the host's own
child, so every process of its commands is its descendant, daemons too. Which command an abandoned
one belongs to is told by its session, or by `LONGSHORE_TOKEN` in its environment. One that has
neither any more is killed when the host runs no command at all.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from longshore.executors.left_behind import environment_of

_PR_SET_CHILD_SUBREAPER: Final = 36
_READ_BYTES: Final = 64 * 1024
_PAGE: Final = os.sysconf("SC_PAGE_SIZE")


class Entry(NamedTuple):
    """One process: its parent, its session, when it started, and its resident memory."""

    pid: int
    parent: int
    session: int
    started: int
    is_dead: bool
    resident_bytes: int


def become_subreaper() -> None:
    """On Linux, makes this process inherit what its descendants abandon."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def own_children() -> list[int] | None:
    """The children of this process's main thread; None if the system does not tell."""
    own = os.getpid()
    try:
        # Without a file object: this is looked at after each command.
        descriptor = os.open(f"/proc/{own}/task/{own}/children", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        found = b"".join(iter(lambda: os.read(descriptor, _READ_BYTES), b""))
        return [int(pid) for pid in found.split()]
    except OSError:
        return None
    finally:
        os.close(descriptor)


def table() -> dict[int, Entry]:
    """All processes that this one can see."""
    entries = (_entry(int(name)) for name in os.listdir("/proc") if name.isdigit())
    return {entry.pid: entry for entry in entries if entry is not None}


def _entry(pid: int) -> Entry | None:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b") ")[2].split()
    except OSError:
        return None
    return Entry(
        pid,
        int(fields[1]),
        int(fields[3]),
        int(fields[19]),
        fields[0] in (b"Z", b"X"),
        int(fields[21]) * _PAGE,
    )


class Trees:
    """The trees of all commands that run, by token.

    If it `is_alone`, every child of this process belongs to one of them.
    """

    def __init__(self, *, is_alone: bool = True) -> None:
        self._leaders: dict[int, int] = {}
        self._own = os.getpid()
        self._is_alone = is_alone

    def add(self, token: int, leader: int) -> None:
        """A command began; its leader leads a session of its own."""
        self._leaders[token] = leader

    def forget(self, token: int) -> None:
        """Nothing of a command is left."""
        del self._leaders[token]

    def has_strays(self) -> bool:
        """Whether this process may have children that no command leads. It takes no scan."""
        children = own_children()
        return children is None or not {*children} <= {*self._leaders.values()}

    def members(self, token: int) -> list[Entry]:
        """The processes of a command that live."""
        found = table()
        roots = [pid for pid in self._roots(found, token) if pid in found]
        return [entry for entry in _descendants(found, roots) if not entry.is_dead]

    def _roots(self, found: dict[int, Entry], token: int) -> Iterator[int]:
        leader, leaders = self._leaders[token], {*self._leaders.values()}
        yield leader
        for entry in found.values():
            if entry.parent != self._own or entry.pid in leaders:
                continue
            if entry.is_dead:
                if self._is_alone:
                    _reap(entry.pid)
            elif entry.session in leaders:
                if entry.session == leader:
                    yield entry.pid
            elif self._belongs(entry.pid, token):
                yield entry.pid

    def _belongs(self, pid: int, token: int) -> bool:
        """Whether an abandoned process is of this command, or of nobody else when it is alone."""
        named = token_of(pid)
        if named is None or named not in self._leaders:
            return self._is_alone and len(self._leaders) == 1
        return named == token


def token_of(pid: int) -> int | None:
    """The token of the attempt that started a process, by its environment."""
    for entry in environment_of(pid):
        if entry.startswith(b"LONGSHORE_TOKEN="):
            value = entry.partition(b"=")[2]
            return int(value) if value.isdigit() else None
    return None


def _descendants(found: dict[int, Entry], roots: Iterable[int]) -> list[Entry]:
    children: dict[int, list[int]] = {}
    for entry in found.values():
        children.setdefault(entry.parent, []).append(entry.pid)
    seen: dict[int, Entry] = {}
    left = list(roots)
    while left:
        pid = left.pop()
        if pid not in seen:
            seen[pid] = found[pid]
            left.extend(children.get(pid, ()))
    return list(seen.values())


def send_signal(entries: Iterable[Entry], number: signal.Signals) -> None:
    """Sends a signal to processes, unless another process has their number by now."""
    for entry in entries:
        with contextlib.suppress(OSError):
            descriptor = os.pidfd_open(entry.pid)
            try:
                now = _entry(entry.pid)
                if now is not None and now.started == entry.started:
                    signal.pidfd_send_signal(descriptor, number)
            finally:
                os.close(descriptor)


def _reap(pid: int) -> None:
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)
