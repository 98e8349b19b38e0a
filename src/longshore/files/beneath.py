"""Opens files below a folder, and never leaves it.

Who fills a folder may put a link anywhere in it, also while we look. So nothing here joins names
and opens the result. Linux opens a whole path below a descriptor and refuses links (`openat2`);
elsewhere each part is opened below the one before it, and a part that is a link is refused.
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Final

from longshore.core.file_paths import check_part, shown
from longshore.errors import InvalidInput

FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# Without O_NONBLOCK, opening a FIFO that took a file's place would wait for ever.
READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
_CREATE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC

_OPENAT2: Final = 437
_NO_MAGIC_LINKS: Final = 0x02
_NO_SYMLINKS: Final = 0x04
_BENEATH: Final = 0x08


class IsLink(InvalidInput):
    """A part of a path is a link."""


class _How(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


@cache
def has_openat2() -> bool:
    """Whether the system opens paths below a descriptor by itself."""
    if not sys.platform.startswith("linux"):
        return False
    folder = os.open("/", FOLDER)
    try:
        os.close(_openat2(folder, ".", FOLDER))
    except OSError:
        return False
    finally:
        os.close(folder)
    return True


def _openat2(folder: int, path: str, flags: int) -> int:
    # With O_NOFOLLOW a link as the last part would be told as "not a directory".
    how = _How(
        flags=flags & ~os.O_NOFOLLOW, mode=0, resolve=_BENEATH | _NO_SYMLINKS | _NO_MAGIC_LINKS
    )
    call = _syscall()
    made = call(_OPENAT2, folder, os.fsencode(path), ctypes.byref(how), ctypes.sizeof(how))
    if made < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), path)
    return int(made)


@cache
def _syscall() -> Callable[..., int]:
    found = ctypes.CDLL(None, use_errno=True).syscall
    found.restype = ctypes.c_long
    found.argtypes = (
        ctypes.c_long,
        ctypes.c_int,
        ctypes.c_char_p,
        ctypes.POINTER(_How),
        ctypes.c_size_t,
    )
    return found


def open_beneath(folder: int, parts: Sequence[str], flags: int) -> int:
    """A descriptor of what these names lead to; raises `IsLink` if one of them is a link."""
    for part in parts:
        check_part(part)
    try:
        if has_openat2():
            return _openat2(folder, "/".join(parts) or ".", flags)
        return _open_by_parts(folder, parts, flags)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.EXDEV, errno.EMLINK):
            raise IsLink(f"{shown('/'.join(parts))} is a link, or lies behind one") from None
        raise


def _open_by_parts(folder: int, parts: Sequence[str], flags: int) -> int:
    *way, last = parts or (".",)
    here = os.dup(folder)
    try:
        for name in way:
            here = _step(here, name)
        return os.open(last, flags, dir_fd=here)
    except NotADirectoryError:
        # O_DIRECTORY is checked before O_NOFOLLOW: a link says that it is no folder.
        if _is_link(here, last):
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), last) from None
        raise
    finally:
        os.close(here)


def _step(folder: int, name: str) -> int:
    """The folder of this name in one that is closed instead, unless it cannot be opened."""
    try:
        inner = os.open(name, FOLDER, dir_fd=folder)
    except NotADirectoryError:
        if _is_link(folder, name):
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), name) from None
        raise
    os.close(folder)
    return inner


def _is_link(folder: int, name: str) -> bool:
    with suppress(OSError):
        return stat.S_ISLNK(os.lstat(name, dir_fd=folder).st_mode)
    return False


@contextmanager
def opened(folder: int, parts: Sequence[str], flags: int = FOLDER) -> Iterator[int]:
    """A descriptor of what lies below a folder, while the block runs."""
    descriptor = open_beneath(folder, parts, flags)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def opened_folder(root: Path, parts: Sequence[str] = ()) -> Iterator[int]:
    """A descriptor of a folder below one that is our own, while the block runs.

    A link in its place is not followed: who runs in the folder may have put it there.
    """
    top = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        with opened(top, parts) as folder:
            yield folder
    finally:
        os.close(top)


@contextmanager
def made_folder(folder: int, parts: Sequence[str]) -> Iterator[int]:
    """A descriptor of a folder below another one, which is made if it is missing."""
    try:
        inner = open_beneath(folder, parts, FOLDER)
    except FileNotFoundError:
        for count in range(1, len(parts) + 1):
            _make(folder, parts[:count])
        inner = open_beneath(folder, parts, FOLDER)
    try:
        yield inner
    finally:
        os.close(inner)


def _make(folder: int, parts: Sequence[str]) -> None:
    with opened(folder, parts[:-1]) as above, suppress(FileExistsError):
        os.mkdir(parts[-1], 0o755, dir_fd=above)


def create(folder: int, name: str, mode: int) -> int:
    """A new file in a folder, to be written; raises `FileExistsError` if something is there."""
    check_part(name)
    return os.open(name, _CREATE, mode, dir_fd=folder)
