"""A host that is forked by a job stays one host.

The copy must not speak for the original, nor take its attempts: it lets go of the sockets at once,
and ends when it comes back from the job's code. Until then it is an ordinary process, with ordinary
signals.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
import threading
from typing import NoReturn

_OURS = {signal.SIGTERM, signal.SIGINT}

_is_copy = False


def remain_one(*sockets: socket.socket) -> None:
    """Makes every later fork of this process give up its part in the dialogue."""
    masks = threading.local()

    def before() -> None:
        # A signal for the copy must wait until the copy would obey it.
        masks.before = signal.pthread_sigmask(signal.SIG_BLOCK, _OURS)

    def in_original() -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, masks.before)

    def in_copy() -> None:
        global _is_copy
        _is_copy = True
        for sock in sockets:
            sock.close()
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, masks.before)

    os.register_at_fork(before=before, after_in_parent=in_original, after_in_child=in_copy)


def is_copy() -> bool:
    """Whether this process is a copy that a job made by forking."""
    return _is_copy


def leave_if_copy() -> None:
    """Ends this process if a job made it by forking."""
    if is_copy():
        leave()


def leave() -> NoReturn:
    """Ends this process at once; threads and exit handlers of the job's code cannot delay it."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    os._exit(0)
