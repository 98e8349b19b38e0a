"""How an attempt's thread is made to stop: an exception is raised in it, at most once.

Python raises it at the next step of that thread's own code: not while a call into the system or a C
extension lasts, and possibly after the attempt's code has ended. So the lock of the attempt guards
the moment: an exception is only sent while the attempt's code runs, and `close` takes back one that
has not arrived yet. After `close` nothing of it can reach the thread.

The exception may also arrive while the thread is inside `open` or `close`, and leave the lock held.
That does no harm: the thread may take its own lock again, and no other thread needs it any more.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable

from longshore.executors.host.context import Cancelled


class Interruption:
    """What one attempt's thread and the thread that reads aborts agree on."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._thread: int | None = None
        self._is_sent = False
        self._is_closed = False

    def open(self) -> bool:
        """From now on the calling thread can be interrupted; False if it was, before it began."""
        with self._lock:
            self._thread = threading.get_ident()
            return not self._is_sent

    def send(self, mark: Callable[[], None]) -> None:
        """Interrupts the attempt, after a call of `mark`.

        Does nothing if the attempt's code has ended, or was interrupted already.
        """
        if self._is_sent:
            return
        with self._lock:
            if self._is_closed:
                return
            mark()
            self._is_sent = True
            if self._thread is not None:
                _raise_in(self._thread, Cancelled)

    def close(self) -> None:
        """The attempt's code has ended: nothing is raised in its thread any more.

        If this raises `Cancelled`, the caller calls it once more.
        """
        with self._lock:
            self._is_closed = True
            if self._is_sent:
                _raise_in(threading.get_ident(), None)


def _raise_in(thread: int, error: type[BaseException] | None) -> None:
    """Raises the exception in a thread at its next step; None takes back one not raised yet."""
    given = None if error is None else ctypes.py_object(error)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), given)
