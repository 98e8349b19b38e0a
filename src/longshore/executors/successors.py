"""How a new agent finds the hosts that its predecessor left: each listens in the state folder.

    STATE/hosts/PID.sock

Both ends check that the other is of the same user. The sockets are addressed through a descriptor
of their folder, since the path of a socket may have no more than 107 bytes.
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

_HOSTS: Final = "hosts"
_SUFFIX: Final = ".sock"
_CREDENTIALS: Final = "3i"


class Peer(NamedTuple):
    """The process at the other end of a socket."""

    pid: int
    uid: int


def listen(state: str) -> socket.socket:
    """A socket for the next agent of this worker; it has the number of this process."""
    folder = Path(state, _HOSTS)
    folder.mkdir(mode=0o700, exist_ok=True)
    listening = socket.socket(socket.AF_UNIX)
    with _addressed(folder) as address:
        name = f"{address}/{os.getpid()}{_SUFFIX}"
        Path(name).unlink(missing_ok=True)
        listening.bind(name)
    listening.listen()
    listening.setblocking(False)
    return listening


def stop_listening(state: str) -> None:
    """Nobody will find this process any more."""
    Path(state, _HOSTS, f"{os.getpid()}{_SUFFIX}").unlink(missing_ok=True)


def forget_hosts(state: str) -> None:
    """No host in this folder can be one of ours."""
    for path in Path(state, _HOSTS).glob(f"*{_SUFFIX}"):
        path.unlink(missing_ok=True)


def left_hosts(state: str) -> list[tuple[socket.socket, Peer]]:
    """Connections to the hosts that listen in a state folder. What dead ones left is removed."""
    found = []
    for path in sorted(Path(state, _HOSTS).glob(f"*{_SUFFIX}")):
        try:
            link = _connected(path)
        except (ConnectionRefusedError, FileNotFoundError):
            path.unlink(missing_ok=True)
            continue
        if (peer := peer_of(link)).uid == os.geteuid():
            found.append((link, peer))
        else:
            link.close()
    return found


def peer_of(link: socket.socket) -> Peer:
    """Who is at the other end."""
    size = struct.calcsize(_CREDENTIALS)
    told = link.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
    pid, uid, _ = struct.unpack(_CREDENTIALS, told)
    return Peer(pid, uid)


def _connected(path: Path) -> socket.socket:
    link = socket.socket(socket.AF_UNIX)
    try:
        with _addressed(path.parent) as address:
            link.connect(f"{address}/{path.name}")
    except OSError:
        link.close()
        raise
    return link


@contextlib.contextmanager
def _addressed(folder: Path) -> Iterator[str]:
    """A short path of a folder."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)
