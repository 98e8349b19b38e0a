"""Copies a blob into a new file: by a reflink where the file system has them, else by bytes.

Never by a hard link: who may write to the copy must not change the blob.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import threading
from typing import Final

from longshore.errors import Damaged
from longshore.files.threads import IsStopped, Stopped

CHUNK_BYTES: Final = 1024 * 1024
"""Small enough for a processor's cache; threads change hands of the interpreter with each."""
WRITE_BYTES: Final = 128 * 1024
"""For larger writes the kernel looks for larger pieces of memory, and that takes it longer than to
write, when memory is in many pieces."""
_FICLONE: Final = 0x40049409
_own = threading.local()


def copy_blob(
    source: int, target: int, sha256: bytes, is_stopped: IsStopped = lambda: False
) -> int:
    """Copies an open blob, checked on the way, and answers its size.

    Raises `Damaged`, and `Stopped` if it is told so.
    """
    is_linked = _reflinked(source, target)
    made = hashlib.sha256()
    buffer = _buffer()
    offset = 0
    while count := os.preadv(source, [buffer], offset):
        if is_stopped():
            raise Stopped
        piece = buffer[:count]
        made.update(piece)
        if not is_linked:
            _write(target, piece)
        offset += count
    if made.digest() != sha256:
        raise Damaged(f"the blob {sha256.hex()} has other bytes than it had")
    return offset


def _buffer() -> memoryview:
    """This thread's own buffer."""
    if not hasattr(_own, "buffer"):
        _own.buffer = memoryview(bytearray(CHUNK_BYTES))
    found: memoryview = _own.buffer
    return found


def _reflinked(source: int, target: int) -> bool:
    try:
        fcntl.ioctl(target, _FICLONE, source)
    except OSError:
        return False
    return True


def _write(target: int, rest: memoryview) -> None:
    while rest:
        rest = rest[os.write(target, rest[:WRITE_BYTES]) :]
