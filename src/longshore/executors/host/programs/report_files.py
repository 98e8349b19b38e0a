"""The files by which a program without any SDK tells its result and how far it is.

`LONGSHORE_RESULT` names a file: the JSON in it becomes the job's result. `LONGSHORE_PROGRESS` names
another: each line `DONE[/TOTAL] [text]` that is appended is progress. What is there instead of a
plain file of bounded size is refused, or ignored if it is only progress.
"""

from __future__ import annotations

import asyncio
import os
import re
import stat
from math import isfinite
from typing import Any, Final

import msgspec

from longshore.errors import InvalidInput
from longshore.executors.output.attempt_log import AttemptLog
from longshore.executors.text import bounded
from longshore.model.job import Progress
from longshore.payload import values

RESULT: Final = "result"
PROGRESS: Final = "progress"
MAX_RESULT_BYTES: Final = 16 * 1024 * 1024
"""How much of a result is read: whatever is larger is refused, whatever its value is."""
MAX_PROGRESS_BYTES: Final = 64 * 1024
MAX_TEXT_BYTES: Final = 4 * 1024
LOOK_EVERY_S: Final = 0.2
"""How often progress is looked for."""

_PROGRESS: Final = re.compile(r"\s*([0-9.eE+]+)(?:\s*/\s*([0-9.eE+]+))?(?:\s+(.*))?\s*")


def read_result(path: str) -> bytes:
    """The result that a program has left in a file, packed; raises `InvalidInput` if it is none."""
    try:
        data = _read(path, 0, MAX_RESULT_BYTES + 1)
    except FileNotFoundError:
        return values.NONE
    except OSError as error:
        raise InvalidInput(f"the file LONGSHORE_RESULT cannot be read: {error.strerror}") from None
    if not data.strip():
        return values.NONE
    if len(data) > MAX_RESULT_BYTES:
        raise InvalidInput(
            f"the file LONGSHORE_RESULT has more than {MAX_RESULT_BYTES:,} bytes; publish large "
            "data as a fileset"
        )
    return values.pack(_json(data), "the result in LONGSHORE_RESULT")


def _json(data: bytes) -> Any:
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidInput(
            f"the file LONGSHORE_RESULT is not JSON: {error}; write one JSON value to it"
        ) from None


class ProgressFile:
    """Reads what a program appends to its progress file."""

    def __init__(self, path: str, log: AttemptLog) -> None:
        self._path = path
        self._log = log
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._read_bytes = 0
        self._rest = b""

    def watch(self) -> None:
        """Looks now and then, until the end."""
        self._timer = self._loop.call_later(LOOK_EVERY_S, self._look_again)

    def _look_again(self) -> None:
        self.look()
        self.watch()

    def look(self) -> None:
        """Tells the newest progress, if there is news."""
        try:
            data = _read(self._path, self._read_bytes, MAX_PROGRESS_BYTES)
        except OSError:
            return
        if not data:
            return
        self._read_bytes += len(data)
        *lines, rest = (self._rest + data).split(b"\n")
        self._rest = rest[-MAX_TEXT_BYTES:]
        found = (_progress(line) for line in reversed(lines))
        newest = next((one for one in found if one is not None), None)
        if newest is not None:
            self._log.progress(newest)

    def end(self) -> None:
        """Tells what is left; a last line may have no end."""
        if self._timer is not None:
            self._timer.cancel()
        while True:
            before = self._read_bytes
            self.look()
            if self._read_bytes == before:
                break
        if (last := _progress(self._rest)) is not None:
            self._log.progress(last)


def _progress(line: bytes) -> Progress | None:
    found = _PROGRESS.fullmatch(line.decode("utf-8", "backslashreplace"))
    if found is None:
        return None
    try:
        done, total = float(found[1]), float(found[2]) if found[2] else None
    except ValueError:
        return None
    if not isfinite(done) or not (total is None or isfinite(total)):
        return None
    return Progress(done, total, bounded(found[3] or "", MAX_TEXT_BYTES))


def _read(path: str, begin: int, most: int) -> bytes:
    """Some bytes of a plain file. A link or a pipe in its place is not followed or waited for."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(0, "it is no plain file")
        os.lseek(descriptor, begin, os.SEEK_SET)
        with os.fdopen(os.dup(descriptor), "rb") as file:
            return file.read(most)
    finally:
        os.close(descriptor)
