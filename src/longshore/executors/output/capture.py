"""Catches what jobs print and log, in the process that runs them.

The contextvar that `current` reads says which attempt something belongs to: it follows coroutines,
tasks and `asyncio.to_thread`, but not a thread that is started by hand. What belongs to no attempt,
and what a forked copy of the process says, only goes where it went before.

Records are caught where every logger hands them to its handlers, not by a handler on the root
logger: with one there, `logging.basicConfig` in a job would do nothing, and warnings of programs
that configured nothing would not reach standard error any more. What a handler then prints of a
record is not caught a second time.
"""

from __future__ import annotations

import logging
import os
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, TextIO, cast

from longshore.executors.host.context import RunningContext, running
from longshore.executors.output.logger import handling, hear, is_handled
from longshore.executors.output.marks import LineMarks
from longshore.model.log import STDERR, STDOUT


class _Catching:
    """Gives what is printed on one stream to the attempt that prints it."""

    def __init__(self, stream: str, echo: bool, *, mark: bool = False) -> None:
        self._stream = stream
        self._echo = echo
        self._marks = LineMarks() if mark else None
        self._pid = os.getpid()

    def catch(self, given: Any, caught: bytes, real: Any) -> None:
        """Keeps what an attempt prints as `caught`, and prints it on the real stream too."""
        context = self._speaker()
        if context is None:
            if self._marks is not None:
                self._marks.forget_line()
            real.write(given)
            return
        if not is_handled():
            context.attempt_log().printed(self._stream, caught)
        if self._echo:
            with self.forgiving():
                self._print(context, given if isinstance(given, str) else caught, real)

    def _print(self, context: RunningContext, given: Any, real: Any) -> None:
        if self._marks is None:
            real.write(given)
            return
        with self._marks.lock:
            for piece in self._marks.marked(context.attempt_log(), context.number, given):
                real.write(piece)

    @contextmanager
    def forgiving(self) -> Iterator[None]:
        """For the real stream: no job fails because its worker's output is gone."""
        try:
            yield
        except OSError:
            if self._speaker() is None:
                raise

    def _speaker(self) -> RunningContext | None:
        return running() if os.getpid() == self._pid else None


class _Stream(ABC):
    """Stands for a real stream: catches what is written to it, and leaves it all the rest."""

    def __init__(self, real: Any, catching: _Catching) -> None:
        self._real = real
        self._catching = catching

    @abstractmethod
    def write(self, given: Any, /) -> int:
        """Prints text or bytes."""

    def writelines(self, lines: Iterable[Any], /) -> None:
        """Prints several lines."""
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        """Has the real stream pass on what it holds."""
        with self._catching.forgiving():
            self._real.flush()

    def close(self) -> None:
        """Only flushes: the next job needs the real stream too."""
        self.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


class _Bytes(_Stream):
    """The `buffer` of a caught stream, for jobs that print bytes."""

    def write(self, given: Any, /) -> int:
        """Prints bytes; the log shows them as text, whatever they are."""
        caught = bytes(memoryview(given))
        self._catching.catch(given, caught, self._real)
        return len(caught)


class _Text(_Stream):
    """Stands for `sys.stdout` or `sys.stderr`."""

    def __init__(self, real: TextIO, catching: _Catching) -> None:
        super().__init__(real, catching)
        buffer = getattr(real, "buffer", None)
        if buffer is not None:
            self.buffer = _Bytes(buffer, catching)

    def write(self, given: Any, /) -> int:
        """Prints text."""
        if not isinstance(given, str):
            raise TypeError(f"write() argument must be str, not {type(given).__name__}")
        self._catching.catch(given, given.encode("utf-8", "backslashreplace"), self._real)
        return len(given)

    def __enter__(self) -> _Text:
        return self

    def __exit__(self, *error: object) -> None:
        self.flush()

    def __iter__(self) -> Any:
        return iter(self._real)


def install(*, echo: bool, mark: bool = False) -> Callable[[], None]:
    """Catches from now on what jobs print and log; with `echo` it is printed as well.

    With `mark`, each line is printed with the number of its job. Answers a function that sets the
    streams again, should a job have replaced them.
    """
    stdout = _caught(sys.stdout, _Catching(STDOUT, echo, mark=mark))
    stderr = _caught(sys.stderr, _Catching(STDERR, echo, mark=mark))

    def set_streams() -> None:
        sys.stdout, sys.stderr = stdout, stderr

    set_streams()
    _catch_records(os.getpid())
    return set_streams


class Hearing:
    """Catches what jobs print and log while any `with` block of it runs, and prints it as well.

    For a process that is not Longshore's: after the last block its streams are as before.
    """

    def __init__(self) -> None:
        self._blocks = 0
        self._undo = ExitStack()

    def __enter__(self) -> None:
        self._blocks += 1
        if self._blocks == 1 and not isinstance(sys.stdout, _Text):
            real = sys.stdout, sys.stderr, logging.Logger.callHandlers
            install(echo=True)
            self._undo.callback(_put_back, *real)

    def __exit__(self, *error: object) -> None:
        self._blocks -= 1
        if self._blocks == 0:
            self._undo.close()


def _put_back(stdout: TextIO, stderr: TextIO, call_handlers: Any) -> None:
    # Other code that replaced a stream meanwhile puts back the stream that it found.
    if isinstance(sys.stdout, _Text):
        sys.stdout = stdout
    if isinstance(sys.stderr, _Text):
        sys.stderr = stderr
    logging.Logger.callHandlers = call_handlers  # type: ignore[method-assign]


def _caught(real: TextIO | None, catching: _Catching) -> TextIO:
    # A worker may be started with its output closed: then there is nothing to stand for.
    stream = real if real is not None else open(os.devnull, "w")  # noqa: SIM115
    return cast(TextIO, _Text(stream, catching))


def _catch_records(pid: int) -> None:
    call_handlers = logging.Logger.callHandlers

    def catch(self: logging.Logger, record: logging.LogRecord) -> None:
        context = running()
        if context is None or is_handled() or os.getpid() != pid:
            call_handlers(self, record)
            return
        hear(record, context.attempt_log())
        with handling():
            call_handlers(self, record)

    logging.Logger.callHandlers = catch  # type: ignore[method-assign]
